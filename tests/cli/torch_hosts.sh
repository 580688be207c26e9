#!/bin/sh
# PyTorch on several hosts, which are network namespaces: two processes on each of three, started by
# torchrun, by mpirun and as a launcher does, while a line is cut and a host dies; and as clients of
# a server that dies with and without a standby.
. "${SOURCE_DIR:?}/tests/shell/hosts.sh"
: "${BUILD_DIR:?}"
python=/usr/bin/python3
$python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' ||
    skip "PyTorch is not installed (Debian package python3-torch)"
make_hosts 1 2 3 4
"$paceline" keys --out "$work/keys" --host 10.77.0.1,10.77.0.11,10.77.0.14

echo "-- torchrun on three hosts: the same weights as on one"
cat >"$work/train.py" <<'PY'
import json, os, sys, time, torch, paceline.torch as pl

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
        if "PACELINE" in os.environ:  # a version, and what tells whether it is the same one
            print("saw", opt.version, model.weight[0, 0].item(), flush=True)
        time.sleep(pause)
finally:
    opt.close()
    if "PACELINE" in os.environ:
        print(float(loss))
    elif opt.rank == 0:
        weights = [v for p in model.parameters() for v in p.flatten().tolist()]
        print(json.dumps({"weights": weights, "loss": float(loss),
                          "tasks": opt.summary()["run"]["tasks"]}))
PY
unset PACELINE
export PACELINE_LIBRARY="$BUILD_DIR/libpaceline.so"
export PYTHONPATH="$SOURCE_DIR/python:$SOURCE_DIR/tests/python"
export OMP_NUM_THREADS=1 PATH="$BUILD_DIR:$PATH" PYTHONDONTWRITEBYTECODE=1

# Six forks of one process with PyTorch, one on each of these hosts: number N writes to $name.N, and
# its process is in $name.N.pid.
cat >"$work/start_forks.py" <<'PY'
import os, sys
from forks import Program

work, net, name, hosts, *arguments = sys.argv[1:]
text = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
with open(os.environ.pop("NETWORK")) as network:
    if libc.setns(network.fileno(), 0) or libc.prctl(1, signal.SIGKILL):  # dies with its parent
        raise OSError(ctypes.get_errno(), "a rank does not get to its host")
"""
with open(f"{work}/train.py") as f:
    text += f.read()
ranks = []
for rank, host in enumerate(hosts.split()):
    env = dict(os.environ, NETWORK=f"/run/netns/{net}-{host}")
    if "WORLD_SIZE" in env:
        env["RANK"] = str(rank)
    at = f"{work}/{name}.{rank}"
    with open(at, "wb") as out, open(f"{at}.err", "wb") as err:
        ranks.append(Program([text, *arguments], env=env, stdout=out, stderr=err))
    with open(f"{at}.pid", "w") as f:
        print(ranks[-1].pid, file=f)
status = [rank.wait() for rank in ranks]
print(*status)
sys.exit(any(status))
PY
start_six() { # name, hosts, their variables, arguments …
    name=$1 on_hosts=$2 variables=$3
    shift 3
    # shellcheck disable=SC2086
    env $variables $python "$work/start_forks.py" "$work" "$net" "$name" "$on_hosts" "$@" \
        >"$work/$name.status" 2>"$work/$name.err" &
    started=$!
    pids="$pids $started"
}

# Waits for what was started, whose output has that name.
all_end() { # name
    for p in $started; do
        wait "$p" || fail "$(tail -n 20 "$work/$1".*err)"
    done
}

job="WORLD_SIZE=6 MASTER_ADDR=10.77.0.11 MASTER_PORT=29500"
start_six near "1 1 1 1 1 1" "$job LOCAL_WORLD_SIZE=6 TORCHELASTIC_RUN_ID=$net-near" sync 30 0
all_end near
started=
# Rank 0 makes the keys, and torchrun's store hands them over. (PyTorch 1.13 on Python 3.11 takes
# "no redirection" for an error, so it gets one for a rank that does not exist.)
for node in 0 1 2; do
    on $((node + 1)) $python -m torch.distributed.run --nnodes 3 --nproc_per_node 2 \
        --node_rank $node --master_addr 10.77.0.11 --master_port 29400 --redirects 9:1 --tee 9:1 \
        "$work/train.py" sync 30 0 >"$work/far.$node" 2>"$work/far.$node.err" &
    started="$started $!"
done
pids="$pids $started"
all_end far
# the same up to the order in which six gradients came and were added
same() { # name of the other
    $python - "$work/near.0" "$work/$1" <<'PY' || fail "$(cat "$work/near.0" "$work/$1")"
import json, sys
near, far = (json.load(open(name))["weights"] for name in sys.argv[1:])
assert len(near) == 6 and all(abs(a - b) < 1e-5 for a, b in zip(near, far))
PY
}
same far.0

case $("${MPIEXEC:-false}" --version 2>&1) in
*"Open MPI"*)
    echo "-- mpirun on three hosts, and no variable says where rank 0 is"
    # mpirun starts a daemon on each host by a program like ssh
    cat >"$work/ssh" <<'SH'
#!/bin/sh
host=$1
shift
mkdir -p "$work/at.$host"
TMPDIR=$work/at.$host exec ip netns exec "$net-$host" sh -c "$*"
SH
    chmod +x "$work/ssh"
    mkdir "$work/shared"
    export net work OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    (cd "$work/shared" && on s timeout 300 "$MPIEXEC" --mca plm_rsh_agent "$work/ssh" \
        --mca oob_tcp_if_include 10.77.0.0/24 -host 1:2,2:2,3:2 -n 6 \
        $python "$work/train.py" sync 30 0) >"$work/mpi.0" 2>"$work/mpi.err" ||
        fail "$(cat "$work/mpi.err")"
    same mpi.0
    [ -z "$(ls -A "$work/shared")" ] || fail "$(ls -A "$work/shared")"
    ;;
esac

echo "-- PyTorch while a line is cut and a host dies"
await_lines() { # pattern, number
    n=0
    until [ "$(lines "$work/cut.0.err" "$1")" -ge "$2" ]; do
        n=$((n + 1))
        [ $n -lt 2400 ] || fail "$2 times '$1' did not come: $(tail -n 20 "$work"/cut.*.err)"
        sleep 0.1
    done
}

start_six cut "1 1 2 2 3 3" "$job LOCAL_WORLD_SIZE=2 PACELINE_KEYS=$work/keys
    TORCHELASTIC_RUN_ID=$net-cut" async 1000000000 0.01
for rank in 0 1 2 3 4 5; do await "$work/cut.$rank.err" "joined"; done
line 2 down
begin=$(date +%s%N)
await_lines "rank [23] lost its connection; it keeps its place" 2
echo "noticed after $((($(date +%s%N) - begin) / 100000000 * 100)) ms"
line 2 up
await_lines "rank [23] is back after" 2
line 3 down
kill -9 "$(cat "$work/cut.4.pid")" "$(cat "$work/cut.5.pid")"
await_lines "rank [45] lost its connection .* ago and did not return" 2
kill "$(cat "$work/cut.0.pid")" # rank 0 ends the run
wait "$started" || :
case $(cat "$work/cut.status") in
"-15 0 0 0 -9 -9" | "143 0 0 0 -9 -9" | "0 0 0 0 -9 -9") ;;
*) fail "$(cat "$work/cut.status") $(tail -n 20 "$work"/cut.*err)" ;;
esac
fates "$work/cut.0"
$python -c 'import json, sys; sys.exit(not json.load(open(sys.argv[1]))["loss"] < 0.01)' \
    "$work/cut.0" || fail "$(cat "$work/cut.0")"

echo "-- a server that dies with a standby, and without"
PACELINE="init=$work/init.safetensors" $python "$work/train.py" async 1 0 >"$work/out" 2>&1 ||
    fail "$(cat "$work/out")"
line 2 up
line 3 up
serve() { # name, host, address, options …
    name=$1 host=$2 at=$3
    shift 3
    on "$host" "$paceline" serve "$@" --json --listen "$at" --keys "$work/keys" \
        --checkpoint "$work/saved.$host" --checkpoint-every 50 >"$work/$name.json" \
        2>"$work/$name.err" &
    server=$!
    pids="$pids $server"
}
run="--model external --method async --lr 0.02 --optim sgd --workers 6"
# shellcheck disable=SC2086
serve first s 10.77.0.1:7070 $run --init "$work/init.safetensors" --updates 1000000000 \
    --min-workers 6
first=$server
await "$work/first.err" "workers can join over"
serve second 4 10.77.0.14:7070 --standby https://10.77.0.1:7070
second=$server
for h in 1 2 3; do # to a host 9 that never answers
    ip -n "$net-$h" neigh add 10.77.0.19 lladdr 02:00:00:00:00:09 dev eth0
done
start_six elastic "1 1 2 2 3 3" "PACELINE=https://10.77.0.19:7070,10.77.0.1:7070
    PACELINE_KEYS=$work/keys" async 1 0.01
for i in 0 1 2 3 4 5; do await "$work/elastic.$i.err" "joined"; done
await "$work/first.err" "a standby follows at"
saves() { # in the folder of a host, one more than there were
    before=$(find "$work/saved.$1" -name '*.safetensors' 2>/dev/null | sort | tail -n 1)
    n=0
    while [ "$(find "$work/saved.$1" -name '*.safetensors' 2>/dev/null | sort | tail -n 1)" = \
        "$before" ]; do
        n=$((n + 1))
        [ $n -lt 1200 ] || fail "no checkpoint: $(cat "$work/first.err" "$work/second.err")"
        sleep 0.1
    done
}
saves s
kill -9 "$first"
await "$work/second.err" "it takes over after update"
saves 4 # what it has taken over, and then more
saves 4
kill -9 "$second"
seen=$(cat "$work"/elastic.? | awk '$1 == "saw" && $2 > v { v = $2 } END { print v }')
last=$(find "$work/saved.4" -name 'checkpoint-*' | sed 's/.*checkpoint-0*\([0-9]*\)\..*/\1/' |
    sort -n | tail -n 1)
# shellcheck disable=SC2086
serve third 4 10.77.0.14:7070 $run --updates 1000000000 --min-workers 6 --resume auto
for w in 1 2 3 4 5 6; do await "$work/third.err" "worker $w joined"; done
echo "update $seen was seen, and update $last is the last that was saved"
[ "$seen" -le "$last" ] || await "$work/third.err" "updates were lost\|update was lost"
saves 4
kill "$server"
wait "$server" || fail "$(cat "$work/third.err")"
all_end elastic
fates "$work/third.json"
for i in 0 1 2 3 4 5; do
    tail -n 1 "$work/elastic.$i" | awk '{ exit !($1 < 0.01) }' ||
        fail "loss $(tail -n 1 "$work/elastic.$i")"
done
took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
[ "$took" -lt "$last" ] || fail "no update between $took and $last"
# each update up to there was made once: one that the standby had lost would have been made again
cat "$work"/elastic.? | awk -v last="$last" '$1 == "saw" && $2 <= last {
    n++
    if ($2 in w && w[$2] != $3) { print "two updates " $2; bad = 1 }
    w[$2] = $3
} END { exit bad || n < 10 }' || fail "an update that was seen is lost"
