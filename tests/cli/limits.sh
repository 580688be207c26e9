#!/bin/sh
# Little memory, and signals: every command ends by itself or when it is told to, with a sentence.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# --- address space ---
# OpenBLAS maps memory for every thread, and tries for ever if it gets none.
if [ -n "${SANITIZE:-}" ]; then
    echo "skipped: a sanitizer needs more address space than a limit leaves"
else
    for limit in 150000 300000 700000; do
        for what in "train" "train --spawn threads" "simulate"; do
            # shellcheck disable=SC2086 # a command and its options
            (
                ulimit -v $limit || exit 77
                exec timeout -k 1 60 "$PACELINE" $what --data digits --workers 2 --updates 5
            ) >out 2>err </dev/null
            status=$?
            [ $status -eq 77 ] && continue
            case $status in
            0) ;;
            1) grep -q 'out of memory' err ||
                fail "$what within $limit kB: $(cat err)" ;;
            *) fail "$what within $limit kB ended with $status: $(cat err)" ;;
            esac
        done
    done
    (ulimit -v 150000 && "$PACELINE" list method >/dev/null) || fail "list needs little memory"
fi

# --- Ctrl-C during a replay ---
"$PACELINE" simulate --method async --data digits --workers 4 --updates 2500 \
    --eval-every 100000 --record long.rec >/dev/null 2>&1 </dev/null ||
    fail "the run to replay"
"$PACELINE" replay long.rec >out 2>err </dev/null &
pid=$!
i=0
while [ $i -lt 3000 ] && kill -0 $pid && ! grep -qs 'Sig[C]gt:.*[2367abef]$' "/proc/$pid/status"; do
    sleep 0.02
    i=$((i + 1))
done
sleep 0.2
kill -INT $pid
wait $pid
status=$?
if grep -q 'bit for bit' out; then
    echo "the replay had ended before it was interrupted"
else
    [ $status -eq 130 ] || fail "an interrupted replay ended with $status"
    grep -q 'interrupted' err || fail "an interrupted replay says: $(cat err)"
    grep -q 'interrupted after' out || fail "and: $(cat out)"
    grep -q 'differs' out err && fail "an interrupted replay differs"
fi

[ $bad -eq 0 ] && echo "limits: all ended as they should"
exit $bad
