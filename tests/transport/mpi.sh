#!/bin/sh
# Runs on the ranks of a job, on this machine with more ranks than cores: the suites of transports
# and of real runs, and the command line under mpirun.
. "${SOURCE_DIR:?}/tests/shell/mpi.sh"
"$MPIEXEC" --version 2>&1 | head -1

# --- the suites
if [ -x "$BUILD_DIR/tests/mpi_ranks" ]; then
    for shared in yes no; do # vectors in memory that ranks share, and sent as between hosts
        for test in test_concurrent test_concurrent_ranges; do
            : >notes
            PACELINE_MPI_SHARED=$shared PL_TEST_SHARED=$work/notes ranks 5 \
                "$BUILD_DIR/tests/$test" || fail "$test under mpirun, shared: $shared"
        done
        PACELINE_MPI_SHARED=$shared ranks 5 "$BUILD_DIR/tests/mpi_ranks" ||
            fail "mpi_ranks under mpirun, shared: $shared"
    done
    ranks 7 "$BUILD_DIR/tests/mpi_ranks" servers || fail "mpi_ranks servers under mpirun"
fi

# --- the command line: rank 0 alone speaks, whatever the policy (mpi_ranks has every method): one
# that waits for all, for some and for slow ones, with gradients that are kept, with weights at the
# workers, with pairs of workers, and with ranges of rows
# shellcheck disable=SC2086 # words by design
for method in sync kbatchasync ssp krum easgd ad-psgd fdsgd; do
    case $method in
    fdsgd) learns='--model mf:k=6 --data lowrank:users=90,items=70,ratings=4000' ;;
    *) learns=$small ;;
    esac
    ranks 5 "$PACELINE" train --method "$method" $learns --updates 20 --json >out 2>err ||
        fail "train --method $method: $(cat err)"
    [ "$(wc -l <out)" = 1 ] || fail "$method: not one line of JSON: $(cat out)"
    # what MPI says about the machine is its own affair, and a busy one makes ranks slow
    grep "paceline: " err | grep -qv "is slow:" && fail "$method said: $(cat err)"
    grep -q '"workers":4,.*"updates":20,' out || fail "$method: $(cat out)"
    [ ! -r /proc/self/schedstat ] || ! grep -q '"core_wait":null' out ||
        fail "$method: waiting for a core was not measured: $(cat out)"
done

refused() { # what it must say, arguments …
    words=$1
    shift
    ranks 3 "$PACELINE" train "$@" >out 2>err && fail "train $* was not refused"
    [ "$(grep -c '^paceline: ' err)" = 1 ] || fail "train $*: not one sentence: $(cat err)"
    grep -qe "$words" err || fail "train $* said: $(cat err)"
    [ -s out ] && fail "train $* printed: $(cat out)"
}
refused '--workers 9 needs 10 ranks (1 server + 9 workers), but 3 were started' --workers 9
refused 'use servers 1' --servers 2 --method dsgd --model mf --data lowrank:ratings=4000
refused 'no option --nonsense' --nonsense 1
refused 'data' --data nowhere
refused '--respawn is for workers' --respawn
refused 'use servers 1' --method sgp --servers 2
"$PACELINE" train --transport mpi --updates 1 2>err && fail "one rank was not refused"
grep -q 'mpirun -n' err || fail "one rank: $(cat err)"

# --- a command of one process: rank 0 runs it, and warns
ranks 3 "$PACELINE" simulate --model none --updates 20 --json >out 2>err || fail "$(cat err)"
[ "$(wc -l <out)" = 1 ] || fail "simulate: not one line of JSON: $(cat out)"
[ "$(grep -c '^paceline: warning: this command uses one process' err)" = 1 ] ||
    fail "simulate on 3 ranks said: $(cat err)"

# --- a rank that is killed: the job fails, and goes on with another number of ranks
newest() {
    find saved -name '*.safetensors' | sort | tail -1
}
has_saved() { # something newer than this
    [ "$(newest)" != "$1" ]
}
saving="--method async --checkpoint saved --checkpoint-every 20 --resume auto"
# shellcheck disable=SC2086
ranks 4 sh -c "$each" sh "$PACELINE" train $saving $small --updates 1000000 \
    --delay exp:mean=0.002 --json >out 2>err &
job=$!
await has_saved ''
kill -KILL "$(cat pid.2)"
wait $job && fail "a rank was killed and the job did not fail"
last=$(newest)
[ -n "$last" ] || fail "no checkpoint was there when a rank was killed"
# shellcheck disable=SC2086
ranks 3 sh -c "$each" sh "$PACELINE" train $saving $small --updates 1000000 --json >out 2>err &
job=$!
await has_saved "$last" || fail "no checkpoint came after it was resumed: $(cat err)"
kill -TERM "$(cat pid.0)"
wait $job || fail "SIGTERM to rank 0 was no good end: $(cat err)"
grep -q '"workers":2,' out || fail "resumed with another number of ranks: $(cat out err)"
grep -q '"running":' out || fail "no summary: $(cat out)"

# --- clients are ranks, under each local rule that needs no data at the server, and with none; what
# a client does depends on the rule, so of policies there are those that wait, cancel and send
# pairs
"${CC:-cc}" ${SANITIZE:+-fsanitize=$SANITIZE} -std=c99 "$SOURCE_DIR/docs/examples/external.c" \
    -I"$SOURCE_DIR/include" -L"$BUILD_DIR" -Wl,-rpath,"$BUILD_DIR" -lpaceline -lm -o external ||
    fail "the example of a client does not compile"
clients() { # arguments of the server …
    ranks 1 sh -c "$each" sh "$PACELINE" train --lr 0.01 --json "$@" : -n 3 ./external mpi: \
        >out 2>err
}
n_missed=0
missed() { # seen at a load of 22: Open MPI does not notice that a rank has finalized
    n_missed=$((n_missed + 1))
    [ $n_missed = 1 ] && grep -q "exiting improperly" err
}
n_runs=0
one_of_each() { # the first method with each rule, and some policies
    "$PACELINE" list method | awk '
        function word_after(flag) {
            return match(text, " " flag " [a-z-]+") ? substr(text, RSTART, RLENGTH) : ""
        }
        function look() {
            gsub(/ +/, " ", text) # of wrapped lines
            policy = word_after("--policy")
            rule = word_after("--local")
            some = method ~ /^(sync|kbatchsync|sgp)$/
            if (policy rule != "" && (!seen[rule]++ || some)) print method
        }
        /^  [a-z]/ { look(); method = $1; text = "" }
        { text = text " " $0 }
        END { look() }'
}
for method in $(one_of_each); do
    case $method in zeno++ | fdsgd | dsgd | fpsgd) continue ;; esac
    for shared in yes no; do
        [ $shared = yes ] || case $method in sync | kbatchsync | easgd | sgp) ;; *) continue ;; esac
        PACELINE_MPI_SHARED=$shared clients --model external:dim=2 --method "$method" \
            --updates 20 --min-workers 3 ||
            missed || fail "clients under $method, shared: $shared: $(cat err)"
        grep -q '"workers":3,.*"updates":20,' out || fail "clients under $method: $(cat out err)"
        n_runs=$((n_runs + 1))
    done
done
[ $n_runs -ge 15 ] || fail "only $n_runs runs of clients"
rm -rf saved
# shellcheck disable=SC2086
clients --model external:dim=2 $saving --updates 1000000 &
job=$!
await has_saved ''
kill -TERM "$(cat pid.0)"
wait $job || fail "SIGTERM to the server of clients was no good end: $(cat err)"
clients --checkpoint saved --resume auto --updates 1 || : # who comes late finds no server
grep -q 'nothing left to do' err || fail "clients resumed, and: $(cat err)"
clients --model external:dim=2 --servers 2 && fail "clients of two servers were not refused"
[ "$(grep -c '^paceline: ' err)" = 1 ] || fail "two servers: not one sentence: $(cat err)"

# --- where it runs can be said
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$PACELINE" train --transport shm --workers 2 \
    --model quadratic --updates 5 --json 2>err | grep -q '"workers":2' || fail "shm: $(cat err)"

finish_test mpi
