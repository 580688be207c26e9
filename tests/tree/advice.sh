#!/bin/sh
# What `paceline plan` recommends is within 20 % of the best in simulated races, or it says that it
# cannot know: scripts/advice, on few laws and problems.
set -u
: "${PACELINE:?}" "${SOURCE_DIR:?}"
python=
for p in /usr/bin/python3 python3; do
    command -v $p >/dev/null && python=$p && break
done
[ -n "$python" ] || { echo "python3 is missing"; exit 77; }
"$python" "$SOURCE_DIR/scripts/advice" --quick "$PACELINE" const:t=1 \
    pareto:shape=1.5,scale=1 >out.advice 2>&1
status=$?
cat out.advice
# it must say something, and must not say too much
grep -q '^[1-9][0-9]* within 20 % of the best, [1-9][0-9]* withheld, 0 wrong$' out.advice ||
    status=1
rm -f out.advice
exit $status
