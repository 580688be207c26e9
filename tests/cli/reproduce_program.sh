#!/bin/sh
# paceline reproduce: settings that another program runs. What it needs may be missing; it may fail,
# be interrupted and go on. Its results are judged as those of a race, and a best rate at an edge
# of those tried proves nothing.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# Accuracies and times by seed, for entrants NAME@lr=RATE: best at 0.2, and b 0.1 better than a.
cat >program <<'END'
#!/bin/sh
echo "$*" >>calls
[ ! -e missing ] || { echo 'a line before'; cat missing; exit 77; }
[ ! -e failing ] || exit 3
[ ! -e waiting ] || { : >waits; until [ -e going ]; do sleep 0.1; done; }
entrants=
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=$2 ;;
    --seeds) seeds=$2 ;;
    [!-]*=*) entrants="$entrants $1" ;;
    esac
    shift
done
mkdir -p "$out"
for entrant in $entrants; do
    for seed in $(seq "$seeds"); do
        awk -v e="$entrant" -v s="$seed" 'BEGIN {
            rate = e
            sub(/.*=/, "", rate)
            off = (rate > 0.2 ? rate - 0.2 : 0.2 - rate) + (e ~ /^a/ ? 0.1 : 0) + s / 1000
            printf "{\"entrant\":\"%s\",\"seed\":%d,\"diverged\":false,", e, s
            printf "\"machine\":\"a large one\","
            printf "\"result\":{\"test_accuracy\":%g,\"time_to_target\":%g}}\n", 0.8 - off, 10 + off
        }' >>"$out/results.jsonl"
    done
    [ ! -e sleeping ] || exec sleep 60
done
END
chmod +x program
holds() { # NAME RATES-OF-a RATES-OF-b FIGURE "of a" HOW "of b" RANGE
    printf 'setting s%s\n  program ./program' "$1"
    for rate in $2; do printf ' a@lr=%s' "$rate"; done
    for rate in $3; do
        case $rate in
        b*) printf ' %s' "$rate" ;;
        *) printf ' b@lr=%s' "$rate" ;;
        esac
    done
    printf '\n  full --seeds 3\n\nclaim c%s\n  says It.\n  paper nobody\n' "$1"
    printf '  reports nothing\n  expected shown\n  holds %s of s%s/%s %s s%s/%s is %s\n\n' \
        "$4" "$1" "$5" "$6" "$1" "$7" "$8"
}
all='0.1 0.2 0.4'
{
    holds inside "$all" "$all" test_accuracy 'b@lr=*' minus 'a@lr=*' 'at least 0.05'
    # what a better rate of a could change, and what it could not
    holds low "0.2 0.4" "$all" test_accuracy 'b@lr=*' minus 'a@lr=*' 'at least 0.05'
    holds high "0.1 0.2" "$all" test_accuracy 'b@lr=*' minus 'a@lr=*' 'at least 0.05'
    holds not "0.1 0.2" "$all" test_accuracy 'b@lr=*' minus 'a@lr=*' 'at least 0.2'
    holds worse "$all" "0.1 0.2" test_accuracy 'b@lr=*' minus 'a@lr=*' 'at least 0.2'
    holds time "$all" "0.2 0.4" time_to_target 'a@lr=*' over 'b@lr=*' 'at least 1'
    holds slow "0.2 0.4" "$all" time_to_target 'a@lr=*' over 'b@lr=*' 'at least 1'
    holds given "0.2" "$all" test_accuracy 'b@lr=*' minus 'a@lr=0.2' 'at least 0.05'
    holds untuned "$all" "0.1 0.4 b:rate=0.2" test_accuracy 'b*' minus 'a@lr=*' 'at most 0.15'
    printf 'setting race\n  race race sync async --model none --workers 2\n'
    printf '  quick --updates 40 --seeds 2\n  full --updates 50 --seeds 2\n\n'
    printf 'claim races\n  says It.\n  paper nobody\n  reports nothing\n  expected shown\n'
    printf '  holds time_per_update of race/sync is at least 0\n'
} >claims.txt
claims="--claims claims.txt --quiet"

echo "-- the list and the help say which claims another program runs"
works reproduce --claims claims.txt
[ "$(sed -n '/^cinside$/,/^clow$/p' out | grep -c -e '^    runs ./program$' \
    -e '^    has no quick form: give --full$')" -eq 2 ] || fail "the list: $(cat out)"
sed -n '/^races$/,$p' out | grep -q -e ' runs ' -e ' form: ' && fail "the list: $(cat out)"
works reproduce --help
has 'races, or commands of other programs'

echo "-- what a program needs is missing"
echo 'there is no GPU' >missing
# shellcheck disable=SC2086
works reproduce $claims --full --check
has '^cinside: not run: there is no GPU$'
has '^races: shown$'
has '^page: reproduce/full.html   curves: paceline report reproduce/full/race$'
grep -q '"missing": "there is no GPU"' reproduce/full/sinside/setting.json || fail "what is missing"
# shellcheck disable=SC2086
refused '^paceline: setting sinside cannot be run here: there is no GPU$' \
    reproduce $claims --full cinside
rm missing
# shellcheck disable=SC2086
works reproduce $claims --quick --check
has '^cinside: not run: it has no quick form$'
# shellcheck disable=SC2086
refused "^paceline: claim cinside has no quick form; type 'paceline reproduce cinside --full'$" \
    reproduce $claims cinside
sed 's/^  full --seeds 3//' claims.txt >bad.txt
refused 'setting sinside needs race or program, and quick or full' reproduce --claims bad.txt

echo "-- a program that cannot be started has failed, whether its claim is named or not"
sed 's|\./program|./absent|' claims.txt >absent.txt
for name in cinside ''; do
    # shellcheck disable=SC2086
    run reproduce --claims absent.txt --quiet --full $name --out other
    [ "$status" -eq 1 ] || fail "status $status without the program"
    has '^cinside: no results, which was expected to be shown$'
    grep -q "^paceline: './absent' cannot be started: No such file" err || fail "$(cat err)"
    grep -q "^paceline: setting sinside: its program ended with status 127$" err ||
        fail "$(cat err)"
done

echo "-- bench/deep.py: PyTorch is missing if it is not there, not if it is broken"
if python=$(command -v python3); then
    mkdir broken
    deep() { # STATUS LINE-OF-A-torch.py
        echo "$2" >broken/torch.py
        PYTHONPATH=broken "$python" "$SOURCE_DIR/bench/deep.py" async --epochs 1 >out 2>err
        status=$?
        [ $status -eq "$1" ] || fail "status $status with '$2': $(cat out err)"
    }
    deep 77 'raise ModuleNotFoundError("No module named torch", name="torch")'
    has '^PyTorch is not installed'
    deep 1 'raise ImportError("libtorch.so: cannot open shared object file", name="torch")'
    deep 1 'import a_module_that_torch_needs'
fi

echo "-- a program that fails, and one that is interrupted"
: >failing
# shellcheck disable=SC2086
run reproduce $claims --full cinside
[ "$status" -eq 1 ] || fail "status $status after a program that failed"
has '^cinside: no results, which'
grep -q '^paceline: setting sinside: its program ended with status 3$' err || fail "$(cat err)"
rm failing
: >sleeping
# shellcheck disable=SC2086
"$PACELINE" reproduce $claims --full cinside >out 2>err &
pid=$!
tries=0
until [ -s reproduce/full/sinside/results.jsonl ] || [ $tries = 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "interrupted with another status than 130"
grep -q 'interrupted; the same command goes on' err || fail "interrupted: $(cat err)"
rm -r sleeping reproduce/full/sinside/results.jsonl

echo "-- verdicts"
# shellcheck disable=SC2086
run reproduce $claims --full --check
[ "$status" -eq 1 ] || fail "status $status: $(cat err)"
edge='cannot be told: the best rate is the lowest or the highest of those tried'
has '^cinside: shown$'
has "^clow: $edge, which was expected to be shown$"
has "^chigh: $edge, which"
has '^cnot: not shown, which'
has "^cworse: $edge, which"
has '^ctime: shown$'
has "^cslow: $edge, which"
has '^cgiven: shown$'
has '^cuntuned: shown$'
grep -q '^   "machine": "a large one"' reproduce/full.json || fail "the machine of the program"
grep -q '"./program a@lr=0.1 .* --seeds 3"' reproduce/full.json || fail "the command"

echo "-- what is complete is not run again, and not where the program is"
wc -l <calls >before
: >failing
# shellcheck disable=SC2086
works reproduce $claims --full cinside
has '^cinside: shown$'
has '^page: reproduce/full.html$' # a program has no curves
wc -l <calls | cmp -s before - || fail "it was run again"
sed 's/--seeds 3/--seeds 4/' claims.txt >other.txt
refused "remove 'reproduce/full/sinside' to run it again" \
    reproduce --claims other.txt --full cinside
rm failing

echo "-- several processes share the settings"
rm calls
for n in 1 2 0; do
    # shellcheck disable=SC2086
    SLURM_ARRAY_TASK_ID=$n SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_COUNT=3 \
        "$PACELINE" reproduce $claims --full cinside ctime chigh --out shared >out.$n 2>err.$n ||
        fail "share $n: $(cat err.$n)"
done
[ "$(wc -l <calls)" -eq 3 ] || fail "run more than once: $(cat calls)"
grep -q '^cinside: shown$' out.0 || fail "no verdict: $(cat out.0 err.0)"

echo "-- a process concludes if what it passed is complete, or missing, by the time it ends"
task() { # NUMBER of 2, claims …
    n=$1
    shift
    # shellcheck disable=SC2086
    SLURM_ARRAY_TASK_ID=$n SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_COUNT=2 \
        "$PACELINE" reproduce $claims --full "$@" >out.$n 2>err.$n
}
grep -B99 -m2 '^  holds' claims.txt >two.txt
claims="--claims two.txt --quiet --out passed"
: >waiting
task 1 & # passes cinside, which is not there, and waits in clow
pid=$!
tries=0
until [ -e waits ] || [ $tries = 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
[ -e waits ] || fail "task 1 does not wait: $(cat out.1 err.1)"
echo 'there is no GPU' >missing
task 0 || fail "task 0: $(cat err.0)"
grep -q . out.0 && fail "verdicts without all results: $(cat out.0)"
rm missing
: >going
wait $pid || fail "task 1: $(cat err.1)"
grep -q '^cinside: not run: there is no GPU$' out.1 || fail "no verdict: $(cat out.1 err.1)"
grep -q '^clow: cannot be told' out.1 || fail "no verdict: $(cat out.1 err.1)"
task 0 cinside || fail "task 0, again: $(cat err.0)"
grep -q '^cinside: shown$' out.0 || fail "nothing is missing any more: $(cat out.0 err.0)"

echo "-- if all is there already, one process concludes"
rm -r passed/full.json
for n in 0 1; do task $n || fail "task $n: $(cat err.$n)"; done
[ -e passed/full.json ] || fail "none did"
[ "$(cat out.0 out.1 | grep -c '^cinside: shown$')" -eq 1 ] || fail "it did not: $(cat out.0)"
exit $bad
