#!/bin/sh
# Ranks that freeze: the results of the run are printed all the same, and nothing waits for long.
. "${SOURCE_DIR:?}/tests/shell/mpi.sh"
limit_s=300

has_commits() {
    [ "$(grep -c commit events)" -gt 3 ]
}

begin() { # ranks, options of train …
    n=$1
    shift
    rm -f pid.* events
    # shellcheck disable=SC2086 # words by design
    ranks "$n" sh -c "$each" sh "$PACELINE" train $small --json --events events "$@" >out 2>err &
    job=$!
    await has_commits || fail "$*: no update came: $(cat err)"
}

finish() { # what
    wait "$job"
    status=$?
    kill -CONT "$frozen" 2>/dev/null # the launcher ends it then
    [ $status != 124 ] && [ $status != 137 ] || fail "$1: it did not end"
    [ $status != 0 ] || fail "$1: the exit status is 0"
    grep -q '"updates":' out || fail "$1: no results: $(cat out err)"
    grep -q 'does not answer\|did not' err || fail "$1: not told: $(cat err)"
    # Open MPI's launcher may hang if a rank that it wakes up to end it aborts the job as well
    ! grep -q 'invoked on rank [1-9]' err || fail "$1: another rank aborts: $(cat err)"
}

# A worker: barriers go on without it, and at the end the results are there.
begin 4 --method sync --updates 300 --evict 2 --delay const:t=0.02
frozen=$(cat pid.3)
kill -STOP "$frozen"
finish "a frozen worker"
grep -q '"updates":300,' out || fail "the run did not get to its end: $(cat out err)"
grep -q '"frozen":[1-9]' out || fail "the frozen worker was not counted: $(cat out)"

# It wakes up, and is there at the end.
begin 4 --method sync --time 300 --evict 2 --delay const:t=0.005
frozen=$(cat pid.3)
kill -STOP "$frozen"
await grep -q 'leave W3' events || fail "a frozen worker was not left out: $(tail -3 events)"
kill -CONT "$frozen"
joined_twice() { [ "$(grep -c 'join W3' events)" -ge 2 ]; }
await joined_twice || fail "it did not join again: $(grep W3 events | tail -3)"
kill -TERM "$(cat pid.0)"
wait "$job" || fail "a worker that woke up: $(cat err)"
grep -q '"frozen":[1-9]' out || fail "a worker that woke up was not counted: $(cat out)"

# A second server: --time and SIGTERM end the run.
begin 4 --servers 2 --method async --time 8 --delay const:t=0.005
frozen=$(cat pid.1)
kill -STOP "$frozen"
finish "a frozen server and --time"
begin 4 --servers 2 --method async --time 500 --delay const:t=0.005
frozen=$(cat pid.1)
kill -STOP "$frozen"
sleep 1
kill -TERM "$(cat pid.0)"
finish "a frozen server and SIGTERM"

# A rank that freezes while it makes its data, which takes several seconds: SIGTERM ends the other.
makes_data() {
    pid=$(cat pid.1) && [ -n "$pid" ] &&
        [ "$(cut -d' ' -f14 "/proc/$pid/stat")" -gt 30 ] # hundredths of a second
}
rm -f pid.*
ranks 2 sh -c "$each" sh "$PACELINE" train --model mf --data lowrank:rank=1024,ratings=5000000 \
    --updates 5 >out 2>err &
job=$!
await makes_data || fail "rank 1 makes no data: $(cat err)"
frozen=$(cat pid.1)
kill -STOP "$frozen"
kill -TERM "$(cat pid.0)"
wait "$job"
status=$?
kill -CONT "$frozen" 2>/dev/null
[ $status != 124 ] && [ $status != 137 ] || fail "a rank frozen at the start: it did not end"
[ $status != 0 ] || fail "a rank frozen at the start: the exit status is 0"
grep -q 'rank 1 did not answer before the run was ended' err ||
    fail "a rank frozen at the start: not told: $(cat err)"

finish_test "frozen ranks"
