#!/bin/sh
# Ranks that freeze: the results of the run are printed all the same, and nothing waits for long.
set -u
: "${PACELINE:?}"

skip() {
    echo "skipped: $*"
    exit 77
}

[ -n "${MPIEXEC:-}" ] || skip "built without MPI; Debian's libopenmpi-dev and openmpi-bin have it"
command -v "$MPIEXEC" >/dev/null || skip "there is no $MPIEXEC; Debian's openmpi-bin has it"
case ${SANITIZE:-} in *thread*) skip "thread sanitizer does not see other processes" ;; esac

# As root, on loopback, more ranks than cores: in tests alone. Open MPI's leaks are its own.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
export ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
timeout 60 "$MPIEXEC" -n 2 "$PACELINE" --version >/dev/null 2>err || {
    cat err
    skip "$MPIEXEC starts nothing here"
}
n_failed=0
fail() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}
small='--model softmax --data digits:samples=400,test=50 --batch 8 --eval-samples 100'
# shellcheck disable=SC2016 # for the shell of each rank
each='echo $$ >pid.${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-x}}; exec "$@"'

begin() { # ranks, options of train …
    n=$1
    shift
    rm -f pid.* events
    # shellcheck disable=SC2086 # words by design
    timeout -k 5 50 "$MPIEXEC" -n "$n" sh -c "$each" sh "$PACELINE" train $small --json \
        --events events "$@" >out 2>err &
    job=$!
    tries=0
    until [ "$(grep -c commit events 2>/dev/null)" -gt 3 ] 2>/dev/null || [ $tries = 200 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ $tries -lt 200 ] || fail "$*: no update came: $(cat err)"
}

finish() { # what
    wait "$job"
    status=$?
    kill -CONT "$frozen" 2>/dev/null # the launcher ends it then
    [ $status != 124 ] && [ $status != 137 ] || fail "$1: it did not end"
    [ $status != 0 ] || fail "$1: the exit status is 0"
    grep -q '"updates":' out || fail "$1: no results: $(cat out err)"
    grep -q 'does not answer\|did not' err || fail "$1: not told: $(cat err)"
}

# A worker: barriers go on without it, and at the end the results are there.
begin 4 --method sync --updates 300 --evict 0.5 --delay const:t=0.005
frozen=$(cat pid.3)
kill -STOP "$frozen"
finish "a frozen worker"
grep -q '"updates":300,' out || fail "the run did not get to its end: $(cat out err)"
grep -q '"frozen":1' out || fail "the frozen worker was not counted: $(cat out)"

# It wakes up, and is there at the end.
begin 4 --method sync --time 4 --evict 0.5 --delay const:t=0.005
frozen=$(cat pid.3)
kill -STOP "$frozen"
sleep 1.5
kill -CONT "$frozen"
wait "$job" || fail "a worker that woke up: $(cat err)"
grep -q '"frozen":1' out || fail "a worker that woke up was not counted: $(cat out)"
[ "$(grep -c 'join W3' events)" = 2 ] || fail "it did not join again: $(grep W3 events | tail -3)"

# A second server: --time and SIGTERM end the run.
begin 4 --servers 2 --method async --time 2 --delay const:t=0.005
frozen=$(cat pid.1)
kill -STOP "$frozen"
finish "a frozen server and --time"
begin 4 --servers 2 --method async --time 500 --delay const:t=0.005
frozen=$(cat pid.1)
kill -STOP "$frozen"
sleep 1
kill -TERM "$(cat pid.0)"
finish "a frozen server and SIGTERM"

[ $n_failed = 0 ] && echo "frozen ranks: all as it should be"
[ $n_failed = 0 ]
