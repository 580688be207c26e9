#!/bin/sh
# A run knows what it is: the header, run.json wherever a run leaves something, and folders of
# checkpoints that belong to one run. Runs in a fresh directory.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

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
    [ -z "$python" ] || "$python" -c 'import json, sys
assert isinstance(json.load(open(sys.argv[1], encoding="utf-8")), dict)' "$1" ||
        fail "$1 is no JSON object: $(cat "$1")"
}

id_of() {
    sed -n 's/^  "id": "\(.*\)",$/\1/p' "$1"
}

small='--data digits:samples=300,test=50 --model softmax'

step "the header"
# shellcheck disable=SC2086
works simulate $small --method abs --workers 3 --updates 20 --target-accuracy 0.99 \
    --log-dir log --record run.rec
has err ': simulate, run ' 'model     softmax, 2570 parameters' '3, simulated by ' \
    'data      digits:samples=300,test=50: 300 training and 50 test samples' \
    '256 features, 10 classes' \
    'method    abs: policy kasync:k=1,stop=yes, tuner abs' 'delays    exp:mean=1 per mini-batch' \
    'limits    20 updates' 'target    test accuracy 0.99'
! grep -q 'samples repeat' err || fail "a mini-batch is smaller: $(cat err)"
# shellcheck disable=SC2086
works simulate $small --updates 5 --batch 301
has err 'a mini-batch is larger than the training set: samples repeat in it'
# shellcheck disable=SC2086
works simulate $small --updates 5 --quiet
[ ! -s err ] || fail "--quiet says $(cat err)"
works train --model quadratic --workers 70 --updates 5
has err '70 (processes) on ' 'more workers than cores'
works train --model quadratic --workers 1 --spawn threads --updates 5 --delay const:t=0.001
has err '1 (threads) on ' 'const:t=0.001, added to each task'
! grep -q 'more workers' err || fail "one worker is more than the cores: $(cat err)"

if taskset -c 0 true 2>/dev/null; then
    taskset -c 0 "$PACELINE" train --model quadratic --updates 5 >out 2>err || fail "$(cat err)"
    has err 'workers   1 (processes) on 1 core'
    taskset -c 0 "$PACELINE" race sync --real --model quadratic --updates 5 \
        --delay const:t=0.001 --out real >out 2>err || fail "$(cat err)"
    has err 'workers   1 (processes) on 1 core'
    has real/results.jsonl '"workers":1,'
fi
if taskset -c 0 true 2>/dev/null && [ -r /proc/self/schedstat ]; then
    taskset -c 0 "$PACELINE" train --data digits --method sync --workers 8 --updates 40 --json \
        --log-dir cores >out 2>err || fail "$(cat err)"
    waited=$(sed 's/.*"core_wait":\([^,}]*\).*/\1/' out)
    awk "BEGIN { exit !($waited > 0) }" ||
        fail "eight workers on one core did not wait for it: $(cat out)"
    has cores/run.json "\"core_wait\": $waited"
    has cores/history.json "\"core_wait\":$waited,"
    # it is a part of two of the shares, so it is not more than these two, in whatever digits
    taskset -c 0 "$PACELINE" train --model quadratic --method sync --workers 8 --updates 200 \
        >out 2>err || fail "$(cat err)"
    has out '  waiting for a core ' ' % of worker time, part of compute'
    awk '/^  worker time/ { most = $3 + $12 } /^  waiting for a core/ { waited = $5 }
        END { exit !(waited <= most + 0.1) }' out || fail "more waiting than computing: $(cat out)"
fi
works simulate --model quadratic --updates 5
has err 'workers   8, simulated by '

step "the command line of a run"
# again FILE: sh runs the command line in FILE, and gets the results of the run
mkdir bin && ln -s "$PACELINE" bin/paceline
same='import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
a.pop("run"), b.pop("run")
sys.exit(a != b)'
again() {
    [ -n "$python" ] || return 0
    line=$("$python" -c 'import json, sys
print(json.load(open(sys.argv[1]))["command_line"])' "$1")
    PATH=$PWD/bin:$PATH sh -c "$line --json --quiet" >two.json 2>err || fail "$line: $(cat err)"
    "$python" -c "$same" one.json two.json || fail "$line: $(cat one.json two.json)"
}
mkdir 'sp ace'
awk 'BEGIN { for (i = 0; i < 60; i++) print i % 7 "," i % 5 "," i % 2 }' >"sp ace/it's \$1.csv"
works simulate --data "csv:sp ace/it's \$1.csv" --model softmax --method kasync:k=2 \
    --optim momentum --delay '3*exp:mean=1|const:t=5' --workers 4 --time 30 --seed 3 \
    --log-dir told --json
mv out one.json
again told/run.json
again told/history.json
works simulate --model none --policy ksync:k=2 --net latency=0.1,bytes=1000 \
    --updates 30 --history one-history.json --record mine.rec --json
mv out one.json
again one-history.json
works replay mine.rec --history replayed.json --json
mv out one.json
again replayed.json
# shellcheck disable=SC2086
works race sync@lr=0.3 async@lr=0.05@optim=momentum $small --workers 3 --updates 30 --seeds 1 \
    --out r
"$python" -c 'import json
for line in open("r/results.jsonl"):
    r = json.loads(line)
    if r["entrant"].startswith("async"): print(json.dumps(dict(r["result"], run=0)))' >one.json
again r/history-02.json

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

step "the token of --requests is in no file"
# shellcheck disable=SC2086
for way in "--requests secret-token" --requests=secret-token; do
    rm -rf token && mkdir token
    works train $small --workers 1 --updates 3 --listen token/s $way --quiet \
        --checkpoint token/c --log-dir token/l --record token/r --history token/h
    ! grep -r 'secret-token' token >out || fail "$(head -c 200 out)"
    has token/c/run.json '"requests": "***"' '***", "--quiet"'
    works train --resume token/c --updates 5 --listen token/s $way --quiet
    ! grep -r 'secret-token' token >out || fail "resumed: $(head -c 200 out)"
done

step "races"
works race sync async --model quadratic --workers 2 --updates 20 --seeds 2 --out raced
for file in run run-01-seed1 run-01-seed2 run-02-seed1 run-02-seed2; do
    object raced/$file.json
done
has err ': race, run ' 'entrants  sync, async' 'seeds     2 from 1, simulated'
has raced/run.json '"kind": "race"' '"method": null' '"entrants": ["sync", "async"]' \
    '"why": "finished"'
has raced/run-02-seed2.json '"kind": "simulate"' '"name": "async"' '"why": "updates"' '"seed": 2'
id=$(id_of raced/run-02-seed2.json)
has raced/results.jsonl "{\"entrant\":\"async\",\"run\":\"$id\",\"seed\":2"
works race sync --model quadratic --workers 2 --updates 5 --real --quiet --out quiet
[ ! -s err ] || fail "race --quiet says $(cat err)"

step "a folder of checkpoints belongs to one run"
few="$small --workers 2 --quiet"
# shellcheck disable=SC2086
works train $small --workers 2 --updates 30 --checkpoint ck --checkpoint-every 1000
has err 'weights   saved to ck every 1000 updates'
has ck/run.json '"kind": "train"' '"why": "updates"' '"resumed": null'
first=$(id_of ck/run.json)
grep -aq "\"run_id\":\"$first\"" ck/latest || fail "the checkpoint lacks the id $first"
# shellcheck disable=SC2086
refused "folder 'ck' holds the checkpoints of another run ($first, updates 30)" \
    train $few --lr 0.01 --updates 10 --checkpoint ck
has err 'continue that run with --resume ck, or give another folder with --checkpoint'
[ "$(id_of ck/run.json)" = "$first" ] || fail "a run that was refused wrote run.json"
# shellcheck disable=SC2086
works train $few --updates 10 --checkpoint other
refused "folder 'ck' holds the checkpoints of another run" train --resume other --checkpoint ck
# shellcheck disable=SC2086
works train $small --workers 2 --updates 5
has err 'weights   not saved; --checkpoint DIR saves them'

step "a resumed run goes on saving"
works train --resume ck --updates 40
has err 'resumed   from ck/checkpoint-0000000030.safetensors at update 30' 'saved to ck every 1000'
second=$(id_of ck/run.json)
works train --resume ck --updates 50 --quiet
works train --resume ck --updates 60 --quiet
[ "$(readlink ck/latest)" = checkpoint-0000000060.safetensors ] || fail "not saved: $(ls ck)"
has ck/run.json "\"origin\": \"$first\"" '"updates": 50'
! grep -q "\"run\": \"$first\"" ck/run.json || fail "resumed from the first run: $(cat ck/run.json)"
[ "$second" != "$first" ] || fail "a resumed run has the id of the run it continues"
# from before the newest: latest is what was written last, and rotation removes the other branch
cp -r ck branch
works train --resume branch/checkpoint-0000000040.safetensors --updates 45 --quiet
[ "$(readlink branch/latest)" = checkpoint-0000000045.safetensors ] || fail "$(ls -l branch)"
works eval branch --json
has out '{"updates":45,'
works train --resume branch --updates 49 --quiet
works eval branch --json
has out '{"updates":49,'
[ "$(ls branch | grep -c '^checkpoint')" -eq 3 ] || fail "rotation: $(ls branch)"
[ ! -e branch/checkpoint-0000000060.safetensors ] || fail "the newest branch lost: $(ls branch)"
# rotation leaves what another run wrote
cp other/checkpoint-0000000010.safetensors branch/checkpoint-0000000001.safetensors
works train --resume branch --updates 70 --quiet
[ -e branch/checkpoint-0000000001.safetensors ] || fail "rotation removed another run's file"
works train --resume ck --checkpoint new --updates 65 --quiet
[ -e new/checkpoint-0000000065.safetensors ] || fail "--checkpoint new: $(ls new)"
[ ! -e ck/checkpoint-0000000065.safetensors ] || fail "--checkpoint new: saved to ck"

step "the best"
works eval ck/best --json
best=$(sed 's/.*"test_accuracy":\([0-9.]*\).*/\1/' out)
works eval ck --json
last=$(sed 's/.*"test_accuracy":\([0-9.]*\).*/\1/' out)
awk "BEGIN { exit !($best >= $last && $best > 0.1) }" || fail "best $best, last $last"
# a learning rate that ruins the model does not replace it, whether the run diverges in time or not
"$PACELINE" train --resume ck --lr 1000 --updates 75 --checkpoint ruined --quiet >out 2>err || :
"$PACELINE" eval ruined/best >out 2>&1 || has out 'the run of this checkpoint diverged'
cp -r ck worse
"$PACELINE" train --resume worse --lr 500 --updates 65 --quiet >out 2>err || :
cmp -s ck/best worse/best || fail "a worse model became the best"
refused 'without the state of their run, which cannot be continued' \
    train --resume ck/best --updates 80
# a folder with the best weights alone leads to what can be done with them
mkdir alone
cp ck/best.safetensors alone
ln -s best.safetensors alone/best
only="folder 'alone' has only the best weights of an earlier run, which cannot be continued"
# shellcheck disable=SC2086
refused "$only" train $small --workers 2 --updates 5 --checkpoint alone
# shellcheck disable=SC2086
refused "$only" train $small --workers 2 --updates 5 --checkpoint alone --resume auto
refused "$only" train --resume alone
refused "$only" eval alone
has err 'evaluate them with paceline eval alone/best.safetensors'
works eval alone/best.safetensors
# without a test set the loss decides; a model of its own kind has no accuracy
works train --model quadratic --workers 2 --updates 30 --checkpoint plain --quiet
works eval plain/best

step "damaged and diverged"
cp -r ck hurt
printf not-these-bytes |
    dd of=hurt/checkpoint-0000000060.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
refused 'its SHA-256 does not match; the one before it is intact: hurt/checkpoint-' \
    train --resume hurt --updates 70
works train --resume auto --checkpoint hurt --updates 70
has err "warning: checkpoint 'hurt/checkpoint-0000000060.safetensors' is damaged" \
    'resuming from hurt/checkpoint-0000000050'
[ "$(readlink hurt/latest)" = checkpoint-0000000070.safetensors ] || fail "$(ls -l hurt)"
# an update overflows although its gradient is finite
"$PACELINE" train --model quadratic --workers 1 --lr 1e6 --updates 1000 --checkpoint gone \
    --checkpoint-every 1 --quiet >out 2>err && fail "lr 1e6 does not diverge"
has err 'is not finite and is not saved'
# the same in the very last update, after which nobody computes
"$PACELINE" train --method kasync --model quadratic --workers 1 --lr 1e6 --updates 7 \
    --checkpoint last --quiet >out 2>err && fail "a model that could not be saved is success"
has err 'the model after update 7 is not finite and is not saved; there is no checkpoint yet; these'
if [ -e gone/latest ]; then
    "$PACELINE" eval gone --json >out 2>err && fail "eval does not say that it diverged: $(cat out)"
    ! grep -q '"loss":null' out || fail "a model that is not finite was saved: $(cat out)"
fi

step "nohup"
(
    trap '' HUP
    exec "$PACELINE" train --model quadratic --workers 2 --time 1 --log-dir nohup --quiet >out 2>err
) &
while [ ! -s nohup/points.jsonl ] && kill -0 $! 2>/dev/null; do sleep 0.1; done
kill -s HUP $!
wait $! || fail "nohup: status $?, $(cat err)"
has nohup/run.json '"why": "time"'

step "waiting for a core is measured always"
"$PACELINE" train --model quadratic --workers 1 --updates 50 --json >out 2>err
[ ! -r /proc/self/schedstat ] || ! grep -q '"core_wait":null' out || fail "$(cat out)"

step "one at a time"
if command -v flock >/dev/null; then
    flock --no-fork ck/.lock sleep 60 &
    while flock -n ck/.lock true; do sleep 0.05; done
    refused "another run is writing checkpoints to 'ck'" train --resume ck --updates 90
    kill $!
    wait
fi

[ $bad -eq 0 ] && echo "all as it should be"
exit $bad
