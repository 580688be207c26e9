#!/bin/sh
# A file that cannot grow is reported when that happens, and the run goes on; nohup reaches workers.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# 512-byte or 1024-byte blocks, depending on the shell: 350 or 700 kB
run="--data digits --model softmax --workers 2 --method async"
# shellcheck disable=SC2086 # a list of options
(ulimit -f 700 && exec "$PACELINE" train $run --updates 16000 --record rec \
    --events ev --log-dir logs --json) >json 2>err
status=$?
[ $status -eq 1 ] || fail "exit status $status instead of 1: $(cat err)"
grep -q '"updates":16000,' json || fail "the run ended early: $(cat json err)"
for file in rec ev logs/trace.json logs/events.txt; do
    n=$(grep -c "'$file'.*; the run continues" err)
    [ "$n" -eq 1 ] || fail "$file was reported $n times while the run went on: $(cat err)"
done
"$PACELINE" replay rec >replay 2>&1 || fail "no replay: $(cat replay)"
grep -q 'cut short after' replay || fail "not cut short: $(cat replay)"

# shellcheck disable=SC2086
(ulimit -f 300 && exec "$PACELINE" simulate --model none --workers 9 --method async \
    --updates 20000 --record sim) >/dev/null 2>err
grep -q 'sim.* File too large; the run continues' err || fail "simulate: $(cat err)"

# Files that fail at the end are all reported, and the results are there. There is no memory to
# share if files must be that short, which is said.
(ulimit -f 1 && exec "$PACELINE" simulate --model none --workers 9 --method async --updates 300 \
    --record r1 --events e1 --json) >json 2>err
status=$?
[ $status -eq 1 ] || fail "short files: status $status: $(cat err)"
grep -q '"updates":300,' json || fail "no results: $(cat json err)"
for file in r1 e1; do
    grep -q "'$file'.* File too large" err || fail "$file: $(cat err)"
done
# shellcheck disable=SC2086
(ulimit -f 1 && exec "$PACELINE" train $run --updates 3) >/dev/null 2>err &&
    fail "it has run without memory"
grep -q 'ulimit -f' err || fail "no memory to share: $(cat err)"

# If the best weights fit and no checkpoint does, there is nothing to continue. Threads share no
# memory that the limit could refuse.
(ulimit -f 300 && trap '' XFSZ && exec "$PACELINE" train --data digits:samples=200,test=50 \
    --model mlp:hidden=96 --optim adam --workers 1 --transport inproc --updates 3 --seed 1 \
    --checkpoint ck) >out 2>err && fail "a checkpoint that was not written is no failure"
grep -q "checkpoint 'ck/checkpoint-.*File too large" err || fail "no checkpoint: $(cat err)"
[ -s ck/best.safetensors ] || fail "the best weights were not written: $(ls ck)"
! grep -q '^  saved' out || fail "nothing was saved: $(cat out)"

# A race says which curves are not complete.
(ulimit -f 8 && exec "$PACELINE" race sync async --tune no --model softmax \
    --workers 4 --data digits:samples=200,test=50 --delay exp:mean=1 --updates 300 --eval-every 1 \
    --out race) \
    >out 2>err
for file in points-01 points-02 history-01; do
    grep -q "warning: .*$file.* File too large" err || fail "$file: $(cat err)"
done

# A hangup ends neither the server, which nohup protects, nor its workers.
# shellcheck disable=SC2086
nohup "$PACELINE" train $run --time 600 --json >json 2>err &
pid=$!
workers=
while kill -0 $pid 2>/dev/null; do
    sleep 0.2
    workers=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    [ "$(echo "$workers" | wc -w)" -eq 2 ] && break
done
[ "$(echo "$workers" | wc -w)" -eq 2 ] || fail "no workers: '$workers'"
# shellcheck disable=SC2086
kill -HUP $pid $workers
sleep 1
kill -TERM $pid
wait $pid || fail "the run ended with $?: $(cat err)"
grep -q '"lost":0' json || fail "a worker was lost: $(cat json err)"
exit $bad
