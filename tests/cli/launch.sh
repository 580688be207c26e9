#!/bin/sh
# paceline launch: what copies are told, what is printed, restarts, signals, exit statuses.
set -e
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"
export TMPDIR="$work"

step "who they are"
unset OMP_NUM_THREADS
# shellcheck disable=SC2016
"$PACELINE" launch -n 3 -- sh -c 'echo "$PACELINE $RANK/$WORLD_SIZE $OMP_NUM_THREADS"' >out
for r in 0 1 2; do
    role="rank=$r,workers=3,socket=$work/paceline-.*/run.socket"
    grep -q "^\[$r\] $role $r/3 [1-9]" out ||
        fail "rank $r: $(cat out)"
done
[ "$(wc -l <out)" -eq 3 ] || fail "lines"

step "the exit status"
status=0
# shellcheck disable=SC2016
"$PACELINE" launch --workers 2 -- sh -c 'exit $((7 * RANK))' 2>err || status=$?
[ $status -eq 7 ] || fail "status $status"
grep -q "rank 1 failed with status 7" err || fail "$(cat err)"
for bad in "-n 2" "-n 0 -- true" "-n x -- true" "--nonsense 1 -- true"; do
    status=0
    # shellcheck disable=SC2086
    "$PACELINE" launch $bad 2>err || status=$?
    [ $status -eq 2 ] || fail "'$bad': status $status"
    [ "$(wc -l <err)" -eq 1 ] || fail "'$bad': $(cat err)"
done
status=0
"$PACELINE" launch -n 1 -- "$work/nothing" 2>err || status=$?
[ $status -eq 127 ] || fail "no program: status $status"

step "restarts"
# shellcheck disable=SC2016
"$PACELINE" launch -n 2 --respawn -- sh -c '
    if [ "$RANK" = 0 ]; then
        while ! [ -e "$TMPDIR/done" ]; do sleep 0.05; done
        exit 0
    fi
    echo x >>"$TMPDIR/starts"
    [ "$(wc -l <"$TMPDIR/starts")" -ge 3 ] || kill -9 $$
    touch "$TMPDIR/done"' 2>err || fail "restarts: $(cat err)"
[ "$(wc -l <starts)" -eq 3 ] || fail "started $(wc -l <starts) times"
grep -q "rank 1 was killed by signal 9" err || fail "$(cat err)"

step "Ctrl-C reaches what a copy has started"
# shellcheck disable=SC2016
"$PACELINE" launch -n 2 -- sh -c 'sleep 100 & echo $! >"$TMPDIR/pid$RANK"; wait' 2>err &
pid=$!
while ! [ -s "$work/pid0" ] || ! [ -s "$work/pid1" ]; do sleep 0.05; done
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "signal: status $status"
grep -q "interrupted; the workers are ending" err || fail "signal: $(cat err)"
for r in 0 1; do
    i=0
    while kill -0 "$(cat "$work/pid$r")" 2>/dev/null && [ $i -lt 1200 ]; do
        sleep 0.05
        i=$((i + 1))
    done
    [ $i -lt 1200 ] || fail "a process is left"
done
