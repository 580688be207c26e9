#!/bin/sh
# Runs on several hosts, which are network namespaces: 8 workers on 4 of them while a link goes down
# and up, a host dies, and the server dies and is started again; PyTorch on 3 hosts with 2 processes
# each, started as a launcher does.
. "${SOURCE_DIR:?}/tests/shell/hosts.sh"
: "${BUILD_DIR:?}"
make_hosts 1 2 3 4
"$paceline" keys --out "$work/keys" --host 10.77.0.1,10.77.0.11

serve() { # name, options …
    name=$1
    shift
    on s "$paceline" serve --data digits --model softmax --method async --workers 8 \
        --delay const:t=0.02 --listen 10.77.0.1:7070 --keys "$work/keys" \
        --checkpoint "$work/saved" --checkpoint-every 50 --resume auto --json "$@" \
        >"$work/$name.json" 2>"$work/$name.err" &
    server=$!
    pids="$pids $server"
    await "$work/$name.err" "workers can join over HTTPS"
}

lines() { # file, pattern
    grep -c "$2" "$1" || :
}

echo "-- 8 workers on 4 hosts"
serve first --updates 1000000 --min-workers 8 --metrics 10.77.0.1:9477
for h in 1 2 3 4; do
    for w in 1 2; do
        on "$h" "$paceline" work 10.77.0.1:7070 --keys "$work/keys" >"$work/w$h$w.out" 2>&1 &
        pids="$pids $!"
        eval "worker_$h$w=$!"
    done
done
for h in 1 2 3 4; do
    for w in 1 2; do await "$work/w$h$w.out" "as worker . of 8"; done
done

echo "-- a link goes down and up"
metric() { # name
    (on s curl -sf --noproxy '*' http://10.77.0.1:9477/metrics) >"$work/metrics" ||
        fail "no metrics: $(cat "$work/first.err")"
    awk -v name="$1" '$1 == name { print $2 }' "$work/metrics"
}

until_metric() { # name, comparison
    n=0
    until awk -v value="$(metric "$1")" "BEGIN { exit !(value $2) }"; do
        n=$((n + 1))
        [ $n -lt 2400 ] || fail "$1 is not $2: $(cat "$work/metrics" "$work/first.err")"
        sleep 0.1
    done
}

number() { # worker of a host
    sed -n 's/.*as worker \(.\) of 8.*/\1/p' "$work/w$1.out" | head -n 1
}

cut="worker [$(number 11)$(number 12)] lost its connection"
line 1 down
for w in 11 12; do
    await "$work/first.err" "worker $(number $w) lost its connection; it keeps its place"
done
line 1 up
# it keeps its place for 10 s at least; on a machine that is slower than that it joins again
for w in 11 12; do
    await "$work/first.err" \
        "worker $(number $w) \(is back after\|lost its connection .* did not return\)"
done
[ "$(lines "$work/first.err" "lost its connection")" = "$(lines "$work/first.err" "$cut")" ] ||
    fail "workers of other hosts were disconnected: $(cat "$work/first.err")"
until_metric paceline_workers_disconnected "== 0"
until_metric paceline_workers "== 8"
applied=$(metric 'paceline_tasks_total{fate="applied"}')
until_metric 'paceline_tasks_total{fate="applied"}' "> $applied + 100"
# each task has one fate, or is with one of the eight workers
awk '/^paceline_tasks_started_total/ { with += $2 } /^paceline_tasks_total/ { with -= $2 }
    END { exit !(with >= 0 && with <= 8) }' "$work/metrics" || fail "$(cat "$work/metrics")"

echo "-- a host dies"
gone='left\|the run continues without it'
left=$(lines "$work/first.err" "$gone")
line 2 down
# shellcheck disable=SC2154
kill -9 "$worker_21" "$worker_22"
n=0
until [ "$(lines "$work/first.err" "$gone")" -ge $((left + 2)) ]; do
    n=$((n + 1))
    [ $n -lt 2400 ] || fail "the workers of host 2 did not leave: $(cat "$work/first.err")"
    sleep 0.1
done

echo "-- the server dies and is started again"
n=0
until [ -n "$(find "$work/saved" -name '*.safetensors')" ]; do
    n=$((n + 1))
    [ $n -lt 1200 ] || fail "no checkpoint: $(cat "$work/first.err")"
    sleep 0.1
done
kill -9 "$server"
wait "$server" || :
serve second --updates 1000000 --min-workers 6 --target-accuracy 0.8 --eval-every 0.2
wait "$server" || fail "$(cat "$work/second.err" "$work/second.json")"
for w in 11 12 31 32 41 42; do
    eval "wait \$worker_$w" || fail "worker $w: $(cat "$work/w$w.out")"
    grep -q "joining again" "$work/w$w.out" || fail "worker $w: $(cat "$work/w$w.out")"
done
/usr/bin/python3 - "$work/second.json" <<'PY' || fail "$(cat "$work/second.json")"
import json, sys
run = json.loads(open(sys.argv[1]).read().splitlines()[-1])
tasks = dict(run["tasks"])
assert tasks.pop("started") == sum(tasks.values()), tasks
assert run["test_accuracy"] >= 0.8, run["test_accuracy"]
PY

echo "-- PyTorch on 3 hosts"
line 2 up
python=/usr/bin/python3
if ! $python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))'; then
    echo "PyTorch is not installed; this part is skipped"
    exit 0
fi
cat >"$work/train.py" <<'PY'
import json, sys, time, torch, paceline.torch as pl

method, updates, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Linear(5, 1)
opt = pl.Optimizer(torch.optim.SGD(model.parameters(), lr=0.02), model, method=method,
                   updates=updates)
g = torch.Generator().manual_seed(17 + opt.rank)
print("joined", flush=True, file=sys.stderr)
try:
    while not opt.ended:
        x = torch.randn(8, 5, generator=g)
        opt.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        opt.step(loss)
        time.sleep(pause)
finally:
    opt.close()
    if opt.rank == 0:
        weights = [v for p in model.parameters() for v in p.flatten().tolist()]
        print(json.dumps({"weights": weights, "loss": float(loss),
                          "tasks": opt.summary()["run"]["tasks"]}))
PY
unset PACELINE
export PACELINE_LIBRARY="$BUILD_DIR/libpaceline.so" PYTHONPATH="$SOURCE_DIR/python"
export OMP_NUM_THREADS=1 PATH="$BUILD_DIR:$PATH" PYTHONDONTWRITEBYTECODE=1

# Each rank has a host: all of them the first (near), or two each of three.
start_six() { # name, arguments …
    name=$1 started=
    shift
    for rank in 0 1 2 3 4 5; do
        if [ "$name" = near ]; then host=1 local=6; else host=$((1 + rank / 2)) local=2; fi
        on "$host" env RANK=$rank WORLD_SIZE=6 LOCAL_WORLD_SIZE=$local MASTER_ADDR=10.77.0.11 \
            MASTER_PORT=29500 PACELINE_KEYS="$work/keys" TORCHELASTIC_RUN_ID="$net-$name" \
            $python "$work/train.py" "$@" >"$work/$name.$rank" 2>"$work/$name.$rank.err" &
        started="$started $!"
    done
    pids="$pids $started"
}

six() { # name
    start_six "$1" sync 30 0
    rank=0
    for p in $started; do
        wait "$p" || fail "rank $rank: $(cat "$work/$1.$rank.err")"
        rank=$((rank + 1))
    done
}

six near
six far
# the same up to the order in which six gradients came and were added
$python - "$work/near.0" "$work/far.0" <<'PY' || fail "$(cat "$work/near.0" "$work/far.0")"
import json, sys
near, far = (json.load(open(name))["weights"] for name in sys.argv[1:])
assert len(near) == 6 and all(abs(a - b) < 1e-5 for a, b in zip(near, far))
PY

echo "-- PyTorch while a line is cut and a host dies"
await_lines() { # pattern, number
    n=0
    until [ "$(lines "$work/cut.0.err" "$1")" -ge "$2" ]; do
        n=$((n + 1))
        [ $n -lt 2400 ] || fail "$2 times '$1' did not come: $(tail -n 20 "$work"/cut.*.err)"
        sleep 0.1
    done
}

start_six cut async 1000000000 0.01
for rank in 0 1 2 3 4 5; do await "$work/cut.$rank.err" "joined"; done
line 2 down
begin=$(date +%s%N)
await_lines "lost its connection" 2
echo "noticed after $((($(date +%s%N) - begin) / 100000000 * 100)) ms"
line 2 up
await_lines "is back after" 2
line 3 down
# shellcheck disable=SC2086
set -- $started
kill -9 "$5" "$6"
await_lines "did not return" 2
kill "$1" # rank 0 ends the run
wait "$1" || [ $? = 143 ] || fail "rank 0: $(cat "$work/cut.0.err")"
for rank in 1 2 3; do
    shift
    wait "$1" || fail "rank $rank: $(cat "$work/cut.$rank.err")"
done
$python - "$work/cut.0" <<'PY' || fail "$(cat "$work/cut.0")"
import json, sys
run = json.load(open(sys.argv[1]))
tasks = run["tasks"]
assert run["loss"] < 0.01, run
assert tasks.pop("started") == sum(tasks.values()), tasks
PY
