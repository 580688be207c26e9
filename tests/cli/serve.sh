#!/bin/sh
# paceline serve, work and keys: workers over HTTP and HTTPS compute what those of one machine do,
# only those who belong can join, and any program can with an HTTP client alone.
. "${SOURCE_DIR:?}/tests/shell/network.sh"

value() { # file, key
    sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "$1"
}

run="--data digits --model softmax --method sync --workers 2 --updates 40 --batch 16"

echo "-- keys"
"$paceline" keys --out "$work/keys"
"$paceline" keys --out "$work/keys" --name alice
"$paceline" keys --out "$work/other"
[ "$(stat -c %a "$work/keys/server-key.pem")" = 600 ] || fail "a private key for all"
"$paceline" keys --out "$work/keys" --name alice 2>"$work/err" && fail "overwritten"
"$paceline" keys --out "$work/keys" --name alice2 --host far 2>"$work/err" && fail "other hosts"
grep -q "hosts cannot change" "$work/err" || fail "$(cat "$work/err")"
"$paceline" keys --out "$work/keys" --name ../alice 2>"$work/err" && fail "outside"
grep -q "name has" "$work/err" || fail "$(cat "$work/err")"
chmod 640 "$work/keys/ca-key.pem"
"$paceline" keys --out "$work/keys" --name bob 2>"$work/err" && fail "an authority for all"
grep -q "ca-key.pem' can be read by others" "$work/err" || fail "$(cat "$work/err")"
chmod 600 "$work/keys/ca-key.pem"
mkdir "$work/half"
echo mine >"$work/half/server.pem"
for again in 1 2; do
    "$paceline" keys --out "$work/half" 2>"$work/err" && fail "keys in a folder with another file"
    grep -q "server.pem' already exists" "$work/err" || fail "$again: $(cat "$work/err")"
    [ "$(ls "$work/half")" = server.pem ] || fail "left behind: $(ls "$work/half")"
done
(ulimit -f 0 && exec "$paceline" keys --out "$work/full" 2>/dev/null) && fail "keys on a full disk"
(ulimit -f 0 && exec "$paceline" keys --out "$work/keys" --name eve 2>/dev/null) && fail "full disk"
[ ! -e "$work/full" ] && [ ! -e "$work/keys/eve" ] || fail "left on a full disk: $(ls "$work"/*)"
"$paceline" work http://127.0.0.1:1 --keys "$work/keys" 2>"$work/err" && fail "keys without TLS"
grep -q "is not encrypted, so certificates are of no use" "$work/err" || fail "$(cat "$work/err")"

echo "-- the same weights as on one machine"
# shellcheck disable=SC2086
"$paceline" train $run --json >"$work/here.json" 2>"$work/here.err"
# shellcheck disable=SC2086
serve far $run --min-workers 2 --listen 127.0.0.1:0 --keys "$work/keys"
start_worker w1 "127.0.0.1:$port" --keys "$work/keys"
first=$worker
start_worker w2 "https://127.0.0.1:$port/" --keys "$work/keys/alice"
wait "$server" || fail "$(cat "$work/far.err")"
wait "$first" || fail "$(cat "$work/w1.out")"
wait "$worker" || fail "$(cat "$work/w2.out")"
here=$(value "$work/here.json" test_loss)
[ -n "$here" ] && [ "$here" = "$(value "$work/far.json" test_loss)" ] ||
    fail "loss $here, over HTTPS $(value "$work/far.json" test_loss)"
grep -q "joined over the network as alice" "$work/far.err" || fail "$(cat "$work/far.err")"
[ ! -r /proc/self/schedstat ] || [ "$(value "$work/far.json" core_wait)" != null ] ||
    fail "waiting for a core was not measured: $(cat "$work/far.json")"
[ -z "$(find "$work" -maxdepth 1 -name 'paceline-*')" ] || fail "the folder of its socket is left"

echo "-- half as many bytes"
# shellcheck disable=SC2086
serve half $run --min-workers 2 --listen 127.0.0.1:0 --wire bf16
start_worker h1 "127.0.0.1:$port"
first=$worker
start_worker h2 "127.0.0.1:$port"
wait "$server" || fail "$(cat "$work/half.err")"
wait "$first" "$worker" || fail "$(cat "$work/h1.out" "$work/h2.out")"
grep -q '"rejected":0,' "$work/half.json" || fail "$(cat "$work/half.json")"
half=$(value "$work/half.json" test_loss)
echo "$half $here" | awk '{ exit !($1 > 0.98 * $2 && $1 < 1.02 * $2) }' ||
    fail "loss $half in bf16, $here in f32"

echo "-- only those who belong"
# shellcheck disable=SC2086
serve strict $run --listen 127.0.0.1:0 --keys "$work/keys"
url=https://127.0.0.1:$port
for keys in --no-keys "$work/other"; do
    status=0
    if [ "$keys" = --no-keys ]; then
        curl -sk "$url/v1/seats" -X POST -H 'Paceline-Protocol: 1' -o "$work/out" \
            -w '%{http_code}' >"$work/code" || status=$?
        [ $status -ne 0 ] || [ "$(cat "$work/code")" = 403 ] ||
            fail "no certificate: $(cat "$work/code")"
    else
        timeout 120 curl -sk --cert "$keys/worker.pem" --key "$keys/worker-key.pem" \
            "$url/v1/seats" -X POST -H 'Paceline-Protocol: 1' -o "$work/out" \
            -w '%{http_code}' >"$work/code" || status=$?
        [ $status -ne 0 ] || [ "$(cat "$work/code")" = 403 ] ||
            fail "another authority: $(cat "$work/code")"
    fi
done
status=0
timeout 120 "$paceline" work "$url" --keys "$work/other" 2>"$work/err" || status=$?
[ $status != 0 ] && [ $status != 124 ] || fail "a server of another authority: $status"
grep -q "is not trusted: .*certificate" "$work/err" || fail "$(cat "$work/err")"
# nor is a server trusted because the system trusts its authority
mkdir "$work/system"
cp "$work/keys/ca.pem" "$work/system"
if unshare -m mount --bind "$work/system" /etc/ssl/certs 2>/dev/null; then
    # shellcheck disable=SC2016
    timeout 120 unshare -m sh -c 'mount --bind "$1" /etc/ssl/certs && shift && exec "$@"' sh \
        "$work/system" "$paceline" work "$url" --keys "$work/other" 2>"$work/err" || :
    grep -q "is not trusted: .*certificate" "$work/err" || fail "$(cat "$work/err")"
fi
try=0
until grep -q "a connection from 127.0.0.1 ended before it asked" "$work/strict.err"; do
    try=$((try + 1))
    [ $try -lt 1200 ] || fail "the server did not report it: $(cat "$work/strict.err")"
    sleep 0.1
done
curl -sv --cacert "$work/keys/ca.pem" --cert "$work/keys/worker.pem" \
    --key "$work/keys/worker-key.pem" "$url/healthz" 2>"$work/err" | grep -q ok || fail "no health"
grep -q 'using TLSv*1.3 / .*AES_128_GCM' "$work/err" || fail "another cipher: $(cat "$work/err")"
said_to() { # whose keys, method, path; prints the status
    curl -s --cacert "$work/keys/ca.pem" --cert "$1/worker.pem" --key "$1/worker-key.pem" -X "$2" \
        -H 'Paceline-Protocol: 1' -d '' -D "$work/head" -o "$work/out" -w '%{http_code}' "$url$3"
}
[ "$(said_to "$work/keys" POST /v1/seats)" = 201 ] || fail "$(cat "$work/out")"
seat=/v1/seats/$(tr -d '\r' <"$work/head" | sed -n 's/^Paceline-Seat: //ip')
[ "$(said_to "$work/keys/alice" DELETE "$seat")" = 404 ] || fail "the seat of another was used"
[ "$(said_to "$work/keys" DELETE "$seat")" = 200 ] || fail "its own seat: $(cat "$work/out")"
start_worker bare "127.0.0.1:$port"
await "$work/bare.out" "does not speak HTTP: was it started with --keys?"
kill "$worker"
chmod 644 "$work/keys/alice/worker-key.pem"
"$paceline" work "$url" --keys "$work/keys/alice" 2>"$work/err" && fail "a key for all was used"
grep -q "can be read by others" "$work/err" || fail "$(cat "$work/err")"
kill "$server"
wait "$server" || :
# a certificate for another host
"$paceline" keys --out "$work/elsewhere" --host server.lab
# shellcheck disable=SC2086
serve elsewhere $run --listen 127.0.0.1:0 --keys "$work/elsewhere"
timeout 120 "$paceline" work "https://127.0.0.1:$port" --keys "$work/elsewhere" 2>"$work/err" &&
    fail "a server with the certificate of another host"
grep -q "is not trusted: .*: paceline keys --out DIR --host 127.0.0.1$" "$work/err" ||
    fail "$(cat "$work/err")"
kill "$server"
wait "$server" || :
: >"$work/keys/allowed" # nobody is not everybody
# shellcheck disable=SC2086
"$paceline" serve $run --listen 127.0.0.1:0 --keys "$work/keys" 2>"$work/err" && fail "no list"
grep -q "allowed' is empty" "$work/err" || fail "$(cat "$work/err")"
"$paceline" keys --out "$work/keys" --name server 2>"$work/err" && fail "a worker is the server"
grep -q "a standby is known by that name" "$work/err" || fail "$(cat "$work/err")"
echo alice >"$work/keys/allowed"
# shellcheck disable=SC2086
serve listed $run --listen 127.0.0.1:0 --keys "$work/keys"
for i in 1 2; do
    "$paceline" work "127.0.0.1:$port" --keys "$work/keys" 2>"$work/err" && fail "not in the list"
    grep -q "not in the list" "$work/err" || fail "$(cat "$work/err")"
done
[ "$(grep -c "worker at 127.0.0.1 was refused: .*not in the list" "$work/listed.err")" = 1 ] ||
    fail "reported once: $(cat "$work/listed.err")"
kill "$server"
wait "$server" || :

echo "-- names in certificates"
chmod 600 "$work/keys/alice/worker-key.pem"
serve names --data digits --model softmax --method sync --updates 20 --workers 1 \
    --listen 127.0.0.1:0 --keys "$work/keys" --log-dir "$work/named"
"$paceline" work "127.0.0.1:$port" --keys "$work/keys/alice" 2>"$work/err" ||
    fail "$(cat "$work/err")"
wait "$server" || fail "$(cat "$work/names.err")"
grep -q "joined over the network as alice" "$work/names.err" || fail "$(cat "$work/names.err")"
grep -q "away for too long" "$work/names.err" && fail "a run that ended: $(cat "$work/names.err")"
grep -q '"names":\["alice"\]' "$work/named/history.json" || fail "no name in the history"

echo "-- its header"
# shellcheck disable=SC2086
"$paceline" serve $run --listen 127.0.0.1:0 --wait 0.1 2>"$work/err" && fail "nobody joined"
grep -q "^paceline [0-9.]*: serve, run " "$work/err" || fail "$(cat "$work/err")"
port=$(port_of "$work/err") # that the system chose
grep -q "waiting for 2 of 2 workers at 127.0.0.1:$port, " "$work/err" || fail "$(cat "$work/err")"
grep -q "no worker joined at 127.0.0.1:$port within" "$work/err" || fail "$(cat "$work/err")"
# shellcheck disable=SC2086
"$paceline" serve $run --listen "$work/s,127.0.0.1:0" --wait 0.1 2>"$work/err" &&
    fail "nobody joined"
grep -q "at $work/s,127.0.0.1:$(port_of "$work/err")" "$work/err" || fail "$(cat "$work/err")"

echo "-- addresses"
# shellcheck disable=SC2086
"$paceline" serve $run --listen 0.0.0.0:0 2>"$work/err" && fail "open to all"
grep -q "anybody could join" "$work/err" || fail "$(cat "$work/err")"
# shellcheck disable=SC2086
"$paceline" train $run --keys "$work/keys" 2>"$work/err" && fail "keys without an address"
grep -q "listen HOST:PORT" "$work/err" || fail "$(cat "$work/err")"
# shellcheck disable=SC2086
"$paceline" serve $run --respawn 2>"$work/err" && fail "it starts workers"
grep -q "leave out --respawn" "$work/err" || fail "$(cat "$work/err")"
for server in "" nowhere 7070 :7070 a:0 a:70000 a:b http:// http://a:0 https://:1 "127.0.0.1:1," \
    127.0.0.1:1,nowhere; do
    status=0
    "$paceline" work "$server" 2>"$work/err" || status=$?
    [ $status = 2 ] || fail "work '$server': status $status, $(cat "$work/err")"
    grep -q "is not the address of a server; write HOST:PORT" "$work/err" ||
        fail "work '$server': $(cat "$work/err")"
done

echo "-- workers come and go"
serve elastic --data digits --model softmax --method async --workers 3 --min-workers 1 \
    --updates 100000000 --listen 127.0.0.1:0 --delay const:t=0.002
start_worker e1 "127.0.0.1:$port"
kept=$worker
await "$work/e1.out" "as worker 1 of 3"
start_worker keyed "127.0.0.1:$port" --keys "$work/keys"
await "$work/keyed.out" "does not speak HTTPS: was it started without --keys?"
kill "$worker"
start_worker e2 "127.0.0.1:$port"
await "$work/e2.out" "as worker 2 of 3"
kill "$worker"
wait "$worker" || fail "a notice is not a failure: $(cat "$work/e2.out")"
await "$work/elastic.err" "worker 2 left"
start_worker e3 "127.0.0.1:$port"
await "$work/e3.out" "as worker 2 of 3"
kill -9 "$worker"
await "$work/elastic.err" "worker 2 lost its connection"
kill "$server"
wait "$server" || fail "$? $(cat "$work/elastic.err" "$work/elastic.json")"
wait "$kept" || fail "$(cat "$work/e1.out")"

echo "-- some workers are started, others join"
"$paceline" train --data digits --model softmax --method sync --workers 2 --start 1 \
    --listen 127.0.0.1:0 --updates 100000000 >"$work/mixed.out" 2>"$work/mixed.err" &
server=$!
pids="$pids $server"
await "$work/mixed.err" "workers can join over"
start_worker m1 "127.0.0.1:$(port_of "$work/mixed.err")"
await "$work/m1.out" "as worker 2 of 2"
await "$work/mixed.err" "worker 2 joined over the network"
kill "$worker"
wait "$worker" || fail "$(cat "$work/m1.out")"
await "$work/mixed.err" "worker 2 left; the run continues with 1 of 2"
start_worker m2 "127.0.0.1:$(port_of "$work/mixed.err")"
await "$work/m2.out" "as worker 2 of 2"
kill "$server"
wait "$server" || fail "$(cat "$work/mixed.err")"
wait "$worker" || fail "$(cat "$work/m2.out")"

echo "-- the server comes back"
again="--data digits --model softmax --method async --workers 1 --delay const:t=0.002 \
    --checkpoint $work/saved --checkpoint-every 20 --resume auto"
# shellcheck disable=SC2086
serve before $again --updates 100000 --listen 127.0.0.1:0
back=$port
start_worker b1 "127.0.0.1:$back"
n=0
until [ -n "$(find "$work/saved" -name '*.safetensors')" ]; do
    n=$((n + 1))
    [ $n -lt 1200 ] || fail "no checkpoint"
    sleep 0.1
done
kill -9 "$server"
wait "$server" || :
# shellcheck disable=SC2086
serve after $again --updates 100000 --time 3 --listen "127.0.0.1:$back"
wait "$server" || fail "$(cat "$work/after.err")"
wait "$worker" || fail "the worker did not come back: $(cat "$work/b1.out")"
grep -q "joining again" "$work/b1.out" || fail "$(cat "$work/b1.out")"

echo "-- a worker that is curl"
serve plain --model quadratic:dim=4 --method async --workers 1 --updates 3 --lr 0.5 \
    --listen 127.0.0.1:0
url=http://127.0.0.1:$port/v1/seats
curl -sf -D "$work/head" -o "$work/about" -X POST -H 'Paceline-Protocol: 1' "$url"
seat=$(tr -d '\r' <"$work/head" | sed -n 's/^Paceline-Seat: //ip')
grep -q '"dim":4' "$work/about" || fail "$(cat "$work/about")"
python3 - "$work/about" "$SOURCE_DIR/docs/network.md" <<'PY' || fail "docs/network.md"
import json, re, sys
keys = set(json.load(open(sys.argv[1])))
table = open(sys.argv[2]).read().split("| Field | Meaning |")[1].split("\n\n")[0]
rows = {k for row in re.findall(r"^\| (`.*?) \|", table, re.M) for k in re.findall("`(.*?)`", row)}
assert rows == keys, "not described: %s; not there: %s" % (keys - rows, rows - keys)
PY
curl -sf -D "$work/head" -o "$work/w" -X POST -H 'Content-Length: 0' "$url/$seat/next"
n=0
while :; do # the gradient of |w|^2 / 2 is w
    n=$((n + 1))
    task=$(tr -d '\r' <"$work/head" | sed -n 's/^Paceline-Task: //ip')
    [ "$(wc -c <"$work/w")" -eq 16 ] || fail "a vector of 4 numbers has 16 bytes"
    code=$(curl -s -D "$work/head" -o "$work/next" -w '%{http_code}' --data-binary "@$work/w" \
        -H "Paceline-Task: $task" -H 'Paceline-Samples: 1' -H 'Paceline-Loss: 0.5' \
        "$url/$seat/next") || code=gone
    while [ "$code" = 204 ]; do # there is none yet
        code=$(curl -s -D "$work/head" -o "$work/next" -w '%{http_code}' -X POST \
            -H 'Content-Length: 0' "$url/$seat/next") || code=gone
    done
    [ "$code" = 200 ] || break
    mv "$work/next" "$work/w"
done
# the server may have gone before it could be asked again
[ "$code" = 410 ] || [ "$code" = gone ] || fail "status $code: $(cat "$work/next")"
[ "$code" = gone ] || grep -qi '^Paceline-Over: 1' "$work/head" || fail "$(cat "$work/head")"
wait "$server" || fail "$(cat "$work/plain.err")"
# it may have begun with the next task before it heard that the run is over
[ $n -eq 3 ] || [ $n -eq 4 ] || fail "$n results"
grep -q '"applied":3,' "$work/plain.json" || fail "$(cat "$work/plain.json")"
