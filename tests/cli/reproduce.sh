#!/bin/sh
# paceline reproduce: verdicts on claims of a small file, what is run again and what is not, Ctrl-C,
# and claims of the papers that must fail if a method is not what it should be.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# status, standard output and standard error of the program in $status, out and err
run() {
    "$PACELINE" "$@" >out 2>err
    status=$?
}

works() {
    run "$@"
    [ "$status" -eq 0 ] || fail "paceline $*: status $status, $(cat out err)"
}

refused() {
    words=$1
    shift
    run "$@"
    [ "$status" -ne 0 ] || fail "paceline $*: was not refused"
    grep -q -- "$words" err || fail "paceline $*: \"$(cat err)\" lacks \"$words\""
}

has() {
    grep -q -- "$1" out || fail "the output lacks '$1': $(cat out)"
}

lines() {
    sed 's/"run":"[^"]*",//' "$1" | sort
}

cat >small.txt <<'END'
# a comment
setting times
  race  race ksync:k=2 sync async
        --workers 4 --delay exp:mean=1 --model none
  quick --updates 2000 --seeds 4
  full  --updates 4000 --seeds 4

setting loss
  race  race sync@lr=0.1 sync@lr=0.05 async@lr=1e6 --workers 4 --model quadratic --target-loss 2
  quick --updates 40 --seeds 3
  full  --updates 80 --seeds 3

claim fewer-is-faster
  says     Two of four are faster than four of four.
  paper    nobody 2026
  reports  0.58 and 2.08
  expected shown
  holds    time_per_update of times/ksync:k=2 over times/sync is at most 0.5
  holds    time_per_update of times/ksync:k=2 is 0.583333 within 5 %

claim more-is-faster
  says     The opposite.
  paper    nobody 2026
  reports  nothing
  expected not shown
  holds    time_per_update of times/ksync:k=2 minus times/sync is at least 0

claim exactly
  says     A mean is known to nine digits.
  paper    nobody 2026
  reports  nothing
  expected shown in full
  holds    time_per_update of times/sync is 2.08333333 within 0.0001 %

claim arrives
  says     The best of two rates arrives before a run that diverges.
  paper    nobody 2026
  reports  nothing
  expected shown
  holds    time_to_target of loss/async@lr=1e6 over loss/sync@lr=* is at least 1
  note     A & B < C.
END
small="--claims small.txt --quiet"

echo "-- the list, and what is refused"
works reproduce
has '^ksync-time$'
has ' claims. Run one with'
refused "there is no claim 'nothing'" reproduce nothing
refused 'give one of' reproduce --quick --full
refused "No such file" reproduce --claims absent.txt
sed 's/is at least 0$/is at least/' small.txt >bad.txt
refused "more-is-faster: 'time_per_update of .* is not FIGURE" reproduce --claims bad.txt
sed 's/over times/over tim/' small.txt >bad.txt
refused "there is no setting of" reproduce --claims bad.txt
sed 's/^  paper/  papers/' small.txt >bad.txt
refused "line 15: unknown word 'papers'" reproduce --claims bad.txt

echo "-- verdicts"
# shellcheck disable=SC2086
works reproduce $small --check
has '^fewer-is-faster: shown$'
has '^more-is-faster: not shown$'
has '^exactly: cannot be told with 4 seeds$'
has '^arrives: shown$'
grep -q 'A &amp; B &lt; C.' reproduce/quick.html || fail "the page: $(cat reproduce/quick.html)"
grep -q '"verdict": "not shown"' reproduce/quick.json || fail "quick.json lacks a verdict"
grep -q '"other": "sync@lr=0' reproduce/quick.json || fail "quick.json lacks the best entrant"
# shellcheck disable=SC2086
refused '^paceline: 1 claim that is expected to be shown is not$' reproduce $small --full --check \
    exactly
has 'exactly: cannot be told with 4 seeds, which was expected to be shown'

echo "-- what is there is not run again; what is not there is"
lines reproduce/quick/times/results.jsonl >before
cp reproduce/quick/times/results.jsonl all.jsonl
sed -i 3d reproduce/quick/times/results.jsonl
# shellcheck disable=SC2086
works reproduce fewer-is-faster $small --jobs 1
lines reproduce/quick/times/results.jsonl >after
cmp -s before after || fail "a run that was repeated has another result"
[ "$(grep -c -F -x -f all.jsonl reproduce/quick/times/results.jsonl)" -eq 11 ] ||
    fail "runs with results were run again"
sed 's/--updates 2000/--updates 1000/' small.txt >other.txt
refused "remove 'reproduce/quick/times' to run it anew" reproduce --claims other.txt --quick
# shellcheck disable=SC2086
works reproduce $small --json --quick
python3 -c 'import json; print([c["verdict"] for c in json.load(open("out"))["claims"]])' >verdicts
grep -q "\['shown', 'not shown', 'cannot be told with 4 seeds', 'shown'\]" verdicts ||
    fail "the object: $(cat out)"

echo "-- Ctrl-C"
sed 's/--updates 2000 --seeds 4/--updates 300000 --seeds 9/' small.txt >long.txt
"$PACELINE" reproduce fewer-is-faster --claims long.txt --out cut --jobs 1 >out 2>err &
pid=$!
tries=0
until [ -s cut/quick/times/results.jsonl ] || [ $tries = 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -INT $pid
wait $pid
[ $? -eq 1 ] || fail "interrupted with another status than 1"
grep -q 'interrupted; the same command goes on' err || fail "interrupted: $(cat err)"
[ "$(wc -l <cut/quick/times/results.jsonl)" -lt 27 ] || fail "it was not interrupted"

echo "-- a claim fails if a run is of another method"
# swapped SETTING A B CLAIM: with the results of A and B exchanged, the claim is not shown
swapped() {
    file=reproduce/quick/$1/results.jsonl
    cp "$file" kept
    sed -i "s/\"entrant\":\"$2\"/\"entrant\":\"-\"/; s/\"entrant\":\"$3\"/\"entrant\":\"$2\"/
        s/\"entrant\":\"-\"/\"entrant\":\"$3\"/" "$file"
    refused 'expected to be shown is not' reproduce "$4" --check --quiet
    has "^$4: not shown, which was expected to be shown"
    mv kept "$file"
    works reproduce "$4" --check --quiet
}
works reproduce kasync-heavy sync-over-async --check --quiet
swapped pareto8 kasync:k=7 ksync:k=7 kasync-heavy
swapped shifted8 sync kasync:k=2 sync-over-async
swapped exp8 sync ksync:k=2 sync-over-async
exit $bad
