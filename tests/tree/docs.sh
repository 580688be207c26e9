#!/bin/sh
# Every command shown in an ```sh block of README.md and docs/ runs. Runs are cut short by flags
# that replace those shown: what is tested is that the command is accepted and does its work. A
# block is a story: its commands run in order, in a folder of their own, and find the files of those
# before.
set -u
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
n=0
blocks=0
failed=0

# commands, one a line, continued lines joined; a line with a colon alone begins a block
cat "$SOURCE_DIR/README.md" "$SOURCE_DIR"/docs/*.md | awk '
    /^```sh/ { inside = 1; print ":"; next }
    /^```/   { inside = 0 }
    inside && sub(/\\$/, "") { kept = kept $0; next }
    inside   { print kept $0; kept = "" }' > "$here/commands"

# few UPDATES: cuts the command to that number of updates, to few samples per evaluation, and to one
# seed if it is a race
few() {
    command=$(printf '%s\n' "$command" | sed -E 's/ --(updates|seeds|eval-samples) [0-9]+//g')
    command="$command --updates $1 --eval-samples 200"
    case $command in *\ race\ *) command="$command --seeds 1" ;; esac
}

while IFS= read -r line; do
    case $line in
    :)
        blocks=$((blocks + 1))
        mkdir "$here/$blocks" || exit 1
        continue
        ;;
    build/paceline*) command="\"\$PACELINE\"${line#build/paceline}" ;;
    awk\ *) command=$line ;; # makes a file
    make\ * | git\ * | "") continue ;;
    *)
        echo "not a paceline or make command: $line"
        failed=$((failed + 1))
        continue
        ;;
    esac
    command=${command%%" # "*}
    n=$((n + 1))
    # a replay without other options is exact, and is left as it is
    case $command in
    *\ train\ *--resume*) few 16 ;;
    *\ race\ *--resume*) ;;
    *\ simulate\ * | *\ train\ * | *\ race\ *--out* | *\ replay\ *\ --*) few 8 ;;
    *\ race\ *)
        few 8
        command="$command --out run-$n"
        ;;
    esac
    # eight updates may end with a loss above its start, and that is status 1
    if ! (cd "$here/$blocks" && eval "$command") > "$here/out" 2>&1 < /dev/null &&
        ! grep -q '^paceline: the run diverged: the loss rose' "$here/out"; then
        echo "failed: $command"
        cat "$here/out"
        failed=$((failed + 1))
    fi
done < "$here/commands"

# a command of docs/claims.md means the same to a shell: outside quotes it has nothing that a shell
# reads, and after its entrants each option has one value
awk -v q="'" '
    !/^    / { next }
    { line = $0; text = $0; gsub(q "[^" q "]*" q, "Q", text) }
    text ~ /[|*;&<>(){}$`"?#!~\\\[\]]/ || index(text, q) {
        print "not quoted for a shell:" line
        next
    }
    {
        n = split(text, word, " ")
        for (i = 1; i <= n && word[i] !~ /^--/; i++) continue
        for (; i <= n; i += 2)
            if (word[i] !~ /^--/ || i == n || word[i + 1] ~ /^--/) {
                print "\"" word[i] "\" is not an option with a value:" line
                break
            }
    }' "$SOURCE_DIR/docs/claims.md" > "$here/out"
if [ -s "$here/out" ]; then
    cat "$here/out"
    failed=$((failed + 1))
fi

# what the README replays with other options has no cancelled tasks, which would bias the replay
for method in $(sed -n 's/^build\/paceline train --method \([^ ]*\) .*--record.*/\1/p' \
    "$SOURCE_DIR/README.md") none; do
    [ "$method" = none ] && continue
    "$PACELINE" simulate --method "$method" --workers 4 --model none --delay exp:mean=1 \
        --updates 100 --json --quiet > "$here/out" 2>&1
    grep -q '"cancelled":0,' "$here/out" && replayed=1 && continue
    echo "the README replays $method, which cancels tasks"
    failed=$((failed + 1))
done
[ "${replayed:-0}" -eq 1 ] || {
    echo "the README replays no recording"
    failed=$((failed + 1))
}

# the time that the README predicts for its first run is the one that is printed
command=$(grep -m 1 "^build/paceline simulate --method abs " "$SOURCE_DIR/README.md")
printed=$(eval "\"\$PACELINE\"${command#build/paceline} --json --quiet" |
    sed -n 's/^[^}]*"time":\([0-9.]*\),"updates".*/\1/p')
grep -qF "The simulation predicts $(printf %.3f "${printed:-0}") s." "$SOURCE_DIR/README.md" || {
    echo "README.md predicts another time than ${printed:-none}, which this prints: $command"
    failed=$((failed + 1))
}

# every file that removes, truncates, renames or overwrites something is named in reliability.md,
# with the reason why that is safe
sed -n '/^## What is removed and overwritten/,/^## Storms/p' "$SOURCE_DIR/docs/reliability.md" \
    > "$here/named"
calls='\bf(d)?open\([^;]*"[wax]|\bopen\([^;]*"[wax]|O_CREAT|O_TRUNC|rmtree|write_(text|bytes)\('
calls="$calls|(^|[^.>_[:alnum:]])((rename|unlink)(at)?|rmdir|remove|f?truncate|creat) ?\([^)]"
calls="$calls|os\.(replace|renames?|remove|removedirs|unlink|rmdir|truncate)\b|\.unlink\("
calls="$calls|shutil\.(copy|move)|torch\.save\("
calls="$calls|TemporaryDirectory"
shell='(^|[ ;&|(])(rm|rmdir|mv|ln|truncate|tee) '
(
    cd "$SOURCE_DIR" || exit
    grep -rlE --include='*.[ch]' --include='*.py' "$calls" src include python bench examples
    grep -rlE "$calls|$shell" scripts examples/deploy Makefile .ci
    find python bench examples -name '*.sh' -exec grep -lE "$shell" {} +
) | sort -u > "$here/writers"
[ "$(wc -l < "$here/writers")" -ge 20 ] || failed=$((failed + 1))
while read -r file; do
    grep -qE "[\`/]${file##*/}[\` ]" "$here/named" && continue
    echo "docs/reliability.md does not name $file, which removes or overwrites:"
    grep -nE "$calls|$shell" "$SOURCE_DIR/$file"
    failed=$((failed + 1))
done < "$here/writers"

# every header of the protocol is explained
for header in $(sed -n 's/.*"\(Paceline-[A-Za-z]*\)".*/\1/p' \
    "$SOURCE_DIR/src/transport/http_wire.h"); do
    grep -q "\`$header[:\`]" "$SOURCE_DIR/docs/network.md" || {
        echo "docs/network.md does not explain $header"
        failed=$((failed + 1))
    }
done

# every test that holds a promise exists
grep -o '`[a-z_]*: test_[a-z0-9_]*`' "$SOURCE_DIR/docs/torch-promises.md" | tr -d '`:' \
    > "$here/promised"
[ -s "$here/promised" ] || failed=$((failed + 1))
while read -r file test; do
    grep -q "def $test(self" "$SOURCE_DIR/tests/python/$file.py" || {
        echo "docs/torch-promises.md: there is no $test in tests/python/$file.py"
        failed=$((failed + 1))
    }
done < "$here/promised"

echo "$n commands in $blocks blocks, $failed failed"
[ "$n" -gt 0 ] && [ "$failed" -eq 0 ]
