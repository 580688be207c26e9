#!/bin/sh
# docs/claims.md, and the numbers of other pages, are those that docs/results gives; a page that has
# drifted is found.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"
python=$(command -v python3) || { echo "skipped: python3 is not installed"; exit 77; }
results() { "$python" scripts/results "$@" >out 2>&1; }

mkdir -p scripts docs src/cli
cp "$SOURCE_DIR/scripts/results" scripts
cp "$SOURCE_DIR/src/cli/claims.txt" src/cli
cp -r "$SOURCE_DIR/docs/results" "$SOURCE_DIR"/docs/*.md docs
cp "$SOURCE_DIR/README.md" .
results --check || fail "the pages are not those of docs/results: $(cat out)"

# every outcome names a commit: that which ran it, or that which added it
grep -E '^(Quick|Full) form: ' docs/claims.md |
    grep -vE '; paceline [0-9.]+ \((added in )?commit [0-9a-f]{10}[,)]' >without
[ -s without ] && fail "outcomes without a commit: $(cat without)"

# an outcome has the commands that made it, and what runs now if that differs; no other has
now='^The commands above ran .*; `paceline reproduce'
grep "$now" docs/claims.md >before
grep -q "$now backup-resnet --full. runs now:$" before ||
    fail "backup-resnet: $(cat before)"
sed -i 's/--updates 20000 --seeds 5/--updates 20001 --seeds 5/' src/cli/claims.txt
results || fail "it could not be written: $(cat out)"
grep "$now" docs/claims.md | diff before - | grep '^[<>]' >new
grep -q '^> The commands above ran at commit 6b9a2e05ad; .* kasync-heavy --quick. runs now:$' new ||
    fail "other updates: $(cat new)"
grep -vq -e '--quick. runs now:$' new && fail "other claims: $(cat new)"
grep -q '^    paceline race ksync:k=7 .* --updates 20001 --seeds 5$' docs/claims.md ||
    fail "the command that runs now"
cp "$SOURCE_DIR/src/cli/claims.txt" src/cli
results || fail "it could not be written: $(cat out)"

# claims.txt says which outcomes are expected, in both forms, and which claims need one
expects() { # WHAT CLAIM WORDS-OF-THE-MESSAGE HOW-MANY-MESSAGES
    cp src/cli/claims.txt kept
    sed -i "/^claim $2\$/,/^  holds/ s/^  expected .*/  expected $1/" src/cli/claims.txt
    results --check && fail "$2 is not expected to be $1, and nobody noticed"
    grep -q "^src/cli/claims.txt expects the $3$" out || fail "the message: $(cat out)"
    [ "$(grep -c 'expects the' out)" -eq "$4" ] || fail "other messages: $(cat out)"
    cp kept src/cli/claims.txt
}
open="in docs/results it is 'cannot be told with"
expects shown adasync-fixed "quick form of adasync-fixed to be shown; $open 5 seeds'" 2
expects shown adasync-fixed "full form of adasync-fixed to be shown; $open 10 seeds'" 2
expects 'shown in full' adasync-fixed "full form of adasync-fixed to be shown; $open 10 seeds'" 1
sed -i '/^claim nodelay-accuracy$/,/^  holds/ s/^  expected .*/  expected not shown/' \
    src/cli/claims.txt
results --check && fail "nodelay-accuracy is shown in full, and nobody noticed"
grep -q 'claims.txt does not expect nodelay-accuracy to be shown in full; it is$' out ||
    fail "the message: $(cat out)"
cp "$SOURCE_DIR/src/cli/claims.txt" src/cli
cp src/cli/claims.txt kept
sed -i 's/^claim ksync-time$/claim another/' src/cli/claims.txt
results --check && fail "a claim has no outcome, and nobody noticed"
grep -q '^docs/results has no outcome of another$' out || fail "the message: $(cat out)"
grep -q '^src/cli/claims.txt has no claim ksync-time; .* from quick.json$' out ||
    fail "the message: $(cat out)"
cp kept src/cli/claims.txt

for page in README.md docs/barriers.md docs/claims.md; do
    cp "$page" kept
    sed -i -E 's/(<!-- quick [^>]*-->)[0-9]/\19/; s/^\| ([a-z_.]+ of .*) \| [0-9]/| \1 | 9/' \
        "$page"
    results --check && fail "a number of $page was changed, and nobody noticed"
    grep -q "^$page differs" out || fail "the message: $(cat out)"
    results || fail "it could not be written: $(cat out)"
    cmp -s "$page" kept || fail "$page was not restored"
done
# an outcome is stored with its date and what it took
"$python" - . <<'END'
import json, sys
claim = json.load(open(sys.argv[1] + "/docs/results/quick.json"))["claims"][0]
outcome = {"form": "quick", "program": "9.9", "machine": "a machine", "date": "2031-01-02",
           "seconds": 12.5}
claim = {k: v for k, v in claim.items() if k not in outcome}
outcome["claims"] = [dict(claim, seconds=12.5, expected=True)]
json.dump(outcome, open(sys.argv[1] + "/new.json", "w"))
END
cp -r docs/results kept-results
results --add new.json || fail "an outcome could not be stored: $(cat out)"
grep -q '^Quick form: .*; paceline 9.9 (.*2031-01-02) on a machine, 12.5 s\.$' \
    docs/claims.md || fail "the page: $(grep '9\.9' docs/claims.md)"
grep -q 'claims of the quick form' docs/claims.md && fail "one claim is not all of them"
rm -r docs/results
mv kept-results docs/results
results || fail "it could not be written: $(cat out)"

# every page with the table of a race, and what is written below it
grep -l '^<!-- race [a-z]* table -->$' README.md docs/*.md >races
[ "$(wc -l <races)" -ge 2 ] || fail "pages with races: $(cat races)"
while read -r page; do
    for change in 's/^\(async.*[1-9]\) ±/\11 ±/' \
        's/ reach a test accuracy / miss a test accuracy /' \
        's/^Paceline .*, commit /Paceline 9, commit /'; do
        cp "$page" kept
        sed -i "$change" "$page"
        cmp -s "$page" kept && continue
        results --check && fail "the race of $page was changed, and nobody noticed"
        results || fail "it could not be written: $(cat out)"
        cmp -s "$page" kept || fail "$page was not restored"
    done
done <races
sed -i 's/"form": "quick"/"form": "full"/; s/"verdict": "shown"/"verdict": "not shown"/' \
    docs/results/quick.json
results --check && fail "an outcome was changed, and nobody noticed"
exit $bad
