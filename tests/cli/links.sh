#!/bin/sh
# Temporary files: they follow no link, replace no file of somebody else's, and what a killed
# program left of them is in nobody's way.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

run() {
    timeout -k 1 60 "$PACELINE" "$@" >out 2>err </dev/null || fail "$*: status $?, $(cat err)"
}

ends="part tmp new gp part.tmp paceline-$$-0.tmp"

# Names that programs commonly use for temporary files, all links to a file of the user's.
plant() { # the file that will be written
    for end in $ends; do ln -s "$work/victim" "$1.$end"; done
}

check() { # the file that was written
    [ "$(cat "$work/victim")" = precious ] || fail "$1: a link was followed: $(head -c 80 victim)"
    for end in $ends; do
        [ -L "$1.$end" ] || fail "$1.$end is no longer the link that it was"
    done
    [ -s "$1" ] && [ ! -L "$1" ] || fail "$1 was not written"
    left=$(find "$(dirname "$1")" -name '*.tmp' -type f)
    [ -z "$left" ] || fail "left behind: $left"
}

echo precious >victim
simulation="--workers 2 --data digits --model softmax --time 20 --eval-every 2"

step "a history"
plant h.json
# shellcheck disable=SC2086 # a list of options
run simulate --method async $simulation --history h.json
check h.json

step "a checkpoint"
mkdir c
plant c/checkpoint-0000000005.safetensors
plant c/best.safetensors
echo 'of a writer that was killed' >c/best.safetensors.paceline-99999999-0.tmp
run train --method async --workers 2 --data digits --model softmax --updates 5 --checkpoint c
check c/checkpoint-0000000005.safetensors
check c/best.safetensors

step "a race, its page and its plot"
# shellcheck disable=SC2086
run race sync async --tune no $simulation --seeds 1 --out r
rm -f r/plot.svg
for file in r/race.json r/plot.svg r/history-02.json; do plant $file; done
echo 'a killed program left it' >r/plot.svg.paceline-99999999-0.tmp
echo 'it is mine' >r/plot.svg.2024-11.tmp
run race --resume r kasync:k=2
rm -f r/history-02.json.*
mv r/plot.svg.2024-11.tmp mine
check r/plot.svg
mv mine r/plot.svg.2024-11.tmp
[ "$(cat r/plot.svg.2024-11.tmp)" = 'it is mine' ] || fail "a file of the user's was removed"
rm -f r/plot.svg.*
check r/race.json
plant page.html
run report r -o page.html
check page.html

step "a folder of checkpoints with a lock of somebody else's"
mkdir p
echo '{"mine": true}' >p/.lock
"$PACELINE" train --workers 2 --data digits --model softmax --updates 5 --checkpoint p \
    >out 2>err </dev/null && fail "a file was taken for a lock"
grep -q "p/.lock" err || fail "a lock of somebody else's: $(cat err)"
[ "$(cat p/.lock)" = '{"mine": true}' ] || fail "p/.lock was overwritten"

exit $bad
