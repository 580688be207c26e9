#!/bin/sh
# The command line: exit statuses, one sentence on standard error for everything that is wrong, one
# JSON object where it was asked for, and nothing lost or written over. Runs in a fresh directory.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# Splits standard error in whole into the header of a run, in header, and everything else, in err.
split() {
    : >header
    awk '/^paceline [0-9.]+: [a-z]+, run / { head = 1 }
        head && !/^paceline [0-9]/ && !/^  / { head = 0 }
        { print > (head ? "header" : "/dev/stdout") }' whole >err
}

# Runs the program with standard output in out, the header of the run in header, everything else on
# standard error in err, status in $status.
run() {
    "$PACELINE" "$@" >out 2>whole
    status=$?
    split
}

# refused STATUS WORDS ARGUMENTS...: this status, one sentence that holds WORDS on standard error,
# nothing on standard output.
refused() {
    wanted=$1
    words=$2
    shift 2
    run "$@"
    [ "$status" -eq "$wanted" ] || fail "paceline $*: status $status, not $wanted"
    [ "$(wc -l <err)" -eq 1 ] || fail "paceline $*: not one line on standard error: $(cat err)"
    case $(cat err) in
    'paceline: '*"$words"*) ;;
    *) fail "paceline $*: \"$(cat err)\" lacks \"$words\"" ;;
    esac
    [ ! -s out ] || fail "paceline $*: wrote to standard output"
}

# Standard error without progress (progress.sh), and without warnings about slow workers: on a
# busy machine any worker may be one.
said() {
    grep -v -e '^  tuned ' -e '^paceline: warning: .*worker [0-9]* is slow: ' \
        -e ' workers [-0-9]*/[0-9]*  unused [0-9]*$' -e '^[0-9]* of .*[0-9] runs done' err
}

# works ARGUMENTS...: status 0, silent on standard error.
works() {
    run "$@"
    [ "$status" -eq 0 ] || fail "paceline $*: status $status, $(cat err)"
    [ -z "$(said)" ] || fail "paceline $*: said $(cat err)"
}

keys='method policy workers seed lr time updates time_per_update tasks started applied dropped'
keys="$keys cancelled lost rejected running suspended quarantined evicted frozen steps min median"
keys="$keys max staleness mean max fresh_fraction"
keys="$keys worker_time compute communication idle wasted loss test_loss test_accuracy test_rmse"
keys="$keys time_to_target target_within k_final policy_final consensus core_wait diverged "

# out holds one JSON object with these keys in this order, then what the run was, and nothing else.
# Leaves the results alone in out: they are the same for the same run.
json() {
    [ "$(wc -l <out)" -eq 1 ] || fail "$1: not one line of JSON"
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys; json.load(sys.stdin)' <out || fail "$1: not JSON: $(cat out)"
    fi
    grep -q ',"run":{"id":"[0-9]*-[0-9]*-[0-9a-f]*","kind":"' out || fail "$1: no run: $(cat out)"
    sed 's/,"run":{.*/}/' out >results && mv results out
    [ "$(grep -o '"[a-z_]*":' out | tr -d '":' | tr '\n' ' ')" = "$keys" ] ||
        fail "$1: other keys: $(cat out)"
}

small='--data digits:samples=300,test=50 --model softmax --workers 3'

step "help, version, manual"
all="train simulate serve work keys launch race replay report eval predict plan reproduce list"
for command in $all; do
    works $command --help
    grep -q "^usage: paceline $command" out || fail "$command --help has no usage"
    works $command -h
done
works --help
for command in $all; do
    grep -q "^  $command " out || fail "--help does not mention $command"
done
works help
works --version
grep -Eq '^paceline [0-9]+\.[0-9]+\.[0-9]+ \([a-z0-9]+\)$' out || fail "--version says $(cat out)"
export PACELINE_ISA=mmx
refused 2 "PACELINE_ISA is 'mmx'" simulate --workers 2 --updates 1
unset PACELINE_ISA
run
[ $status -eq 2 ] || fail "no command at all: status $status"
grep -q '^usage:' err || fail "no command at all: no usage on standard error"
works --man
cp out paceline.1
grep -q '^\.TH PACELINE 1' paceline.1 || fail "--man is no manual page"
for command in $all; do
    grep -q "^\.B $command$" paceline.1 || fail "--man does not mention $command"
done
if command -v groff >/dev/null; then
    groff -ww -man -Tutf8 -z paceline.1 2>err || fail "groff fails on --man"
    [ ! -s err ] || fail "groff warns about --man: $(head -3 err)"
fi
# (a system without manuals may have a man that only says so)
if command -v man >/dev/null && man -l paceline.1 >page 2>err && grep -q PACELINE page; then
    [ ! -s err ] || fail "man -l warns: $(head -3 err)"
    grep -q fastest page || fail "man -l shows no methods"
fi

step "the planner"
works plan --workers 4 --delay exp:mean=1 --policy ksync --convexity 0.1
grep -q '^    1  ksync               0.25            4          0       0.1562 ' out ||
    fail "plan: eta L sigma^2 / (2 c K m) is 0.15625, not: $(sed -n 2p out)"

works plan --workers 8 --delay exp:mean=1
[ "$(grep -c '^ *[0-9]*  k' out)" -le 8 ] || fail "plan shows more than the best few: $(cat out)"
grep -q '^assumed: exp:mean=1, .* lr 0.1, batch 32' out || fail "plan does not say what it assumes"
grep -q '^plan cannot know which is best: --policy k' out || fail "plan knows too much: $(cat out)"
! grep -q '<- best K$' out && grep -q '<- best K of this policy$' out || fail "plan: $(cat out)"
grep -q '^  paceline race k.* --workers 8 --delay ' out || fail "plan has no race: $(cat out)"
works plan --workers 8 --delay exp:mean=1 --all
[ "$(grep -c '^ *[0-9]*  k' out)" -eq 32 ] || fail "plan --all does not show all"
works plan --workers 8 --delay const:t=1 --noise 0.001
grep -q '^recommended: --policy k' out || fail "plan recommends nothing: $(cat out)"
works plan --workers 1 --delay exp:mean=1
grep -q '^the bound reaches the target for no K' out || fail "plan for one worker: $(cat out)"
! grep -q 'paceline race' out || fail "a race of a method with itself: $(cat out)"

step "lists"
works list
for family in method policy tuner correct reduce optim local filter schedule model data partition \
    delay attack option; do
    grep -q "^$family: " out || fail "list lacks $family"
done
works list method optim
grep -q '^optim: ' out || fail "list method optim"

works list --json
[ "$(wc -l <out)" -eq 1 ] || fail "list --json: not one line"
for family in method delay option; do
    grep -q "{\"family\":\"$family\",\"name\":" out || fail "list --json lacks $family"
done
works list --json filter kasync
grep -q '^\[{"family":"filter","name":"none",' out || fail "list --json filter: $(cat out)"
grep -q '{"family":"method","name":"kasync",' out || fail "list --json kasync: $(cat out)"
! grep -q '"family":"optim"' out || fail "list --json filter kasync: too much"
works list --json zeno++
grep -q '"method":{"name":"zeno++","policy":"kasync:k=1".*},"needs":\["reference",' out ||
    fail "list --json zeno++: $(cat out)"
refused 2 "did you mean 'kasync'?" list --json kasinc

step "unknown names, with the nearest"
refused 2 "did you mean 'simulate'?" simulat
commands="train, simulate, serve, work, keys, launch, race, replay, report, eval, predict, plan"
refused 2 "the commands are $commands, reproduce, list" frobnicate
refused 2 "did you mean --workers?" simulate --workres 3
refused 1 "virtual time stands still" simulate --model none --delay const:t=0 --time 10
refused 2 "but the machine has" simulate --method sync --workers 1000000 --data digits --updates 1
refused 2 "--updates 0 means no limit" simulate --model quadratic --updates 0
refused 2 "log has a line per evaluation" simulate --model none --log x
refused 2 "race has no option --log" race sync --log x --model none
refused 2 "train has no option --net; commands that have it: simulate, race, replay" \
    train --net latency=1
refused 2 "simulate has no option --metrics; commands that have it: train" simulate --metrics 0
refused 2 "net: there is no option" simulate --net latancy=1 --model none
refused 2 "see paceline simulate --help" simulate --qqqq 3
refused 2 "did you mean --workers?" plan --worker 3
refused 2 "did you mean 'gap-aware'?" simulate --method gap-awre
refused 2 "did you mean 'ksync'?" simulate --policy ksnc
refused 2 "did you mean 'kasync'?" race kasinc --model none
refused 2 "did you mean 'exp'?" simulate --delay exponential --model none
refused 2 "did you mean 'mean'?" simulate --delay exp:maen=1 --model none
refused 2 "'paceline list kasync' shows" simulate --method kasync:kk=3
refused 2 "no method is called 'zzzz'; 'paceline list method' shows them" simulate --method zzzz
refused 2 "there is no family, method or part 'polcy'; did you mean 'policy'?" list polcy
refused 2 "did you mean 'method'?" list methods
refused 2 "did you mean 'kasync'?" list kasinc
refused 2 "did you mean 'train'?" help trian
refused 2 "'paceline list' shows all" list qqq
refused 2 "is not one of ksync" plan --policy nosuch
refused 2 "'3' is not expected here; flags of simulate are --NAME VALUE" simulate 3
refused 2 "'-x' is not a flag" simulate -x
refused 2 "needs a value" simulate --workers
refused 2 "takes no value" simulate --json=yes

step "values out of range, not numbers, empty"
refused 2 "--workers=0 is not accepted; workers takes a whole number from 1" simulate --workers 0
refused 2 "--workers=-3" simulate --workers=-3
refused 2 "--workers=1.5" simulate --workers 1.5
refused 2 "--workers=99999999999999999999" simulate --workers 99999999999999999999
refused 2 "--lr=nan" simulate --lr nan
refused 2 "--lr=inf" simulate --lr inf
refused 2 "--lr=-inf" simulate --lr -inf
refused 2 "--lr needs a value" simulate --lr ''
refused 2 "--updates=1e400" simulate --updates 1e400
refused 2 "--workers needs a value" simulate --workers=
refused 2 "--delay needs a value" simulate --model none --delay ''
refused 2 "--model needs a value" simulate --model ''
refused 2 "--data needs a value" simulate --data ''
refused 2 "--lr-schedule needs a value" simulate --model quadratic --lr-schedule ''
refused 2 "mean=nan" simulate --model none --delay exp:mean=nan
refused 2 "cannot end with a comma" simulate --model none --delay exp:mean=1,
refused 2 "k=0" simulate --model none --policy ksync:k=0
refused 2 "k cannot be more than the number of workers" simulate --model none --policy ksync:k=9
refused 2 "k cannot be more than the number of workers" simulate --model none --method kasync:k=9
refused 2 "more than the number of workers" race kasync:k=9 --model none --out never
refused 2 "one at a time" simulate --model none --optim dana --policy kasync:k=2
refused 2 "--seeds 0" race sync --model none --seeds 0
refused 2 "--seeds x" race sync --model none --seeds x
refused 2 "'@lr' is not @key=value" race sync@lr --model none
refused 2 "lr=nan" race sync@lr=nan --model none
[ ! -e never ] || fail "a race that was refused left its folder"

step "files that are missing, folders, damaged or full"
refused 1 "/nowhere" simulate --data libsvm:/nowhere
refused 1 "has no file train-images" simulate --data idx:.
refused 1 "nosuch" simulate --model none --script nosuch
refused 1 "nosuch" simulate --model none --delay trace:nosuch
refused 1 "it is not a plain file" simulate --model none --script .
refused 1 "it is not a plain file" simulate --model none --delay trace:.
refused 1 "not a plain file" simulate --data libsvm:.
mkdir idx
for f in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
    printf 'this is no IDX file' >idx/$f-ubyte
done
refused 1 "train-images-idx3-ubyte" simulate --data idx:idx
printf '1 1:0.5\n2 2:zero\n' >bad.svm
refused 1 "bad.svm" simulate --data libsvm:bad.svm
printf '1.5\nfast\n' >bad.trace
refused 1 "bad.trace" simulate --model none --delay trace:bad.trace
printf '1 leave 1\n2 explode 1\n' >bad.script
refused 1 "line 2" simulate --model none --script bad.script
if [ -w /dev/full ]; then
    refused 1 "/dev/full" simulate --model quadratic --updates 3 --log /dev/full
    "$PACELINE" list >/dev/full 2>err
    [ $? -eq 1 ] || fail "list to a full disk does not fail"
    grep -q '^paceline: standard output' err || fail "list to a full disk: $(cat err)"
    "$PACELINE" simulate --model none --updates 3 --json >/dev/full 2>whole
    [ $? -eq 1 ] || fail "simulate to a full disk does not fail"
    split
    [ "$(wc -l <err)" -eq 1 ] || fail "simulate to a full disk: $(cat err)"
fi
# a file that cannot grow beyond 512 or 1024 bytes is a full disk; the thread sanitizer itself needs
# larger ones
case ${SANITIZE:-} in
*thread*) ;;
*)
    (trap '' XFSZ && ulimit -f 1 && exec "$PACELINE" simulate --model none --updates 5000 \
        --events short 2>&1 >/dev/null) | cat >err
    grep -q "^paceline: events file 'short' could not be written completely" err ||
        fail "events on a full disk: $(cat err)"
    ;;
esac

step "a closed pipe, and no standard output"
mkfifo go
{
    read -r _ <go
    "$PACELINE" list 2>err
    echo $? >code
} | {
    exec <&-
    echo go >go
}
while [ ! -s code ]; do sleep 1; done
[ "$(cat code)" -eq 1 ] || fail "list into a closed pipe: status $(cat code)"
[ ! -s err ] || fail "list into a closed pipe says: $(cat err)"
"$PACELINE" list 2>/dev/null | head -1 | grep -q '^method' || fail "list | head -1"
"$PACELINE" --version >&- 2>err
[ $? -eq 1 ] || fail "--version without a standard output does not fail"

step "one JSON object"
for arguments in "--model none --updates 20" "--method abs $small --updates 20" \
    "--policy ksync:k=2 $small --updates 20 --target-loss 0.001"; do
    # shellcheck disable=SC2086
    works simulate $arguments --json
    json "simulate $arguments"
done
# shellcheck disable=SC2086
works simulate $small --updates 20 --json --seed 7 --method "async"
grep -q '"method":"async","policy":"kasync:k=1","workers":3,"seed":7,' out ||
    fail "other values: $(cat out)"
json "a simulated run"
cp out first
# shellcheck disable=SC2086
works simulate $small --updates 20 --json --seed=7 --method async --threads 3
json "the same run"
cmp -s first out || fail "the same run gives another object"
# shellcheck disable=SC2086
works simulate $small --updates 20
grep -q 'time per update' out || fail "the summary lacks the time per update"
grep -q '^  time  *[0-9.]* s (virtual)$' out || fail "the time is not called virtual: $(cat out)"
run simulate --policy kasync:k=1 --optim momentum --lr 10 --model quadratic --json
[ $status -eq 1 ] || fail "a run that diverges: status $status"
json "a run that diverges"
grep -q '^paceline: the run diverged' err || fail "a run that diverges says $(cat err)"
run simulate --method sync --data digits --model softmax --lr 500 --updates 60 --workers 2
[ $status -eq 1 ] || fail "a run whose loss rises: status $status"
head -1 out | grep -q '^  diverged  *the loss rose from' ||
    fail "a run whose loss rises begins with $(head -1 out)"
works plan --workers 4 --json
[ "$(grep -c '^{"policy":"[a-z]*","k":[1-4],.*}$' out)" -eq "$(wc -l <out)" ] ||
    fail "plan --json: $(head -1 out)"
works plan --workers 8 --policy ksync
grep -q '^    8  ksync' out || fail "plan has no row for K = 8"

step "what exists stays as it is"
echo precious >kept
refused 1 "already exists and will not be overwritten" \
    simulate --model quadratic --updates 3 --log kept
refused 1 "already exists and will not be overwritten" \
    simulate --model none --updates 3 --events kept
[ "$(cat kept)" = precious ] || fail "a file was written over"
# shellcheck disable=SC2086
works simulate $small --updates 20 --log new.jsonl --events new.events
grep -q '^{"method":' new.jsonl || fail "--log wrote $(cat new.jsonl)"
[ "$(grep -c commit new.events)" -eq 20 ] || fail "--events has other than 20 commits"
for standard in - /dev/stdout; do
    works simulate $small --updates 20 --events $standard
    [ "$(grep -c commit out)" -eq 20 ] && [ ! -e ./- ] || fail "--events $standard: $(cat out)"
done

step "races"
works race sync async@lr=0.05 --model quadratic --updates 30 --seeds 2 --out raced
for f in results points-01-seed1 points-01-seed2 points-02-seed1 points-02-seed2; do
    [ -s "raced/$f.jsonl" ] || fail "the race has no $f.jsonl"
done
[ "$(wc -l <raced/results.jsonl)" -eq 4 ] || fail "the race has not 4 results"
grep -q '^async@lr=0.05 ' out || fail "the leaderboard lacks an entrant: $(cat out)"
[ -s raced/plot.svg ] || fail "the race has no plot"
cp raced/results.jsonl first
refused 1 "already exists and will not be overwritten" \
    race sync --model quadratic --updates 3 --out raced
cmp -s raced/results.jsonl first || fail "a race wrote over another"
refused 1 "cannot be created" race sync --model quadratic --updates 3 --out no/such/place
for folder in race race-2; do
    works race sync --model quadratic --updates 30
    [ -s $folder/results.jsonl ] || fail "a race without --out did not go to $folder"
done

step "a summary has K only if the policy has one"
# shellcheck disable=SC2086
for method in ssp ad-psgd kasync; do
    works simulate $small --method $method --updates 20
    expected=0
    [ $method = kasync ] && expected=1
    [ "$(grep -c '^  final K ' out)" -eq $expected ] || fail "$method: $(cat out)"
    works simulate $small --method $method --updates 20 --json
    [ "$(grep -c '"k_final":[0-9]' out)" -eq $expected ] || fail "$method: $(cat out)"
done

step "how many workers an update waited for at the end, and by which policy"
echo "3.5 leave 2" >script
for method in sync kbatchasync:k=4; do
    works simulate --model none --method $method --workers 4 --updates 9 --script script --json
    k=3 # that are left
    [ $method = sync ] || k=4 # mini-batches
    grep -q "\"k_final\":$k,\"policy_final\":null" out || fail "$method: $(cat out)"
done
# shellcheck disable=SC2086
works simulate $small --method auto --updates 40
grep -q '^  final policy  *k[a-z]*sync:k=[0-9]*$' out || fail "auto: $(cat out)"
policy=$(sed -n 's/^  final policy  *//p' out)
# shellcheck disable=SC2086
works simulate $small --method auto --updates 40 --json
grep -q "\"policy_final\":\"$policy\"" out || fail "auto, not $policy: $(cat out)"

step "epochs are counted if it is known how long one is"
works simulate --model quadratic --updates 9 --log points
[ "$(grep -c '"epochs":null' points)" -eq "$(wc -l <points)" ] || fail "$(cat points)"
# shellcheck disable=SC2086
works simulate $small --updates 9 --log points2
grep -q '"epochs":null' points2 && fail "$(cat points2)"

step "recordings"
# shellcheck disable=SC2086
works simulate $small --method kasync:k=2 --updates 40 --record run.rec --events run.events
works replay run.rec --events again.events --record again.rec --threads 2
grep -q 'the same [0-9]* events, decisions and weights, bit for bit' out ||
    fail "replay: $(cat out)"
grep -q 'update 0 .*workers -/3' err || fail "no worker is known before the events: $(cat err)"
grep -q 'update 40 .*workers 3/3' err || fail "the progress of a replay: $(cat err)"
cmp -s run.events again.events || fail "a replay has other events"
works train --model quadratic --workers 2 --updates 20 --events -
has '^  written  *standard output$'
cmp -s run.rec again.rec || fail "a replay records something else"
works replay run.rec --json
grep -q '"replay":{"events":[0-9]*,"same":1,"text":"the same ' out ||
    fail "replay --json: $(cat out)"
works replay run.rec --method sync --workers 5 --json
json "replay --method"
grep -q '"method":"sync","policy":"ksync:k=5","workers":5' out || fail "replay --method: $(cat out)"
works replay run.rec --policy ksync:k=1 --delay const:t=1 --updates 7 --json
grep -q '"policy":"ksync:k=1","workers":3,"seed":1,"lr":0.1,"time":7,"updates":7' out ||
    fail "replay --policy: $(cat out)"
# times of tasks that a method cancelled are unknown: some are missing, or most
# shellcheck disable=SC2086
works simulate $small --method ksync:k=1 --updates 40 --record most.rec
refused 1 "no times for 63 % of its tasks" replay most.rec --method sync
refused 1 "no times for 63 % of its tasks" plan --trace most.rec
works replay most.rec
works replay most.rec --method sync --delay const:t=1
grep -q 'were cancelled or lost' err && fail "times that are not used: $(cat err)"
# shellcheck disable=SC2086
works simulate $small --method ksync:k=2 --updates 40 --record some.rec
"$PACELINE" replay some.rec --method sync >out 2>err || fail "replay: $(cat err)"
grep -q '33 % of the recorded tasks were cancelled or lost' err || fail "$(cat err)"
works plan --trace run.rec --json
[ "$(grep -c '"k":3' out)" -gt 0 ] && [ "$(grep -c '"k":4' out)" -eq 0 ] ||
    fail "plan --trace has not the recording's 3 workers"
works plan --trace run.rec
grep -q '^assumed: recording:.*run.rec, 3 workers' out || fail "plan --trace: $(cat out)"
# the race that plan prints has the workers and delays that it planned with
printf '1.5\n2.5\n' >seconds
for trace in run.rec seconds; do
    works plan --trace $trace --workers 2 --noise 100
    command=$(sed -n 's/^  paceline race \(.*\) --data .*/\1/p' out)
    case $command in
    *" --workers 2 --delay '"*"file=$trace'") ;;
    *) fail "plan --trace $trace has another race: $(cat out)" ;;
    esac
    eval "works race $command --tune no --model quadratic --updates 5 --out of-$trace"
done
works simulate --model none --delay recording:run.rec,order=random --updates 20
size=$(wc -c <run.rec)
head -c $((size - 100)) run.rec >cut.rec
works replay cut.rec
grep -q 'cut short after [0-9]* events: replayed up to there' out || fail "cut: $(cat out)"
head -c 100 run.rec >head.rec
refused 1 "is truncated in its header" replay head.rec
head -c $((size - 200)) run.rec >bad.rec
printf not-these-bytes >>bad.rec
tail -c 185 run.rec >>bad.rec
refused 1 "its checksum does not match" replay bad.rec
refused 1 "its checksum does not match" simulate --model none --delay recording:bad.rec
refused 1 "is not a recording" replay seconds
refused 1 "cannot be read" replay nosuch
refused 1 "not a plain file" replay .
refused 2 "replay takes one recording" replay
refused 2 "replay takes one recording" replay run.rec cut.rec
refused 2 "did you mean --method?" replay run.rec --methd sync
refused 2 "no method is called" replay run.rec --method zzzz
refused 2 "plan has no option --record" plan --record x
refused 2 "both set the delay law" plan --trace run.rec --delay exp
refused 1 "already exists and will not be overwritten" \
    simulate --model none --updates 3 --record kept
refused 1 "already exists and will not be overwritten" replay run.rec --record run.rec
[ "$(cat kept)" = precious ] || fail "a recording was written over a file"
case ${SANITIZE:-} in
*thread*) ;;
*)
    (trap '' XFSZ && ulimit -f 1 && exec "$PACELINE" simulate --model none --updates 5000 \
        --record short.rec 2>&1 >/dev/null) | cat >err
    grep -q "^paceline: record file 'short.rec' could not be written completely" err ||
        fail "a recording on a full disk: $(cat err)"
    ;;
esac

step "real runs"
for spawn in processes threads; do
    # shellcheck disable=SC2086
    works train $small --spawn $spawn --method kasync:k=2 --updates 20 --record $spawn.rec --json
    json "train --spawn $spawn"
    grep -q '"method":"kasync","policy":"kasync:k=2","workers":3,"seed":1,.*"updates":20,' out ||
        fail "train --spawn $spawn: other values: $(cat out)"
    works replay $spawn.rec
    grep -q 'the same [0-9]* events, decisions and weights, bit for bit' out ||
        fail "replay of train --spawn $spawn: $(cat out)"
done
works train --model quadratic --workers 20 --updates 30 --method async
grep -q '^  tasks  *[0-9]* started: 30 applied, ' out || fail "train: no fates: $(cat out)"
works train --model quadratic --workers 2 --updates 20 --method sync \
    --delay 'const:t=0.01|const:t=0.2'
grep -q '^  stragglers  *worker 2: ' out || fail "a slow worker is not named: $(cat out)"
[ "$(grep -c '^  stragglers' out)" -eq 1 ] || fail "others are called slow: $(cat out)"
works train --model quadratic --workers 3 --updates 3 --method sync
grep -q '^  stragglers  *too few tasks to tell (fewer than 5 per worker)$' out ||
    fail "three tasks per worker say something about stragglers: $(cat out)"
works train --model quadratic --workers 3 --updates 60 --method async \
    --delay 'const:t=0|const:t=0|const:t=1000'
grep -q '^  stragglers  *\(too few tasks to tell for \|worker 3: its last task had run\)' out ||
    fail "a worker without a result, and the stragglers are: $(cat out)"
works train --model quadratic --workers 1 --updates 60 --checkpoint ended --log-dir ended.logs \
    --record ended.rec
grep -q '^  saved  *ended, update 60$' out || fail "train: no folder of checkpoints: $(cat out)"
grep -q '^  written  *ended.logs, ended.rec$' out || fail "train: no files: $(cat out)"
works train --model quadratic --resume ended --updates 70
grep -q '^  saved  *ended, update 70$' out || fail "a resumed run: $(cat out)"
works train --model quadratic --workers 1 --updates 3
grep -qE '^  (saved|written) ' out && fail "nothing was written, and yet: $(cat out)"
works train --model quadratic --workers 1 --updates 3 --respawn
works train --model quadratic --workers 1 --respawn --updates 3
works train --model quadratic --workers 1 --respawn no --updates 3
works train --model quadratic --workers 1 --updates 3 --respawn=yes
refused 2 "--respawn=maybe is not accepted; respawn takes yes or no" train --respawn=maybe
refused 2 "'perhaps' is not expected here" train --respawn perhaps
refused 2 "a real run needs something to compute" train --model none
refused 2 "set listen to their socket" train --model quadratic --spawn none
refused 2 "needs workers that are processes, but spawn" train --model quadratic --spawn threads \
    --listen socket
refused 2 "needs workers that are processes, but spawn" train --model quadratic --spawn threads \
    --respawn
refused 2 "--spawn=fibers is not accepted" train --spawn fibers
refused 1 "socket file 'kept' already exists" train --model quadratic --listen kept \
    --updates 3
[ "$(cat kept)" = precious ] || fail "a socket took the place of a file"
run train --model quadratic --lr 1000 --workers 2 --json
[ $status -eq 1 ] || fail "a real run that diverges: status $status"
json "a real run that diverges"
grep -q '^paceline: the run diverged' err || fail "a real run that diverges says $(cat err)"

step "log folders"
works train --model quadratic --workers 2 --updates 20 --log-dir logs
for f in points.jsonl trace.json events.txt events.out.tfevents.*; do
    # shellcheck disable=SC2086
    [ -s logs/${f##*/} ] || ls logs/$f >/dev/null 2>&1 || fail "--log-dir has no $f"
done
[ "$(grep -c commit logs/events.txt)" -eq 20 ] || fail "--log-dir: other than 20 commits"
if command -v python3 >/dev/null; then
    python3 -c 'import json; json.load(open("logs/trace.json"))' || fail "trace.json is not JSON"
fi
cp logs/events.txt first
refused 1 "is not empty; choose another name" train --model quadratic --updates 3 --log-dir logs
cmp -s logs/events.txt first || fail "a log folder was written over"
refused 1 "log directory" train --model quadratic --updates 3 --log-dir no/such/place

step "metrics"
"$PACELINE" train --model quadratic --workers 2 --updates 20 --metrics 0 >out 2>err ||
    fail "metrics at any port: $(cat err)"
grep -Eq '^paceline: metrics are served on port [0-9]+$' err ||
    fail "metrics tell no port: $(cat err)"
refused 2 "with a port from 0 to 65535" train --model quadratic --metrics 127.0.0.1:99999
refused 2 "is not a metrics address" train --model quadratic --metrics 12x
refused 2 "is not a metrics address" train --model quadratic --metrics localhost:

step "checkpoints"
# shellcheck disable=SC2086
works train $small --method kasync:k=2 --updates 30 --checkpoint saved --checkpoint-every 10
newest=saved/checkpoint-0000000030.safetensors
[ -s $newest ] || fail "no checkpoint after 30 updates: $(ls saved)"
[ "$(ls saved | grep -c '^checkpoint-.*\.safetensors$')" -le 3 ] ||
    fail "more than 3 checkpoints: $(ls saved)"
[ saved/latest -ef $newest ] || fail "latest is another: $(ls -l saved)"
[ "$(ls -A saved | grep -v '^checkpoint-[0-9]*\.safetensors$' | tr '\n' ' ')" = \
    ".lock best best.safetensors latest run.json " ] ||
    fail "something is left behind: $(ls -A saved)"
works eval saved
grep -q '^  updates  *30$' out || fail "eval: $(cat out)"
works eval saved --json
cp out first
number='[0-9.e-]*'
scores="\"test_loss\":$number,\"test_accuracy\":$number,\"test_rmse\":null,\"diverged\":false"
grep -q "^{\"updates\":30,\"loss\":$number,$scores}\$" out ||
    fail "eval --json: $(cat out)"
run train $small --method sync --lr 300 --updates 30 --checkpoint wild
run eval wild
[ "$status" -eq 1 ] || fail "eval of a run that diverged: status $status, $(cat out err)"
head -n 1 out | grep -q '^  diverged  *the loss rose from ' || fail "eval: $(cat out)"
grep -q 'the run of this checkpoint diverged' err || fail "eval: $(cat err)"
run eval wild --json
grep -q '"diverged":true}$' out || fail "eval --json: $(cat out)"
works eval saved/latest --threads 2 --json
cmp -s first out || fail "eval of the same weights gives another object: $(cat out)"
works train --resume saved --workers 5 --updates 40 --json
grep -q '"method":"kasync","policy":"kasync:k=2","workers":5,"seed":1,.*"updates":40,' out ||
    fail "--resume with 5 workers: $(cat out)"
works train --resume auto --checkpoint saved --updates 50 --json
grep -q '"workers":5,.*"updates":50,' out || fail "--resume auto: $(cat out)"
[ -s saved/checkpoint-0000000050.safetensors ] || fail "no checkpoint after 50: $(ls saved)"
works train --model quadratic --workers 2 --updates 3 --resume auto --checkpoint fresh --json
[ -s fresh/checkpoint-0000000003.safetensors ] || fail "--resume auto from the start: $(ls fresh)"
refused 2 "is of another model" train --resume saved --model softmax --data digits:side=8
refused 2 "is of another model" eval saved --model quadratic
refused 2 "--resume auto needs --checkpoint DIR" train --resume auto --model quadratic
refused 1 "cannot be found" train --resume nowhere
refused 1 "has no checkpoint" train --resume raced
refused 1 "cannot be found" eval nowhere
refused 2 "eval takes one checkpoint" eval
refused 2 "eval takes one checkpoint" eval saved fresh
refused 2 "is neither a number of updates, like 500, nor a time" train --model quadratic \
    --checkpoint-every 5x
refused 2 "checkpoint-every '0'" train --model quadratic --checkpoint-every 0
refused 2 "--checkpoint-keep=0 is not accepted" train --checkpoint-keep 0
size=$(wc -c <saved/checkpoint-0000000050.safetensors)
head -c $((size - 100)) saved/checkpoint-0000000050.safetensors >bad.safetensors
printf not-these-bytes >>bad.safetensors
tail -c 85 saved/checkpoint-0000000050.safetensors >>bad.safetensors
mv bad.safetensors saved/checkpoint-0000000050.safetensors
refused 1 "its SHA-256 does not match; the one before it is intact: saved/checkpoint-" \
    train --resume saved
refused 1 "is damaged" eval saved
head -c 100 $newest >short.safetensors
refused 1 "short.safetensors' is damaged" train --resume short.safetensors
refused 1 "kept' is damaged" train --resume kept
refused 1 "kept' is damaged" eval kept

step "races for real"
works race sync async --real --model quadratic --workers 2 --updates 20 --delay const:t=0.001 \
    --out real
grep -q '^simulator prediction' out || fail "race --real: $(cat out)"
grep -q '^prediction error of s/update: median [0-9.]* %' out ||
    fail "race --real: $(cat out)"
[ "$(wc -l <real/results.jsonl)" -eq 2 ] || fail "race --real has not 2 results"
works race sync@record=sync.rec async --real --model quadratic --workers 2 --updates 20 \
    --delay const:t=0.001 --out recorded
works replay sync.rec
works race sync --real --model quadratic --workers 2 --updates 20 --out undelayed
grep -q '^no prediction' out || fail "race --real without delays: $(cat out)"
! grep -q nan out || fail "race --real shows what is no number: $(cat out)"
refused 2 "net 'latency=1' is for simulated runs" race sync --real --model quadratic \
    --net latency=1 --out never
refused 2 "a real run needs something" race sync --real --model none --updates 3 --out never
[ ! -e never ] || fail "a real race that was refused left its folder"

# begun ARGUMENTS...: starts a run and returns once its log exists, which is after its signals are
# caught; $process is its number.
begun() {
    rm -f began
    "$PACELINE" "$@" --log began >out 2>whole &
    process=$!
    while [ ! -e began ] && kill -0 $process 2>/dev/null; do sleep 0.1 2>/dev/null || sleep 1; done
}

# interrupted STATUS SIGNAL ARGUMENTS...: the run is stopped once it has begun, tells what it has
# and exits with STATUS.
interrupted() {
    wanted=$1
    signal=$2
    shift 2
    begun "$@"
    kill -s "$signal" $process
    wait $process
    status=$?
    split
    [ $status -eq "$wanted" ] || fail "$1, SIG$signal: status $status"
    [ "$(said)" = "paceline: interrupted; the run is ending, a second signal ends it at once
paceline: interrupted; these are the results so far" ] ||
        fail "$1, SIG$signal: $(cat err)"
}

step "signals"
interrupted 130 INT simulate --model quadratic --updates 1e15 --json
json "an interrupted run"
# shellcheck disable=SC2086
interrupted 130 TERM simulate $small --updates 1e15
grep -q 'time per update' out || fail "SIGTERM: no results: $(cat out)"
# (the thread sanitizer hands signals on when it sees fit, and may keep them)
case ${SANITIZE:-} in
*thread*) ;;
*)
    for signal in INT TERM HUP; do
        # shellcheck disable=SC2086
        interrupted 0 $signal train $small --updates 1e15 --json --checkpoint $signal
        json "a real run after SIG$signal"
        updates=$(sed -n 's/.*"updates":\([0-9]*\),.*/\1/p' out)
        works eval $signal --json
        grep -q "^{\"updates\":$updates," out ||
            fail "SIG$signal: the checkpoint is not of $updates"
    done
    # shellcheck disable=SC2086
    interrupted 0 INT train $small --updates 1e15 --checkpoint ck
    updates=$(sed -n 's/^  updates  *//p' out)
    grep -q "^  saved  *ck, update $updates (--resume ck continues)\$" out ||
        fail "SIGINT: where it was saved is not said: $(cat out)"
    for spawn in processes threads; do
        interrupted 0 TERM train --model quadratic --delay const:t=1000 --spawn $spawn --json
        grep -q '"updates":0,' out || fail "a real run that waits, after SIGTERM: $(cat out)"
    done
    # both are there when it goes on
    # shellcheck disable=SC2086
    begun train $small --updates 1e15 --checkpoint twice
    kill -s STOP $process
    kill -s INT $process
    kill -s TERM $process
    kill -s CONT $process
    wait $process
    status=$?
    [ $status -eq 130 ] || fail "two signals: status $status"
    [ ! -s out ] || fail "two signals: $(cat out)"
    [ -z "$(ls twice | grep safetensors)" ] ||
        fail "two signals: a checkpoint was written: $(ls twice)"
    # as `timeout` sends them: the same signal twice, at once; a machine that is slow at the wrong
    # moment makes two of them, but not each time
    try=0
    status=130
    while [ $status -eq 130 ] && [ $try -lt 100 ]; do
        try=$((try + 1))
        # shellcheck disable=SC2086
        begun train $small --updates 1e15 --checkpoint again-$try
        kill -s TERM $process
        sleep 0.005
        kill -s TERM $process
        wait $process
        status=$?
    done
    [ $status -eq 0 ] || fail "the same signal twice: status $status"
    grep -q 'time per update' out || fail "the same signal twice: no results: $(cat out)"
    ;;
esac

[ $bad -eq 0 ] && echo "all as it should be"
exit $bad
