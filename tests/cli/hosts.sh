#!/bin/sh
# Runs on several hosts, which are network namespaces: 8 workers on 4 of them while a link goes down
# and up, a host dies, and the server dies in the middle of an upload and of an update, and is
# started again.
. "${SOURCE_DIR:?}/tests/shell/hosts.sh"
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

echo "-- 8 workers on 4 hosts"
serve first --updates 1000000 --min-workers 8 --metrics 10.77.0.1:9477 --update-time 0.01
stall 10.77.0.1:7070 up signal on s
for h in 1 2 3 4; do
    for w in 1 2; do
        server_at=10.77.0.1:7070
        [ $h$w != 42 ] || server_at=10.77.0.1:$through
        on "$h" "$paceline" work $server_at --keys "$work/keys" >"$work/w$h$w.out" 2>&1 &
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
kill -USR1 "$stall" # a result of worker 42 stops half-way
await "$work/stall.out" "stalled"
kill -9 "$server" # which is carrying out updates all the time
wait "$server" || :
serve second --updates 1000000 --min-workers 6 --target-accuracy 0.8 --eval-every 0.2
wait "$server" || fail "$(cat "$work/second.err" "$work/second.json")"
for w in 11 12 31 32 41 42; do
    eval "wait \$worker_$w" || fail "worker $w: $(cat "$work/w$w.out")"
    grep -q "joining again" "$work/w$w.out" || fail "worker $w: $(cat "$work/w$w.out")"
done
fates "$work/second.json"
reached "$work/second.json"
