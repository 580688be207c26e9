#!/bin/sh
# A run knows what it is: the header, run.json wherever a run leaves something, and folders of
# checkpoints that belong to one run. Runs in a fresh directory.
set -u
: "${PACELINE:?}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0

fail() {
    echo "FAIL: $*" >&2
    bad=1
}

step() {
    echo "-- $*"
}

# works ARGUMENTS...: status 0; standard output in out, standard error in err.
works() {
    "$PACELINE" "$@" >out 2>err || fail "paceline $*: status $?, $(cat err)"
}

# refused WORDS ARGUMENTS...: fails, with WORDS on standard error and nothing on standard output.
refused() {
    words=$1
    shift
    "$PACELINE" "$@" >out 2>err && fail "paceline $* was not refused"
    grep -qF -- "$words" err || fail "paceline $*: \"$(cat err)\" lacks \"$words\""
    [ ! -s out ] || fail "paceline $*: wrote to standard output"
}

# has FILE WORDS...: FILE has each of WORDS.
has() {
    file=$1
    shift
    for words; do
        grep -qF -- "$words" "$file" || fail "$file lacks \"$words\": $(head -c 2000 "$file")"
    done
}

python=$(command -v /usr/bin/python3 || command -v python3 || :)

# object FILE: FILE is one JSON object.
object() {
    [ -z "$python" ] || "$python" -c 'import json, sys; assert isinstance(json.load(open(sys.argv[1],
encoding="utf-8")), dict)' "$1" || fail "$1 is no JSON object: $(cat "$1")"
}

id_of() {
    sed -n 's/^  "id": "\(.*\)",$/\1/p' "$1"
}

small='--data digits:samples=300,test=50 --model softmax'

step "the header"
# shellcheck disable=SC2086
works simulate $small --workers 3 --updates 20 --target-accuracy 0.99 --log-dir log --record run.rec
has err ': simulate, run ' 'model     softmax, 2570 parameters' '3, simulated by ' \
    'data      digits:samples=300,test=50: 300 training and 50 test samples, 256 features, 10 classes' \
    'method    abs: policy kasync:k=1,stop=yes, tuner abs' 'delays    exp:mean=1 per mini-batch' \
    'limits    20 updates' 'target    test accuracy 0.99'
# shellcheck disable=SC2086
works simulate $small --updates 5 --quiet
[ ! -s err ] || fail "--quiet says $(cat err)"
works train --model quadratic --workers 70 --updates 5
has err '70 (processes) on ' 'more workers than cores'
works train --model quadratic --workers 1 --spawn threads --updates 5 --delay const:t=0.001
has err '1 (threads) on ' 'const:t=0.001, added to each task'
! grep -q 'more workers' err || fail "one worker is more than the cores: $(cat err)"

step "run.json"
object log/run.json
has log/run.json '"kind": "simulate"' '"command": ["' '"simulate", "--data"' '"why": "updates"' \
    '"parameters": 2570' '"train": 300' '"policy": "kasync:k=1,stop=yes"' '"workers": "3"' \
    '"lr-schedule": "constant"' '"trouble": null'
! grep -q '"ended": null' log/run.json || fail "a run that has ended has no end"
grep -aq "^run={\"id\":\"$(id_of log/run.json)\"" run.rec || fail "the recording has another id"
works replay run.rec --record again.rec --log-dir replayed --json
cmp -s run.rec again.rec || fail "a replay records something else"
has replayed/run.json '"kind": "replay"' '"why": "recording"'
has out '"run":{"id":"'
"$PACELINE" train --model quadratic --lr 1000 --workers 2 --log-dir diverged >out 2>err
has diverged/run.json '"why": "diverged"'
works train --model quadratic --workers 2 --time 0.3 --log-dir timed
has timed/run.json '"why": "time"' '"kind": "train"'
"$PACELINE" simulate --model quadratic --updates 3 --seed 2 --log-dir "$(printf 'odd\377')" \
    >out 2>err || fail "a path that is not UTF-8: $(cat err)"
object "$(printf 'odd\377')/run.json"

step "races"
works race sync async --model quadratic --workers 2 --updates 20 --seeds 2 --out raced
for file in run run-01-seed1 run-01-seed2 run-02-seed1 run-02-seed2; do object raced/$file.json; done
has err ': race, run ' 'entrants  sync, async' 'seeds     2 from 1, simulated'
has raced/run.json '"kind": "race"' '"method": null' '"entrants": ["sync", "async"]' '"why": "finished"'
has raced/run-02-seed2.json '"kind": "simulate"' '"name": "async"' '"why": "updates"' '"seed": 2'
has raced/results.jsonl "{\"entrant\":\"async\",\"run\":\"$(id_of raced/run-02-seed2.json)\",\"result\":"
works race sync --model quadratic --workers 2 --updates 5 --real --quiet --out quiet
[ ! -s err ] || fail "race --quiet says $(cat err)"

[ $bad -eq 0 ] && echo "all as it should be"
exit $bad
