#!/bin/sh
# Every method with workers over HTTP: its recording replays in the simulator, bit for bit, or the
# method is refused in one sentence.
. "${SOURCE_DIR:?}/tests/shell/network.sh"

run="--data digits:samples=400 --model softmax --batch 8 --workers 3 --updates 12 \
    --eval-every 1000 --seed 3 --min-workers 3 --listen 127.0.0.1:0"
refused=
works=0
for method in $("$paceline" list method | sed -n 's/^  \([^ ]\{1,\}\) .*/\1/p'); do
    rm -f "$work"/tape "$work"/server.err "$work"/worker-*.out
    # shellcheck disable=SC2086
    "$paceline" serve --json $run --method "$method" --record "$work/tape" >"$work/server.json" \
        2>"$work/server.err" &
    server=$!
    pids="$pids $server"
    await "$work/server.err" . # where it listens, or why not
    port=$(port_of "$work/server.err")
    if [ -z "$port" ]; then
        wait "$server" && fail "$method: $(cat "$work/server.err")"
        [ "$(wc -l <"$work/server.err")" = 1 ] || fail "$method: $(cat "$work/server.err")"
        refused="$refused $method"
        continue
    fi
    workers=
    for i in 1 2 3; do
        start_worker worker-$i "127.0.0.1:$port"
        workers="$workers $worker"
    done
    wait "$server" || fail "$method: $(cat "$work/server.err")"
    for worker in $workers; do
        wait "$worker" || fail "$method: $(cat "$work"/worker-*.out)"
    done
    "$paceline" replay "$work/tape" --json >"$work/replay.json" 2>"$work/replay.err" ||
        fail "$method does not replay: $(cat "$work/replay.err")"
    works=$((works + 1))
done
[ $works -ge 50 ] || fail "only $works methods; refused: $refused"
echo "$works methods; refused:$refused"
