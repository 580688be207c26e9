# For tests that start servers and workers, which are killed at the end, in a folder of their own,
# $work, which is removed: . "$SOURCE_DIR/tests/shell/network.sh"
set -eu
: "${PACELINE:?}"
paceline=$PACELINE
work=$(mktemp -d)
pids=
. "${SOURCE_DIR:?}/tests/shell/children.sh"
trap 'end_children $pids; rm -rf "$work"' EXIT
export TMPDIR="$work"

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

if "$paceline" keys --out "$work/none" 2>&1 | grep -q "this build cannot"; then
    echo "skipped: this build has no GnuTLS"
    exit 77
fi
rm -rf "$work/none"

# Waits until a file has a line.
await() { # file, pattern
    n=0
    until grep -q "$2" "$1" 2>/dev/null; do
        n=$((n + 1))
        [ $n -lt 1800 ] || fail "'$2' did not come: $(cat "$1")"
        sleep 0.1
    done
}

port_of() { # file with the server's messages
    sed -n 's/.* on port \([0-9]*\).*/\1/p' "$1" | head -n 1
}

# Starts a server; $port is where it listens.
serve() { # name, options …
    name=$1
    shift
    "$paceline" serve --json "$@" >"$work/$name.json" 2>"$work/$name.err" &
    server=$!
    pids="$pids $server"
    await "$work/$name.err" "workers can join over"
    port=$(port_of "$work/$name.err")
}

start_worker() { # name, address, options …
    name=$1
    shift
    "$paceline" work "$@" >"$work/$name.out" 2>&1 &
    worker=$!
    pids="$pids $worker"
}

# Connections go to that address; one stalls (stall.py). $through is its port.
stall() { # HOST:PORT, up or down, bytes or signal, and a command that starts it elsewhere …
    at=$1 way=$2 when=$3
    shift 3
    "$@" python3 "$SOURCE_DIR/tests/shell/stall.py" "$at" "$way" "$when" >"$work/stall.out" &
    stall=$!
    pids="$pids $stall"
    await "$work/stall.out" "port"
    through=$(sed -n 's/port //p' "$work/stall.out")
}

# How many lines of a file match.
lines() { # file, pattern
    grep -c "$2" "$1" || :
}

# In the JSON object of a run that a server printed, each task has one fate.
fates() { # file
    python3 - "$1" <<'PY' || fail "$(cat "$1")"
import json, sys
tasks = json.loads(open(sys.argv[1]).read().splitlines()[-1])["tasks"]
assert tasks.pop("started") == sum(tasks.values()), tasks
PY
}

# The run has ended because it reached its target.
reached() { # file
    grep -q '"why":"target"' "$1" || fail "$(cat "$1")"
}
