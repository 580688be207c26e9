#!/bin/sh
# A standby takes over when the first server has died, at any moment, and no update is lost: the
# weights of a synchronous run are those of an undisturbed one. It does not take over from a server
# that lives, and a server that was replaced makes no more updates.
. "${SOURCE_DIR:?}/tests/shell/network.sh"
"$paceline" keys --out "$work/keys"

# No worker is ever left out, however slow this machine is: the weights would be others.
run="--data digits --model mlp:hidden=64 --method sync --workers 2 --batch 16 --evict 600"

# A server, its standby, and two workers that know the first alone. $stall_worker and $stall_standby
# say when to stall, if the second worker or the standby does not reach it directly.
stall_worker=
stall_standby=
json=--json
begin() { # options of the server …
    rm -f "$work"/*.err "$work"/*.out "$work"/*.json "$work/points"
    # shellcheck disable=SC2086
    "$paceline" serve $run "$@" --min-workers 2 --wait 600 --json --listen 127.0.0.1:0 \
        --keys "$work/keys" >"$work/first.json" 2>"$work/first.err" &
    first=$!
    await "$work/first.err" "workers can join over"
    port=$(port_of "$work/first.err")
    through=$port
    # shellcheck disable=SC2086
    [ -z "$stall_standby" ] || stall 127.0.0.1:$port $stall_standby
    # shellcheck disable=SC2086
    "$paceline" serve --standby "https://127.0.0.1:$through" --min-workers 2 --wait 600 $json \
        --log "$work/points" --eval-every 0.1 \
        --listen 127.0.0.1:0 --keys "$work/keys" >"$work/second.json" 2>"$work/second.err" &
    second=$!
    pids="$pids $first $second"
    await "$work/first.err" "waiting for"
    through=$port
    # shellcheck disable=SC2086
    [ -z "$stall_worker" ] || stall 127.0.0.1:$port $stall_worker
    for w in 1 2; do
        address=127.0.0.1:$port
        [ $w = 1 ] || address=127.0.0.1:$through
        [ $w = 1 ] || address=127.0.0.1:1,$address # the first that answers
        "$paceline" work "$address" --keys "$work/keys" >"$work/$w.out" 2>&1 &
        pids="$pids $!"
        eval "worker$w=$!"
    done
    await "$work/1.out" "has a standby at"
    await "$work/2.out" "has a standby at"
}

# The server dies, and its standby ends the run.
replace() {
    kill -9 "$first"
    wait "$second" || fail "$(tail -n 20 "$work"/*.err "$work"/*.out)"
    check
    wait "$worker1" || fail "$(cat "$work/1.out")"
    wait "$worker2" || fail "$(cat "$work/2.out")"
}

number() { # file, key: the first number of that name in the JSON object
    tr ',{}' '\n' <"$1" | sed -n "s/^\"$2\":\([0-9.]*\)\$/\1/p" | head -n 1
}

# Of the run that the standby ended: the weights, and the fates of all tasks.
check() {
    [ "$(number "$work/second.json" loss)" = "$loss" ] ||
        fail "loss $loss, after the standby took over $(cat "$work/second.json" "$work"/*.err)"
    fates "$work/second.json"
}

undisturbed() { # updates; the loss after them
    # shellcheck disable=SC2086
    "$paceline" train $run --updates "$1" --json >"$work/alone" 2>"$work/alone.err" ||
        fail "$(cat "$work/alone.err")"
    loss=$(number "$work/alone" loss)
    [ -n "$loss" ] || fail "$(cat "$work/alone")"
}

# The standby has taken over from a run that ends when it is told to: it makes more updates, and is
# told. However slow this machine is, the run was not over before.
end_second() {
    await "$work/second.err" "it takes over after update"
    took=$(sed -n 's/.*takes over after update \([0-9]*\).*/\1/p' "$work/second.err")
    for w in 1 2; do await "$work/second.err" "worker $w joined"; done
    n=0
    until [ "$(sed -n 's/.*"updates":\([0-9]*\).*/\1/p' "$work/points" | tail -n 1)" -gt "$took" ] \
        2>/dev/null; do
        n=$((n + 1))
        [ $n -lt 1800 ] || fail "no update after $took: $(cat "$work"/*.err)"
        sleep 0.1
    done
    kill "$second"
    wait "$second" || fail "$(tail -n 20 "$work"/*.err "$work"/*.out)"
    made=$(number "$work/second.json" updates)
    undisturbed "$made"
    check
}

# The server dies at this moment, and its standby goes on.
replace_endless() {
    kill -9 "$first"
    end_second
    wait "$worker1" || fail "$(cat "$work/1.out")"
    wait "$worker2" || fail "$(cat "$work/2.out")"
}

undisturbed 200
of_200=$loss

echo "-- killed at any moment"
for moment in 0 0.15 0.3; do
    begin --updates 1000000 --delay const:t=0.01
    sleep $moment
    replace_endless
done
loss=$of_200

echo "-- killed in the middle of an upload"
stall_worker="up 400000" # a result has 19 kB
begin --updates 200
await "$work/stall.out" "stalled"
replace
stall_worker=

echo "-- killed in the middle of a copy"
stall_standby="down 900000"
begin --updates 200
await "$work/stall.out" "stalled"
replace
stall_standby=

echo "-- killed in the middle of an update"
begin --updates 1000000 --update-time 0.05
sleep 1
replace_endless

echo "-- its progress is that of the run"
json=
begin --updates 1000000 --time 25 --delay const:t=0.01
kill -9 "$first"
await "$work/second.err" "^ *[0-9]* %  "
kill "$second"
wait "$second" || fail "$(tail -n 20 "$work"/*.err "$work"/*.out)"
sed -n 's/^ *\([0-9]*\) %  \([0-9.]*\) s .*/\1 \2/p' "$work/second.err" >"$work/shown"
awk '{ d = $1 - 4 * $2; bad += d > 1.1 || d < -1.1 } END { exit NR < 1 || bad }' "$work/shown" ||
    fail "$(cat "$work/second.err")"
json=--json

echo "-- a server that hangs is replaced, and makes no more updates"
begin --updates 1000000 --delay const:t=0.01
kill -STOP "$first"
await "$work/second.err" "it takes over after update"
for w in 1 2; do await "$work/$w.out" "joining again after update"; done
await "$work/second.err" "worker 2 joined"
kill -CONT "$first"
await "$work/first.err" "lost its connection"
end_second
kill "$first"
wait "$first" || :
made=$(number "$work/first.json" updates) # one that nobody has seen may be among them
[ "$made" -le $((took + 1)) ] || fail "$made updates, and the standby took over after $took"

echo "-- a standby that is cut off does not take over"
begin --updates 1000000 --delay const:t=0.002
kill -STOP "$second"
await "$work/first.err" "is lost; until it returns"
kill -CONT "$second"
n=0
until [ "$(grep -c "a standby follows at" "$work/first.err")" = 2 ]; do
    n=$((n + 1))
    [ $n -lt 1200 ] || fail "it does not return: $(cat "$work/first.err" "$work/second.err")"
    sleep 0.1
done
kill "$first"
wait "$first" || fail "$(cat "$work/first.err")"
wait "$second" || fail "$(cat "$work/second.err")"
grep -q "takes over" "$work/second.err" && fail "$(cat "$work/second.err")"
grep -q "the standby was not needed" "$work/second.err" || fail "$(cat "$work/second.err")"

echo "-- nobody votes for others"
rm -f "$work"/*.err "$work"/*.out "$work"/*.json
# shellcheck disable=SC2086
serve first $run --updates 1000000 --listen 127.0.0.1:0
first=$server
"$paceline" serve --standby "http://127.0.0.1:$port" --json --listen 127.0.0.1:0 \
    >"$work/second.json" 2>"$work/second.err" &
second=$!
pids="$pids $second"
await "$work/second.err" "standby on port"
curl -sf -D "$work/head" -o "$work/about" -X POST -H 'Paceline-Protocol: 1' \
    "http://127.0.0.1:$port/v1/seats"
start_worker other "127.0.0.1:$port"
await "$work/other.out" "has a standby at"
said() { # header
    tr -d '\r' <"$work/head" | sed -n "s/^$1: //ip"
}
vote() { # key, POST or DELETE; prints the status
    curl -s -o "$work/body" -w '%{http_code}' -X "$2" -H 'Content-Length: 0' \
        -H "Paceline-Seat: $1" -H "Paceline-Run: $(said Paceline-Run)" \
        -H "Paceline-Epoch: $(said Paceline-Epoch)" -H 'Paceline-Seen: 0' \
        "http://127.0.0.1:$(sed -n 's/.*standby on port //p' "$work/second.err")/v1/votes"
}
kill -9 "$worker" "$first"
await "$work/second.err" "does not answer"
key=$(said Paceline-Seat)
for n in 0 1 2 3; do # of other workers, were they valid
    [ "$(vote "0000000$n$(echo "$key" | cut -c 9-31)x" POST)" = 403 ] || fail "$(cat "$work/body")"
done
sleep 1 # it looks ten times as often
grep -q "takes over" "$work/second.err" && fail "$(cat "$work/second.err")"
[ "$(vote "$key" POST)" = 503 ] || fail "$(cat "$work/body")"
[ "$(vote "$key" DELETE)" = 204 ] || fail "$(cat "$work/body")" # taken back
kill -9 "$second"

echo "-- what is wrong is said"
"$paceline" serve --standby first:7070 2>"$work/err" && fail "no address"
grep -q "write https://HOST:PORT" "$work/err" || fail "$(cat "$work/err")"
"$paceline" train --standby http://first:7070 2>"$work/err" && fail "nowhere to take over"
grep -q "needs --listen HOST:PORT" "$work/err" || fail "$(cat "$work/err")"

echo "-- only a server can be one"
# shellcheck disable=SC2086
"$paceline" serve $run --updates 10 --listen 127.0.0.1:0 --keys "$work/keys" >"$work/out" \
    2>"$work/alone.err" &
pids="$pids $!"
await "$work/alone.err" "workers can join over"
code=$(curl -s -o "$work/body" -w '%{http_code}' --cacert "$work/keys/ca.pem" \
    --cert "$work/keys/worker.pem" --key "$work/keys/worker-key.pem" \
    -H 'Paceline-Address: 127.0.0.1:1' "https://127.0.0.1:$(port_of "$work/alone.err")/v1/copy")
[ "$code" = 403 ] || fail "$code $(cat "$work/body")"
