#!/bin/sh
# What `paceline plan` recommends is within 20 % of the best in simulated races, or it says that it
# cannot know: scripts/advice, on few laws and problems.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"
python=$(command -v python3) || { echo "skipped: python3 is not installed"; exit 77; }
"$python" "$SOURCE_DIR/scripts/advice" --quick "$PACELINE" const:t=1 \
    pareto:shape=1.5,scale=1 >out 2>&1
status=$?
cat out
# it must say something, and must not say too much
grep -q '^[1-9][0-9]* within 20 % of the best, [1-9][0-9]* withheld, 0 wrong$' out ||
    status=1
exit $status
