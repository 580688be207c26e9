#!/bin/sh
# Standard streams that are closed: no file of the run gets their numbers, and so no line of
# progress ends up in it.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# Runs a command with some streams closed; its status goes into $status.
without() { # in, out, err, a combination of them, or none; the command and its options
    streams=$1
    shift
    (
        exec </dev/null >out 2>err
        case $streams in *in*) exec <&- ;; esac
        case $streams in *out*) exec >&- ;; esac
        case $streams in *err*) exec 2>&- ;; esac
        exec timeout -k 1 60 "$PACELINE" "$@"
    )
    status=$?
}

simulation="--method async --workers 2 --data digits --model softmax --updates 20 --eval-every 5"
training="$simulation --delay const:t=0.002"

step "files of a run"
# shellcheck disable=SC2086 # lists of options
for streams in err in-err in-out-err; do
    for command in "simulate $simulation" "train $training"; do
        without $streams $command --record r --log l --events e --log-dir d
        [ $status -eq 0 ] || [ $streams = in-out-err ] || fail "$command without $streams: $status"
        "$PACELINE" replay r >out 2>&1 || fail "$command without $streams: $(cat out)"
        grep -q '^paceline' l e && fail "$command without $streams: a message is in a file"
        rm -rf r l e d
    done
    without $streams train $training --record r
    "$PACELINE" replay r >out 2>&1 || fail "a recording without $streams: $(cat out)"
    rm -f r
    without $streams train $training --checkpoint c --record r
    "$PACELINE" eval c >out 2>&1 || fail "checkpoint without $streams: $(cat out)"
    rm -rf c r
done

step "standard output that is closed is an error, and not a file"
# shellcheck disable=SC2086
without out simulate $simulation --json --record r
[ $status -eq 1 ] || fail "closed output: status $status"
grep -q 'standard output' err || fail "closed output: $(cat err)"
"$PACELINE" replay r >out 2>&1 || fail "closed output: $(cat out)"
rm -f r

step "races, pages, plots and launched programs"
without in-out-err race sync async --tune no --data digits --model softmax --updates 5 --out race
"$PACELINE" report race -o page.html >out 2>&1 || fail "a race without streams: $(cat out)"
without in-err report race -o second.html
[ $status -eq 0 ] || fail "report without streams: $status"
cmp -s page.html second.html || fail "the page differs"
without in-err launch -n 2 -- sh -c 'echo "$RANK" >"rank.$RANK"; echo said >&2'
[ $status -eq 0 ] || fail "launch without streams: $status"
[ "$(cat rank.0 rank.1 | tr '\n' ' ')" = "0 1 " ] || fail "launch without streams"

exit $bad
