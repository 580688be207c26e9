#!/bin/sh
# A network that falls into two halves: the one with most of the workers goes on, the other makes no
# update that anybody sees, and its workers come over when the network is whole again. A worker that
# dies during the hand-over does not keep the standby from it, and neither does a host that is cut
# off; nor is anything lost if the server dies in the middle of an upload or a copy, or the standby
# before its first update. Hosts are network namespaces.
. "${SOURCE_DIR:?}/tests/shell/hosts.sh"
make_hosts 1 2 3 4
"$paceline" keys --out "$work/keys" --host 10.77.0.1,10.77.0.11

# A server on host s, its standby on host 1, and a worker on each of these hosts. $more has options
# of the run, $follows of the standby. $stall_worker and $stall_standby say when to stall, if the
# last worker or the standby does not reach the server directly.
pace=0.1 # seconds per task: most of the time is spent waiting
more=
saved=$work/saved
follows="--checkpoint $saved --checkpoint-every 1"
stall_worker=
stall_standby=
begin() { # host …
    rm -rf "$saved" "$work"/*.err "$work"/*.out "$work"/*.json
    # shellcheck disable=SC2086
    on s "$paceline" serve --data digits --model softmax --method async --workers $# \
        --delay "const:t=$pace" --updates 1000000 --min-workers $# --json --listen 10.77.0.1:7070 \
        --keys "$work/keys" $more >"$work/first.json" 2>"$work/first.err" &
    first=$!
    await "$work/first.err" "workers can join over"
    through=7070
    # shellcheck disable=SC2086
    [ -z "$stall_standby" ] || stall 10.77.0.1:7070 $stall_standby on s
    # shellcheck disable=SC2086
    on 1 "$paceline" serve --standby "https://10.77.0.1:$through" --json --listen 10.77.0.11:7070 \
        --keys "$work/keys" $follows >"$work/second.json" 2>"$work/second.err" &
    second=$!
    pids="$pids $first $second"
    await "$work/second.err" "standby on port"
    through=7070
    # shellcheck disable=SC2086
    [ -z "$stall_worker" ] || stall 10.77.0.1:7070 $stall_worker on s
    w=0
    for host in "$@"; do
        w=$((w + 1))
        port=7070
        [ $w != $# ] || port=$through
        on "$host" "$paceline" work "10.77.0.1:$port" --keys "$work/keys" >"$work/$w.out" 2>&1 &
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

# Waits until the server that saves after each update has made so many after $took.
goes_on() { # updates
    n=0
    until [ "$(readlink "$saved/latest" | tr -cd 0-9)" -ge $((took + $1)) ] 2>/dev/null; do
        n=$((n + 1))
        [ $n -lt 1800 ] || fail "not $1 updates after $took: $(said)"
        sleep 0.1
    done
}

# The standby has taken over: all workers are there, and the server has made no more updates.
check_replaced() {
    for w in 1 2 3; do await "$work/$w.out" "joined https://10.77.0.11:7070"; done
    took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
    goes_on 20 # the server has had the time for some
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
took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
goes_on 1
finish "$second"
[ "$(updates second)" -gt "$took" ] || fail "$(said)"

# No worker has seen an update that the standby lacks, and it makes more of them.
check_seen() { # number of workers
    took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
    for w in $(seq "$1"); do
        await "$work/$w.out" "joining again after update"
        seen=$(sed -n 's/.*joining again after update \([0-9]*\):.*/\1/p' "$work/$w.out" |
            head -n 1)
        [ "$seen" -le "$took" ] || fail "worker $w has seen update $seen, which is lost: $(said)"
    done
}

echo "-- the server dies in the middle of an upload, and of a copy"
for half in upload copy; do
    [ $half = upload ] && stall_worker="up 20000" # a result has 2.6 kB, and a copy 15
    [ $half = copy ] && stall_standby="down 150000"
    begin 2 3 4
    await "$work/stall.out" "stalled"
    kill -9 "$first"
    await "$work/second.err" "it takes over after update"
    stall_worker='' stall_standby=''
    check_seen 3
    for w in 1 2 3; do await "$work/$w.out" "joined https://10.77.0.11:7070"; done
    goes_on 1
    finish "$second"
    [ "$(updates second)" -gt "$took" ] || fail "$(said)"
    fates "$work/second.json"
done

echo "-- the standby dies too, before its first update, and is started again"
follows="--min-workers 3 --checkpoint $saved" # it waits for the worker of host 3
begin 2 2 3
line 3 down
kill -9 "$first"
await "$work/second.err" "waiting for 3 of 3 workers"
took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
[ "$(readlink "$saved/latest")" = "checkpoint-$(printf %010d "$took").safetensors" ] ||
    fail "what it has taken over is not saved: $(ls "$saved")"
kill -9 "$second"
on 1 "$paceline" serve --data digits --model softmax --method async --workers 3 \
    --delay "const:t=$pace" --updates 1000000 --min-workers 3 --json --listen 10.77.0.11:7070 \
    --keys "$work/keys" --checkpoint "$saved" --checkpoint-every 1 --resume auto \
    >"$work/third.json" 2>"$work/third.err" &
third=$!
pids="$pids $third"
line 3 up
check_seen 3
for w in 1 2 3; do await "$work/third.err" "worker $w joined"; done
goes_on 1
finish "$third"
[ "$(updates third)" -gt "$took" ] || fail "$(said)"
fates "$work/third.json"

echo "-- eight workers on four hosts, one of which is cut off when the server dies"
pace=0.02
more="--update-time 0.004 --lr 0.1 --target-accuracy 0.8 --eval-every 0.2"
follows="--min-workers 8" # or it is there before those of host 4 are back
begin 1 1 2 2 3 3 4 4
line 4 down
kill -9 "$first" # in the middle of an update
await "$work/second.err" "it takes over after update"
line 4 up
wait "$second" || fail "$(said)"
for w in $(seq 8); do
    eval "wait \$worker_$w" || fail "worker $w: $(said)"
done
check_seen 8
[ "$(updates second)" -gt "$took" ] || fail "$(said)"
fates "$work/second.json"
reached "$work/second.json"
