#!/bin/sh
# The programs in docs/examples compile with all warnings, against the library that was built, and
# do what they say: a server and two workers are three processes that share a socket's name alone.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"
export LD_LIBRARY_PATH="$BUILD_DIR"

n=0
for source in "$SOURCE_DIR"/docs/examples/*.c; do
    program=$(basename "$source" .c)
    step "$program compiles"
    "${CC:-cc}" ${SANITIZE:+-fsanitize=$SANITIZE} -std=c99 -Wall -Wextra -Wpedantic -Werror \
        "$source" -I"$SOURCE_DIR/include" -L"$BUILD_DIR" -lpaceline -lm -o "$program" ||
        fail "$program does not compile"
    n=$((n + 1))
done
[ $n -gt 0 ] || fail "there is no example"

step "own_worker: two programs work for a third"
./own_worker serve run.socket >out 2>err &
server=$!
while [ ! -S run.socket ] && kill -0 $server 2>/dev/null; do sleep 0.1 2>/dev/null || sleep 1; done
./own_worker work run.socket 2>one &
first=$!
./own_worker work run.socket 2>two &
second=$!
wait $server || fail "serve: $(cat err)"
wait $first || fail "the first worker: $(cat one)"
wait $second || fail "the second worker: $(cat two)"
grep -q '"updates":400,' out || fail "not 400 updates: $(cat out)"
grep -q '^y = [23]\.[0-9]* x -[12]\.[0-9]*$' err || fail "another line: $(cat err)"
[ ! -e run.socket ] || fail "the socket is left behind"
./own_worker work run.socket 2>err
[ $? -eq 1 ] && [ -s err ] || fail "a worker without a server says nothing"

step "external: the lines of docs/workers.md, as they are printed there"
mkdir bin && ln -s "$PACELINE" bin/paceline
awk '/^```console/ { inside = 1; next } /^```/ { inside = 0 } inside && sub(/^[$>] /, "")' \
    "$SOURCE_DIR/docs/workers.md" | grep -v '^cc ' >lines
grep -q 'paceline train --model external' lines || fail "no such lines: $(cat lines)"
for again in 1 2 3; do
    PATH="$work/bin:$PATH" sh lines >out 2>err || fail "docs/workers.md: $(cat err)"
    grep -q '^  test loss  *0\.0' out || fail "no test loss: $(cat out err)"
    last=$(sed -n 's/^  updates  *//p' out)
    grep -q "^update $last: y = [23]\.[0-9]* x -[12]\.[0-9]*\$" err || fail "not fitted: $(cat err)"
done
# as many updates as the line takes, however slow the machine is
for run in sync:400 diloco:20 easgd:100 downpour:2000 ad-psgd:800; do
    method=${run%:*}
    sed "s/--method async/--method $method/; s/--time 2/--updates ${run#*:}/" lines >other
    grep -q "updates" other || fail "the time is not replaced: $(cat other)"
    PATH="$work/bin:$PATH" sh other >out 2>err || fail "$method: $(cat err)"
    grep -q "^  method  *$method " out || fail "not $method: $(cat out)"
    grep -q '^update [1-9][0-9]*: y = [23]\.[0-9]* x -[12]\.' err || fail "$method: $(cat err)"
done

step "own_policy: simulates, trains and replays with a policy of its own"
for again in 1 2; do # an old recording is no obstacle
    ./own_policy >out 2>err || fail "own_policy, run $again: $(cat err)"
    grep -q '^simulated  200 updates, loss 0\.[0-9]*$' out || fail "not simulated: $(cat out)"
    grep -q '^trained    200 updates, loss [0-9.]*$' out || fail "not trained: $(cat out)"
    grep -q '^replayed   200 updates, .*: the same [0-9]* events, decisions and weights, bit' out ||
        fail "not replayed: $(cat out)"
done
echo "$n examples"
exit $bad
