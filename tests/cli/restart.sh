#!/bin/sh
# A server that is started again: its epoch, what was lost, and clients that learn that it is gone.
. "${SOURCE_DIR:?}/tests/shell/network.sh"

# Joins with curl; the answer's headers are in $work/head.
join() { # headers …
    curl -s -D "$work/head" -o "$work/body" -X POST -H 'Paceline-Protocol: 1' "$@" \
        "http://127.0.0.1:$port/v1/seats"
}

header() { # name
    tr -d '\r' <"$work/head" | sed -n "s/^$1: //ip"
}

# Kills the server in the middle of its updates. $from is the last checkpoint.
kill_server() {
    last=$(readlink "$work/saved/latest" || :)
    until [ "$(readlink "$work/saved/latest" || :)" != "$last" ]; do sleep 0.01; done
    kill -9 "$server"
    wait "$server" || :
    from=$(basename "$(readlink "$work/saved/latest")" .safetensors)
    from=$(echo "${from#checkpoint-}" | sed "s/^0*//")
}

# The worker comes back, the n-th time. $seen is the newest version that it had.
comes_back() { # n
    until [ "$(lines "$work/w.out" "joining again after update")" = "$1" ]; do sleep 0.01; done
    seen=$(sed -n 's/.*joining again after update \([0-9]*\).*/\1/p' "$work/w.out" | tail -n 1)
}

run="--data digits --model softmax --method async --workers 1 --delay const:t=0.002 \
    --checkpoint $work/saved --checkpoint-every 20 --resume auto"

echo "-- what was lost"
# shellcheck disable=SC2086
serve before $run --updates 100000 --listen 127.0.0.1:0
address=127.0.0.1:$port
start_worker w "$address"
await "$work/w.out" "as worker 1 of 1"
kill_server
# shellcheck disable=SC2086
serve after $run --updates 100000 --listen "$address"
comes_back 1
await "$work/after.err" "lost"
made=$(sed -n "s/.* before this one had made update \([0-9]*\), .*/\1/p" "$work/after.err")
if [ -n "$made" ]; then
    grep -q "from update $from: $((made - from)) update" "$work/after.err" || fail "$from, $made"
else
    grep -q "continuing from update $from; no update was lost" "$work/after.err" || fail "$from"
    made=$from
fi
# the only worker had seen the last one, unless it had only just sent what that was made of
[ "$made" = "$seen" ] || [ "$made" = $((seen + 1)) ] || fail "update $made; $seen were seen"

echo "-- what was lost, if the machine was started again: what workers know"
kill_server
grep -q "at least" "$work/after.err" && fail "$(cat "$work/after.err")"
sed 's/ [0-9a-f-]* / 00000000-0000-0000-0000-000000000000 /' "$work/saved/.lock" >"$work/lock"
cat "$work/lock" >"$work/saved/.lock"
# shellcheck disable=SC2086
serve again $run --updates 100000 --listen "$address"
comes_back 2
if [ "$seen" -gt "$from" ]; then # it was not killed right after a checkpoint
    await "$work/again.err" \
        "seen update $seen, and this server continues from update $from: at least $((seen - from)) "
fi
grep -q "had made\|no update" "$work/again.err" && fail "$(cat "$work/again.err")"
kill "$worker"
wait "$worker" || fail "$(cat "$work/w.out")"
kill "$server"
wait "$server" || fail "$(cat "$work/again.err")"

echo "-- epochs"
# shellcheck disable=SC2086
serve third $run --updates 100000 --listen "$address"
await "$work/third.err" "no update was lost" # the one before it had ended in good order
join
epoch=$(header Paceline-Epoch)
dim=$(header Paceline-Dim)
id=$(header Paceline-Run)
[ "$epoch" = 4 ] && [ "$(header Paceline-Returns)" = 1 ] || fail "$(cat "$work/head")"
join -H "Paceline-Run: $id" -H 'Paceline-Epoch: 5' -H 'Paceline-Seen: 5'
head -1 "$work/head" | grep -q 403 || fail "a server with less: $(cat "$work/head")"
grep -q "came after this one" "$work/body" "$work/third.err" || fail "$(cat "$work/body")"
curl -s "http://127.0.0.1:$port/v1/setup" >"$work/setup"
kill "$server"
wait "$server" || :
# a worker that had epoch 7 refuses epoch 6
cat >"$work/old.py" <<'PY'
import http.server, sys
class Old(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = open(sys.argv[1], "rb").read()
        self.send_response(200); self.send_header("Content-Length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def do_POST(self):
        Old.n = getattr(Old, "n", 0) + 1
        new = Old.n == 1
        self.send_response(201 if self.path.endswith("seats") else 404)
        for k, v in {"Seat": "0" * 32, "Worker": 0, "Workers": 1, "Dim": sys.argv[2], "Run": "r",
                     "Epoch": 7 if new else 6, "Returns": 1}.items():
            self.send_header("Paceline-" + k, str(v))
        self.send_header("Content-Length", "0"); self.end_headers()
    do_DELETE = do_POST
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Old)
print(s.server_port, flush=True)
s.serve_forever()
PY
python3 "$work/old.py" "$work/setup" "$dim" >"$work/old.port" &
pids="$pids $!"
await "$work/old.port" "[0-9]"
start_worker refuses "127.0.0.1:$(cat "$work/old.port")"
wait "$worker" && fail "joined a server with a lower epoch: $(cat "$work/refuses.out")"
grep -q "has epoch 6 of this run, and one with epoch 7 came after it" "$work/refuses.out" ||
    fail "$(cat "$work/refuses.out")"

echo "-- gone for good"
serve gone --data digits --model softmax --method async --workers 1 --updates 100000 \
    --listen 127.0.0.1:0
start_worker g "127.0.0.1:$port"
await "$work/g.out" "as worker 1 of 1"
kill -9 "$server"
wait "$worker" && fail "not a success: $(cat "$work/g.out")"
grep -q "nothing listens there any more" "$work/g.out" || fail "$(cat "$work/g.out")"
