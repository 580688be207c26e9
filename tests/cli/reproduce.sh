#!/bin/sh
# paceline reproduce: verdicts on claims of a small file, what is run again and what is not, Ctrl-C,
# and claims of the papers that must fail if a method is not what it should be.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

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

setting pair
  race  race sync ksync:k=3 --workers 4 --delay exp:mean=1 --model quadratic --lr 0.1
        --target-loss 2 --updates 400
  quick --seeds 3
  full  --seeds 4

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

claim ratio
  says     A ratio is the factor of the race.
  paper    nobody 2026
  reports  nothing
  expected shown
  holds    time_to_target of pair/sync over pair/ksync:k=3 is at least 1
  holds    time_to_target of pair/ksync:k=3 over pair/sync is at most 1
  holds    time_to_target of loss/sync@lr=0.1 over loss/sync@lr=0.05 is at most 1
END
small="--claims small.txt --quiet"

echo "-- the list, and what is refused"
works reproduce
has '^ksync-time$'
has ' claims. Run one with'
refused "there is no claim 'nothing'" reproduce nothing
refused "did you mean 'ksync-time'?" reproduce ksync-tim
refused 'give one of' reproduce --quick --full
refused "No such file" reproduce --claims absent.txt
sed 's/is at least 0$/is at least/' small.txt >bad.txt
refused "more-is-faster: 'time_per_update of .* is not FIGURE" reproduce --claims bad.txt
sed 's/over times/over tim/' small.txt >bad.txt
refused "there is no setting of" reproduce --claims bad.txt
sed 's/^  paper/  papers/' small.txt >bad.txt
refused "line 21: unknown word 'papers'" reproduce --claims bad.txt
sed '/^  reports  0.58/d' small.txt >bad.txt
refused "claim fewer-is-faster has no line 'reports'; it needs says" reproduce --claims bad.txt

for ending in json html; do
    mkdir -p mine
    echo precious >mine/quick.$ending
    # shellcheck disable=SC2086
    refused "'mine/quick.$ending' is not of paceline reproduce and will not be overwritten" \
        reproduce $small --quick --out mine
    [ "$(ls mine)" = quick.$ending ] && [ "$(cat mine/quick.$ending)" = precious ] ||
        fail "a file of the user: $(ls mine)"
    rm -r mine
done

echo "-- verdicts"
# shellcheck disable=SC2086
works reproduce $small --check
has '^fewer-is-faster: shown$'
has '^more-is-faster: not shown$'
has '^exactly: cannot be told with 4 seeds$'
has '^arrives: shown$'
grep -q 'A &amp; B &lt; C.' reproduce/quick.html || fail "the page: $(cat reproduce/quick.html)"
grep -q '"verdict": "not shown"' reproduce/quick.json || fail "quick.json lacks a verdict"
grep -q '^ "date": "20[0-9-]*",' reproduce/quick.json || fail "quick.json lacks the date"
[ "$(grep -c '"seconds": [0-9]' reproduce/quick.json)" -ge 4 ] ||
    fail "quick.json lacks seconds: $(grep '"seconds"' reproduce/quick.json)"
grep -q '"other": "sync@lr=0' reproduce/quick.json || fail "quick.json lacks the best entrant"
# shellcheck disable=SC2086
has 'over pair/ksync:k=3 is at least 1: [0-9.]* ([0-9.]* to [0-9.]*), shown$'
python3 - <<'END' || fail "the object has other words than the table: $(cat out)"
import json
for claim in json.load(open("reproduce/quick.json"))["claims"]:
    for r in claim["required"]:
        assert f"      {r['holds']}: {r['words']}, {r['verdict']}\n" in open("out"), r
END
python3 - <<'END' || fail "a ratio is not the factor of the race"
import json
claim = [c for c in json.load(open("reproduce/quick.json"))["claims"] if c["name"] == "ratio"][0]
above, below, bound = claim["required"]
for setting, ours, entrant in ("pair", above, "ksync:k=3"), ("loss", bound, "sync@lr=0.05"):
    ranking = json.load(open(f"reproduce/quick/{setting}/race.json"))["ranking"]
    factor = [row["factor"] for row in ranking if row["method"] == entrant][0]
    assert {k: ours[k] for k in factor.keys() & ours.keys()} == {
        k: factor[k] for k in factor.keys() & ours.keys()}, (ours, factor)
    assert ours["half"] is None and ours["high"] > ours["mean"], ours
assert bound["low"] is None and bound["bound"] == "at most", bound
assert above["low"] < above["mean"], above
assert abs(above["mean"] * below["mean"] - 1) < 1e-9, (above, below)
END
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
refused "remove 'reproduce/quick/times' to run it again" reproduce --claims other.txt --quick
# shellcheck disable=SC2086
works reproduce $small --json --quick
python3 -c 'import json; print([c["verdict"] for c in json.load(open("out"))["claims"]])' >verdicts
grep -q "\['shown', 'not shown', 'cannot be told with 4 seeds', 'shown', 'shown'\]" verdicts ||
    fail "the object: $(cat out)"

echo "-- the command of a setting can be pasted into a shell"
sed "s/--delay exp:mean=1/--delay 2*const:t=1|2*const:t=2/" small.txt >mixed.txt
works reproduce fewer-is-faster --claims mixed.txt --out mixed
line="paceline race .* --delay '2\*const:t=1|2\*const:t=2' --model none"
grep -q "^setting times: $line" err || fail "not quoted in the progress: $(cat err)"
grep -q "$line" mixed/quick.json || fail "not quoted in the object: $(cat mixed/quick.json)"
grep -q "<pre>$line" mixed/quick.html || fail "not quoted on the page: $(cat mixed/quick.html)"
pasted=$(sed -n 's/^setting times: paceline //p' err)
eval "works $pasted --out pasted"
lines mixed/quick/times/results.jsonl >before
lines pasted/results.jsonl >after
cmp -s before after || fail "the command that was pasted has other results"

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
[ $? -eq 130 ] || fail "interrupted with another status than 130"
grep -q 'interrupted; the same command goes on' err || fail "interrupted: $(cat err)"
[ "$(wc -l <cut/quick/times/results.jsonl)" -lt 27 ] || fail "it was not interrupted"

echo "-- a claim fails if a policy or a rule does not do what the paper says"
mutants=$BUILD_DIR/tests/paceline-mutants
# the papers' claims, with fewer updates or seeds
sed 's/--updates 20000/--updates 3000/; s/within 1 %/within 4 %/
    /^setting gap32$/,/quick/ s/--seeds 5/--seeds 3/
    /^setting distance40$/,/quick/ s/--updates 2000/--updates 500/' \
    "$SOURCE_DIR/src/cli/claims.txt" >papers.txt
papers="--check --quiet --claims papers.txt --out mutant"
while read -r claim mutant; do
    rm -rf mutant
    # shellcheck disable=SC2086
    MUTANT=none "$mutants" reproduce "$claim" $papers >out 2>err ||
        fail "no mutant: $(cat out err)"
    rm -r mutant
    # shellcheck disable=SC2086
    MUTANT=$mutant "$mutants" reproduce "$claim" $papers >out 2>err &&
        fail "$claim is shown by a mutant of $mutant"
    has "^$claim: not shown, which was expected to be shown"
    grep -q '^paceline: 1 claim that is expected to be shown is not$' err || fail "$(cat err)"
done <<'END'
ksync-time ksync
kasync-time kasync
kbatchasync-time kbatchasync
gap-aware-trains gap
distance-rate distance
easgd-stability elastic
END

echo "-- several processes share a race: tasks of a Slurm array, ranks"
task() { # NUMBER of how many, command …
    n=$1 all=$2
    shift 2
    SLURM_ARRAY_TASK_ID=$((n + 4)) SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_COUNT=$all \
        "$PACELINE" "$@" >"out.$n" 2>"err.$n"
}
timing='race ksync:k=2 sync async --workers 4 --delay exp:mean=1 --model none --updates 500
    --seeds 3'
tuned='race sync async --workers 4 --model quadratic --target-loss 2 --time 100 --seeds 2'
for race in "$timing" "$tuned"; do
    rm -rf alone shared
    # shellcheck disable=SC2086
    works $race --out alone
    pids=
    for n in 1 2 3; do
        # shellcheck disable=SC2086
        task $n 3 $race --out shared &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || fail "a share of '$race' failed: $(cat err.*)"
    done
    lines alone/results.jsonl >before
    lines shared/results.jsonl >after
    cmp -s before after || fail "shares of '$race' have other results"
    [ "$(cat out.1 out.2 out.3 | grep -c '^plot:')" -le 1 ] || fail "several processes show it"
    [ "$(cat out.1 out.2 out.3 | grep -c '^method ')" -eq 1 ] || fail "not shown: $(cat err.*)"
    [ "$(grep -c '"time_to_target"' alone/race.json)" -eq \
        "$(grep -c '"time_to_target"' shared/race.json)" ] || fail "rates that were tried are lost"
done
sed -i 2d shared/results.jsonl
# shellcheck disable=SC2086
task 1 2 $tuned --out shared
# shellcheck disable=SC2086
task 2 2 $tuned --out shared
lines shared/results.jsonl >after
cmp -s before after || fail "what was missing was not run again"
for n in 2 1; do
    # shellcheck disable=SC2086
    task $n 2 reproduce fewer-is-faster $small --out divided || fail "reproduce: $(cat err.$n)"
done
grep -q . out.2 && fail "verdicts without all results: $(cat out.2)"
grep -q '^fewer-is-faster: shown$' out.1 || fail "no verdict: $(cat out.1 err.1)"
if [ -n "${MPIEXEC:-}" ] && command -v "$MPIEXEC" >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1
    # shellcheck disable=SC2086
    "$MPIEXEC" -n 3 "$PACELINE" reproduce $small --quick --out ranks >out 2>err ||
        fail "ranks: $(cat err)"
    [ "$(grep -c '^fewer-is-faster: shown$' out)" -ge 1 ] || fail "ranks: $(cat out err)"
fi
exit $bad
