#!/bin/sh
# Every command shown in an ```sh block of README.md and docs/ runs. Runs are cut short by flags put
# behind those shown: what is tested is that the command is accepted and does its work.
set -u
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
n=0
failed=0

# commands, one a line, continued lines joined
cat "$SOURCE_DIR/README.md" "$SOURCE_DIR"/docs/*.md | awk '
    /^```sh/ { inside = 1; next }
    /^```/   { inside = 0 }
    inside && sub(/\\$/, "") { kept = kept $0; next }
    inside   { print kept $0; kept = "" }' > "$here/commands"

while IFS= read -r line; do
    case $line in
    build/paceline*) command="\"\$PACELINE\"${line#build/paceline}" ;;
    make\ * | "") continue ;;
    *)
        echo "not a paceline or make command: $line"
        failed=$((failed + 1))
        continue
        ;;
    esac
    command=${command%%" # "*}
    n=$((n + 1))
    case $command in
    *\ simulate\ *) command="$command --updates 20" ;;
    *\ race\ *) command="$command --updates 20 --seeds 1 --out run-$n" ;;
    esac
    if ! (cd "$here" && eval "$command") > "$here/out" 2>&1; then
        echo "failed: $command"
        cat "$here/out"
        failed=$((failed + 1))
    fi
done < "$here/commands"

echo "$n commands, $failed failed"
[ "$n" -gt 0 ] && [ "$failed" -eq 0 ]
