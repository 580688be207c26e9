#!/bin/sh
# The quick form of scripts/auto-suite prints a line per scenario and a summary, and method auto
# reaches the target wherever a fixed choice does. Simulated times do not depend on the machine.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

suite() { "$SOURCE_DIR/scripts/auto-suite" "$PACELINE" --quick --folder suite 2>err; }
suite >out || fail "auto-suite: $(cat err)"
[ "$(grep -c '^\(exp\|trace\) .* softmax ' out)" -eq 2 ] || fail "not two scenarios: $(cat out)"
grep -q '^geometric mean of T_auto/T_best [0-9]' out || fail "no summary: $(cat out)"
grep -q '^not reached although a fixed arm did: 0 ' out || fail "auto fails: $(cat out)"
grep -q ' inf ' out && fail "nothing was reached: $(cat out)"

echo "-- results of fixed arms are used again, and the same comes out"
suite >again || fail "again: $(cat err)"
cmp out again || fail "another result: $(cat again)"

echo "-- the page is what the stored results say"
mkdir -p tree/scripts tree/docs/decisions
cp "$SOURCE_DIR/scripts/auto-suite" tree/scripts
cp -r "$SOURCE_DIR/docs/results" tree/docs
cp "$SOURCE_DIR/docs/decisions/auto.md" tree/docs/decisions
tree/scripts/auto-suite --check >out || fail "docs/decisions/auto.md: $(cat out)"
sed -i 's/^| exp | 1 | digits | /&9/' tree/docs/decisions/auto.md
tree/scripts/auto-suite --check >out && fail "a number was changed, and nobody noticed"
grep -q '^docs/decisions/auto.md differs' out || fail "$(cat out)"
tree/scripts/auto-suite --docs || fail "the page could not be written"
cmp tree/docs/decisions/auto.md "$SOURCE_DIR/docs/decisions/auto.md" || fail "another page"

echo "-- what is printed is stored in a new file, as the page is made from"
"$SOURCE_DIR/scripts/auto-suite" "$PACELINE" --quick --folder suite --json new.json >out 2>err ||
    fail "--json: $(cat err)"
printf '[%s]' "$(cat new.json)" >tree/docs/results/auto.json
tree/scripts/auto-suite --docs || fail "the new results make no page"
grep -q "$(sed -n 's/^geometric mean of .* \([0-9.]*\) (aim.*/^| geometric .* | \1 | \1 |/p' out)" \
    tree/docs/decisions/auto.md || fail "the geometric mean on the page: $(cat out)"
"$SOURCE_DIR/scripts/auto-suite" "$PACELINE" --quick --folder suite --json new.json >out 2>err &&
    fail "a file was overwritten"
grep -q 'new.json exists' err || fail "$(cat err)"

echo "-- Ctrl-C"
python3 - "$SOURCE_DIR/scripts/auto-suite" "$PACELINE" <<'END' 2>err
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may ignore for children
suite = subprocess.Popen([*sys.argv[1:], "--folder", "stopped"], stdout=subprocess.PIPE)
suite.stdout.readline()  # the heading: the first race begins
suite.send_signal(signal.SIGINT)
sys.exit(suite.wait() != 130)
END
[ $? -eq 0 ] || fail "an interrupted suite: $(cat err)"
grep -q '^auto-suite: interrupted' err || fail "$(cat err)"
grep -q Traceback err && fail "$(cat err)"

echo "-- a folder with files of others"
mkdir other
echo "a user's" >other/burst
"$SOURCE_DIR/scripts/auto-suite" "$PACELINE" --quick --folder other >out 2>err &&
    fail "it writes into a folder with files of others"
grep -q 'other/burst is not of this script; give another --folder' err || fail "$(cat err)"
[ "$(cat other/burst)" = "a user's" ] || fail "a file was overwritten"

echo "-- what it is not made for"
"$PACELINE" simulate --method auto:arms=ksync+ssp --model none >out 2>err && fail "ssp is an arm"
grep -q "policy 'ssp' has no K; choose from others" err || fail "$(cat err)"
for arms in '' ksync+ +ksync; do
    "$PACELINE" simulate --method "auto:arms=$arms" --model none >out 2>err && fail "no arm: $arms"
    grep -q "arms '$arms' has an empty name; write names of policies with + between them" err ||
        fail "$(cat err)"
done

echo "-- arms without the policy that a run begins with"
"$PACELINE" simulate --method auto:arms=ksync+kasync --workers 4 --data digits --updates 200 \
    >out 2>err || fail "$(cat err)"
grep -q '^  final policy  *\(ksync\|kasync\):k=' out || fail "not an arm: $(cat out)"
exit $bad
