#!/bin/sh
# docs/claims.md, and the numbers of other pages, are those that docs/results gives; a page that has
# drifted is found.
set -u
: "${SOURCE_DIR:?}" "${PACELINE:?}"
python=
for p in /usr/bin/python3 python3; do
    command -v $p >/dev/null && python=$p && break
done
[ -n "$python" ] || { echo "python3 is missing"; exit 77; }
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
results() { "$python" "$here/scripts/results" "$@" >"$here/out" 2>&1; }

mkdir "$here/scripts" "$here/docs"
cp "$SOURCE_DIR/scripts/results" "$here/scripts"
cp -r "$SOURCE_DIR/docs/results" "$SOURCE_DIR"/docs/*.md "$here/docs"
cp "$SOURCE_DIR/README.md" "$here"
results --check || fail "the pages are not those of docs/results: $(cat "$here/out")"

# every claim of the program has a stored outcome, with the verdict that is expected
"$PACELINE" reproduce | sed -n 's/^\([a-z0-9-]\{1,\}\)$/\1/p' | while read -r claim; do
    grep -q "\"name\": \"$claim\"" "$here/docs/results/quick.json" || echo "$claim"
done >"$here/missing"
[ ! -s "$here/missing" ] || fail "docs/results lacks $(cat "$here/missing")"
"$python" - "$here/docs/results/quick.json" <<'END' || fail "a stored outcome is not as expected"
import json, sys
bad = [c["name"] for c in json.load(open(sys.argv[1]))["claims"]
       if c["expected"] and c["verdict"] != "shown"]
print(*bad)
sys.exit(bool(bad))
END

for page in README.md docs/barriers.md docs/claims.md; do
    cp "$here/$page" "$here/kept"
    sed -i -E 's/(<!-- quick [^>]*-->)[0-9]/\19/; s/^\| ([a-z_.]+ of .*) \| [0-9]/| \1 | 9/' \
        "$here/$page"
    results --check && fail "a number of $page was changed, and nobody noticed"
    grep -q "^$page differs" "$here/out" || fail "the message: $(cat "$here/out")"
    results || fail "it could not be written: $(cat "$here/out")"
    cmp -s "$here/$page" "$here/kept" || fail "$page was not restored"
done
sed -i 's/^\(async .*\) 0\.5/\1 0.6/' "$here/README.md"
results --check && fail "the table of the README was changed, and nobody noticed"
results || fail "it could not be written: $(cat "$here/out")"
sed -i 's/"form": "quick"/"form": "full"/; s/"verdict": "shown"/"verdict": "not shown"/' \
    "$here/docs/results/quick.json"
results --check && fail "an outcome was changed, and nobody noticed"
exit $failed
