#!/bin/sh
# A worker that loses its connection keeps its place until a deadline: it returns, or it has left.
. "${SOURCE_DIR:?}/tests/shell/network.sh"

run="--data digits --model softmax --updates 1000000 --listen 127.0.0.1:0"

# A worker that has joined.
joined() { # name, address, options …
    said=$work/$1.out
    start_worker "$@"
    await "$said" "joined"
}

stop() { # name: ends the server, and checks the fates of its tasks
    kill "$server"
    wait "$server" || fail "$(cat "$work/$1.err")"
    tr ',{}' '\n' <"$work/$1.json" | awk -F: '
        /"started":[0-9]/ { all = $2 }
        /"(applied|dropped|cancelled|lost|rejected|running)":[0-9]/ { sum += $2 }
        END { exit !(all > 0 && all == sum) }' || fail "fates: $(cat "$work/$1.json")"
}

# Connections to the first port go to the second one, until this is killed.
cat >"$work/relay.py" <<'PY'
import socket, sys, threading
def carry(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try: s.shutdown(socket.SHUT_RDWR)
        except OSError: pass
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(s.getsockname()[1], flush=True)
while True:
    a = s.accept()[0]
    b = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for x, y in ((a, b), (b, a)):
        threading.Thread(target=carry, args=(x, y), daemon=True).start()
PY
relay() { # port
    : >"$work/relay.port"
    python3 "$work/relay.py" "$1" "$port" >"$work/relay.port" &
    relay=$!
    pids="$pids $relay"
    await "$work/relay.port" "[0-9]"
}

echo "-- a worker that returns"
# shellcheck disable=SC2086
serve back $run --method sync --workers 2 --delay const:t=3 \
    --checkpoint "$work/saved" --checkpoint-every 1
relay 0
through=$(cat "$work/relay.port")
joined near "127.0.0.1:$port"
joined far "127.0.0.1:$through"
await "$work/back.err" "worker . joined over the network" # both have
n=0
until [ -e "$work/saved/latest" ]; do # of update 1: so long are tasks
    n=$((n + 1))
    [ $n -lt 1200 ] || fail "no update: $(cat "$work/back.err")"
    sleep 0.1
done
kill -9 "$relay"
await "$work/back.err" "worker . lost its connection; it keeps its place for [3-9][0-9]\.*[0-9]* s"
relay "$through"
await "$work/back.err" "worker . is back after"
grep -q "left\|joining again" "$work/back.err" "$work/far.out" && fail "$(cat "$work/back.err")"
stop back

echo "-- a worker that does not: messages tell the name in its certificate"
"$paceline" keys --out "$work/keys"
"$paceline" keys --out "$work/keys" --name alice
# shellcheck disable=SC2086
serve gone $run --method async --workers 2 --evict 5 --keys "$work/keys"
joined stays "127.0.0.1:$port" --keys "$work/keys"
joined dies "127.0.0.1:$port" --keys "$work/keys/alice"
kill -9 "$worker"
await "$work/gone.err" "worker 2 (alice) lost its connection; it keeps its place for 5 s"
await "$work/gone.err" "worker 2 (alice) lost its connection .* ago and did not return"
joined next "127.0.0.1:$port" --keys "$work/keys"
grep -q "as worker 2 of 2" "$work/next.out" || fail "its place is taken: $(cat "$work/next.out")"
stop gone
