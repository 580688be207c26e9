#!/bin/sh
# A network that falls into two halves: the one with most of the workers goes on, the other makes no
# update that anybody sees, and its workers come over when the network is whole again. A worker that
# dies during the hand-over does not keep the standby from it, and neither does a host that is cut
# off. Hosts are network namespaces.
. "${SOURCE_DIR:?}/tests/shell/hosts.sh"
make_hosts 1 2 3
"$paceline" keys --out "$work/keys" --host 10.77.0.1,10.77.0.11

# A server on host s, its standby on host 1, and a worker on each of these hosts. $more has options
# of the run, $follows of the standby.
more=
follows=
begin() { # host …
    rm -f "$work"/*.err "$work"/*.out "$work"/*.json
    # shellcheck disable=SC2086
    on s "$paceline" serve --data digits --model softmax --method async --workers $# \
        --delay const:t=0.02 --updates 1000000 --min-workers $# --json --listen 10.77.0.1:7070 \
        --keys "$work/keys" $more >"$work/first.json" 2>"$work/first.err" &
    first=$!
    await "$work/first.err" "workers can join over"
    # shellcheck disable=SC2086
    on 1 "$paceline" serve --standby https://10.77.0.1:7070 --json --listen 10.77.0.11:7070 \
        --keys "$work/keys" $follows >"$work/second.json" 2>"$work/second.err" &
    second=$!
    pids="$pids $first $second"
    await "$work/second.err" "standby on port"
    w=0
    for host in "$@"; do
        w=$((w + 1))
        on "$host" "$paceline" work 10.77.0.1:7070 --keys "$work/keys" >"$work/$w.out" 2>&1 &
        pids="$pids $!"
        eval "worker_$w=$!"
    done
    for w in $(seq $#); do await "$work/$w.out" "has a standby at"; done
}

updates() { # name
    tr ',{}' '\n' <"$work/$1.json" | sed -n 's/^"updates":\([0-9]*\)$/\1/p' | head -n 1
}

said() {
    tail -n 30 "$work"/*.err "$work"/*.out
}

finish() { # process
    kill "$1"
    wait "$1" || fail "$(said)"
}

# The standby has taken over: all workers are there, and the server has made no more updates.
check_replaced() {
    for w in 1 2 3; do await "$work/$w.out" "joined https://10.77.0.11:7070"; done
    took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
    sleep 1
    finish "$first"
    made=$(updates first) # each worker had at most one result, whose update nobody has seen
    [ "$made" -le $((took + 3)) ] || fail "$made updates, replaced after $took: $(said)"
    finish "$second"
    [ "$(updates second)" -gt "$took" ] || fail "$(said)"
}

echo "-- the standby has most of the workers"
begin s 1 1
line 1 down
await "$work/second.err" "it takes over after update"
await "$work/first.err" "no orders leave until it or they return"
await "$work/second.err" "the run begins with [12] of 3 workers" # 1 on a slow machine
grep -q "is lost; until it returns" "$work/first.err" && fail "$(said)"
line 1 up
check_replaced

echo "-- the server has most of the workers"
begin s s 1
line 1 down
await "$work/first.err" "is lost; until it returns"
await "$work/second.err" "does not answer"
line 1 up
n=0
until [ "$(grep -c "a standby follows at" "$work/first.err")" = 2 ]; do
    n=$((n + 1))
    [ $n -lt 1800 ] || fail "it does not return: $(said)"
    sleep 0.1
done
finish "$first"
wait "$second" || fail "$(said)"
grep -q "takes over" "$work/second.err" && fail "$(said)"

echo "-- the line is back when the standby has been elected"
begin 1 1 1
line 1 down
await "$work/second.err" "it takes over after update"
line 1 up
check_replaced

echo "-- a worker dies during the hand-over"
begin s 1 1
kill -9 "$first"
await "$work/second.err" "does not answer"
# shellcheck disable=SC2154
kill -9 "$worker_1"
await "$work/second.err" "the run begins with [12] of 3 workers"
for w in 2 3; do await "$work/$w.out" "joined https://10.77.0.11:7070"; done
sleep 1
took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
finish "$second"
[ "$(updates second)" -gt "$took" ] || fail "$(said)"

echo "-- eight workers on three hosts, one of which is cut off when the server dies"
more="--update-time 0.004 --lr 0.1 --target-accuracy 0.8 --eval-every 0.2"
follows="--min-workers 8" # or it is there before those of host 3 are back
begin 1 1 1 2 2 2 3 3
line 3 down
kill -9 "$first" # in the middle of an update
await "$work/second.err" "it takes over after update"
took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
line 3 up
wait "$second" || fail "$(said)"
for w in $(seq 8); do
    eval "wait \$worker_$w" || fail "worker $w: $(said)"
    seen=$(sed -n 's/.*joining again after update \([0-9]*\):.*/\1/p' "$work/$w.out" | head -n 1)
    [ "$seen" -le "$took" ] || fail "worker $w has seen update $seen, which is lost: $(said)"
done
[ "$(updates second)" -gt "$took" ] || fail "$(said)"
fates "$work/second.json"
reached "$work/second.json"
