#!/bin/sh
# Races: rates tuned per method, what the table says, going on after an interruption, more methods
# and seeds, the JSON object, divergence. Runs in a fresh directory.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# number KEY ROW: a number of the JSON object's ranking
number() {
    grep -o "\"method\":\"$2\"[^}]*" out | grep -o "\"$1\":[^,}]*" | head -n 1 | cut -d: -f2
}

# the results in a file, without the ids of their runs
lines() {
    sed 's/"run":"[^"]*",//' "$1"
}

small='--data digits:samples=300,test=50 --model softmax --workers 3 --delay exp:mean=1'

echo "-- each method at its own best rate"
# shellcheck disable=SC2086
works race sync async gap-aware@lr=0.03 $small --target-accuracy 0.6 --time 400 --out tuned
has 'simulated race: data digits:samples=300,test=50, model softmax, workers 3'
has 'target: test accuracy 0.6'
has '^sorted by time to target.*; times to target of the first evaluation that meets it, '
has ', refined to the update; '
has 'each method at its own best learning rate, or that of its @lr'
has '^learning rates tried, and seconds to target '
has '^sync  .* 0.1: .*  0.2: .*  0.4: '
grep -q '^  tuned sync: lr [0-9.]*, the best of [0-9]*, [0-9.]* s to the target' err ||
    fail "tuning is silent: $(cat err)"
grep -A 4 '"tried": \[' tuned/race.json | grep -q '"time_to_target": [0-9.]*' ||
    fail "race.json lacks what was tried: $(cat tuned/race.json)"
awk '/"time_to_target":/ { reached = $2 != "null," }
    /"error":/ && reached && $2 + 0 > 0.41 { print }' tuned/race.json >wrong
[ ! -s wrong ] || fail "rates that reached an accuracy of 0.6 have errors such as $(cat wrong)"
has '^gap-aware@lr=0.03 *0.03 '
grep -q '"lr": null' tuned/race.json || fail "an entrant with a rate of its own was tuned"
# the plot has the order and the colours of the table, and begins at time 0
entrants() { sed -n 's/^ *"method": "\(.*\)",$/\1/p' "$1"; }
entrants tuned/race.json >expected
sed -n "s/.*h22'[^>]*><text[^>]*>\([^ ]*\) –.*/\1/p" tuned/plot.svg >legend
cmp -s expected legend || fail "the legend is not the table: $(cat legend)"
grep -q '>target 0.6</text>' tuned/plot.svg || fail "the plot has no target"
grep -q '>simulated race: data digits:samples=300,test=50, model.*, delay exp' tuned/plot.svg ||
    fail "the plot's title: $(grep '<text' tuned/plot.svg | head -n 1)"
[ "$(grep -c "<polyline.* points='76\.0," tuned/plot.svg)" -eq 3 ] ||
    fail "not all curves begin at time 0"
for colour in $(grep -o "<polyline[^>]*stroke='#[0-9a-f]*" tuned/plot.svg | cut -d'#' -f2); do
    grep -q -- "--c[0-7]: #$colour;" "$SOURCE_DIR/src/observe/page/page.css" ||
        fail "colour $colour is not one of the page's"
done
# shellcheck disable=SC2086
works race sync async --tune yes $small --target-accuracy 0.6 --time 400 --out again
lines again/results.jsonl | grep -v gap-aware | sort >again.lines
lines tuned/results.jsonl | grep -v gap-aware | sort >tuned.lines
cmp -s again.lines tuned.lines || fail "the same race tuned twice has other results"
# a tuned rate is not worse than the method's own, on the seed it was tuned with
# shellcheck disable=SC2086
works race sync --tune no $small --target-accuracy 0.6 --time 400 --seed 1000001 --json --out own
own=$(number mean sync)
# shellcheck disable=SC2086
works race sync --rates tuned $small --target-accuracy 0.6 --time 400 --seed 1000001 --json \
    --out best
best=$(number mean sync)
awk -v a="$best" -v b="$own" 'BEGIN { exit !(a <= b) }' || fail "tuned $best s, own rate $own s"
refused 'give one of them' race sync --tune yes --lr 0.1 --model quadratic
# shellcheck disable=SC2086
refused 'none of these methods was tuned there' race kasync --rates tuned $small \
    --target-accuracy 0.6
# shellcheck disable=SC2086
refused 'tuned with --target-accuracy 0.6, and this race has 0.7;' race sync --rates tuned $small \
    --target-accuracy 0.7
# shellcheck disable=SC2086
refused 'tuned with --batch 32, and this race has 8; leave out --rates' race sync --rates tuned \
    $small --target-accuracy 0.6 --batch 8

refused 'use yes or no' race sync --tune=maybe --model quadratic
refused 'needs a model' race sync --tune yes --model none

echo "-- factors are against the best entrant that waits for all, whatever it is called"
works race async ksync:k=3 --workers 3 --model quadratic --updates 30 --tune no --target-loss 1 \
    --out against
has 'x vs ksync'
works race async kasync:k=2 --workers 3 --model quadratic --updates 30 --tune no --target-loss 1 \
    --out alone
has 'target *factor '
works race sync@lr=0.1 sync@lr=0.05 async@lr=0.1 --workers 3 --model quadratic --updates 300 \
    --target-loss 1 --out two-rates
has ' x vs sync@lr=0.1 ' # not cut, and its numbers are below it
awk '/^method/ { end = index($0, "sync@lr=0.1") + 11 }
    /^a?sync@/ && NF > 3 { print substr($0, end - 1, 2) }' out >ends
[ "$(grep -c '^[0-9] $' ends)" -eq 3 ] || fail "factors are not below their title: $(cat out)"

echo "-- what the table says about rates"
quick='--model quadratic --updates 30 --quiet'
# shellcheck disable=SC2086
works race sync async $quick --tune no --out untuned
has 'each method at its own default learning rate'
has '^With learning rates that were not tuned, '
has '^This compares learning rates as much as methods: .*To tune, leave out --tune no and --lr'
has '^sorted by training loss; '
has '; test accuracy and training loss at the end$'
has 'not tuned, .* lowest training loss'
# shellcheck disable=SC2086
works race sync async $quick --lr 0.05 --out single
has 'one learning rate for all;'
has '^With learning rates that were not tuned, '
# shellcheck disable=SC2086
works race sync@lr=0.1 sync@lr=0.2 async@lr=0.05 $quick --lr 0.3 --out given
has 'learning rates as given'
grep -q 'not tuned\|as much as methods' out && fail "rates were given: $(cat out)"
# shellcheck disable=SC2086
works race sync async $quick --out best-of-all
has 'each method at its own best learning rate'
has 'and the training loss at the end in simulated runs'
grep -q 'not tuned\|as much as methods' out && fail "rates were tuned: $(cat out)"
# shellcheck disable=SC2086
works race --resume best-of-all --quiet kasync
has '^kasync .*: .*: ' # the rates tried are kept, and those of more methods added
[ "$(grep -c '^[ks].*: .*: ' out)" -eq 2 ] || fail "rates tried: $(cat out)"

# without a target a rate counts by what ranks the race, the mean of its training losses at the end
# shellcheck disable=SC2086
works race sync $small --time 20 --out by-loss
tried=$(tr -d ' \n' <by-loss/race.json | sed 's/.*"lr":0.1[0-9]*,[^}]*"error":\([0-9.]*\)}.*/\1/')
# shellcheck disable=SC2086
works race sync --tune no $small --time 20 --seed 1000001 --seeds 2 --json --out by-hand
loss=$(grep -o '"loss":{"mean":[0-9.]*' out | cut -d: -f3)
awk -v a="$tried" -v b="$loss" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-20) }' ||
    fail "tuning had the error $tried, and the mean of the losses is $loss"

# the table and race.json have the same sentences, the first of which says what holds for all
# shellcheck disable=SC2086
works race sync async kasync:k=2 --lr 0.4 --seeds 2 $small --target-accuracy 0.5 --time 400 \
    --out one-rate
told() { sed -n '/^ "verdict"/,/^ \]/s/^  "\(.*\)",*$/\1/p' "$1/race.json"; }
told one-rate >verdict
[ "$(wc -l <verdict)" -ge 2 ] || fail "the verdict: $(cat verdict)"
while read -r line; do grep -qxF -- "$line" out || fail "not in the table: $line"; done <verdict
head -n 1 verdict | grep -q '^With learning rates that were not tuned, ' ||
    fail "the first sentence: $(cat verdict)"
tail -n 1 verdict | grep -q '^This compares learning rates as much' || fail "$(cat verdict)"

echo "-- nobody, some or all reach the target"
has '^sorted by time to target; '
has 'test accuracy and training loss at the evaluation that met the target$'
# shellcheck disable=SC2086
works race sync async --tune no $small --target-accuracy 0.99 --time 5 --out nobody
has '^sorted by training loss, because no method reached the target; one seed, so no intervals;'
has 'test accuracy and training loss at the end$'
has '^With learning rates that were not tuned, no method reached a test accuracy of 0.99\.$'
has '^The lowest training losses at the end were those of '
# shellcheck disable=SC2086
works race sync@lr=1e-6 async@lr=0.3 $small --target-accuracy 0.5 --time 400 --out some
has '^sorted by time to target, then training loss; times to target of'
has 'at the evaluation that met the target, or at the end of a run that missed it$'

echo "-- headings name no data if there are none, and progress shows the point of the table"
works race sync async --model none --updates 30 --workers 3 --delay exp:mean=1 --out none
has '^simulated race: model none, workers 3'
has '^sorted by the order in which they were given; .* there is no model to evaluate$'
works race sync async --model quadratic --tune no --updates 30 --out 'two words'
has "paceline report 'two words'\$"
works race sync async --model quadratic --tune no --updates 30 --out bowl
has '^a page to look at: paceline report bowl$'
has '^simulated race: model quadratic, workers'
# shellcheck disable=SC2086
works race async --tune no $small --target-accuracy 0.5 --time 400 --dashboard 0 --out shown
line='1/1 async  \([0-9.]*\) s  loss \([0-9.]*\)  accuracy \([0-9.]*\) '
told=$(sed -n "s,^$line.*,\1 \3 \2,p" err)
[ "$told" = "$(awk '$1 == "async" { print $3, $5, $6; exit }' out)" ] ||
    fail "progress '$told', and the table: $(cat out)"

echo "-- one method is not compared with itself"
# shellcheck disable=SC2086
works race sync --tune no $small --target-accuracy 0.99 --time 5 --out lone
told lone >verdict
grep -qx 'sync did not reach a test accuracy of 0.99\.' verdict || fail "$(cat verdict)"
grep -qx 'sync had a training loss of [0-9.]* at the end, with 1 seed\.' verdict ||
    fail "$(cat verdict)"
# shellcheck disable=SC2086
works race async@lr=0.3 $small --target-accuracy 0.5 --time 400 --seeds 2 --out lone-there
told lone-there >verdict
grep -q '^async@lr=0.3 reached a .* of 0.5 after [0-9.]* ± [0-9.]* s, with 2 seeds' verdict ||
    fail "$(cat verdict)"

echo "-- time to target does not depend on when a run is evaluated"
# shellcheck disable=SC2086
works race sync --tune no $small --target-loss 1 --time 4000 --eval-every 40 --json --out coarse
coarse=$(number mean sync)
# shellcheck disable=SC2086
works race sync --tune no $small --target-loss 1 --time 500 --eval-every 0.5 --json --out fine
fine=$(number mean sync)
[ "$coarse" = "$fine" ] || fail "evaluated every 40 s: $coarse s, every 0.5 s: $fine s"

echo "-- a real race shows the evaluation that met the target"
# shellcheck disable=SC2086
works race async --real --data digits:samples=300,test=50 --model softmax \
    --workers 3 --delay const:t=0.002 --target-accuracy 0.6 --eval-every 0.05 --time 300 --out met
has 'real race'
has 'times to target known to ± [0-9.e-]* s'
has 'each method at its own best learning rate'
awk '$1 == "async" { exit !($5 >= 0.6) }' out || fail "accuracy below the target: $(cat out)"

echo "-- no more digits than the resolution"
works race sync async --real --tune no --seeds 2 --data digits:samples=300,test=50 --model softmax \
    --workers 3 --delay const:t=0.002 --target-loss 2 --time 300 --out known
# met LINE SECONDS: the run in this line of the results took so long, known to 0.08 s
met() {
    sed -i "$1s/\"time_to_target\":[^,]*/\"time_to_target\":$2/
        $1s/\"target_within\":[^,]*/\"target_within\":0.08/" known/results.jsonl
}
sed -i 's/"predicted":[^,]*/"predicted":0.877/
    s/"time_per_update":[^,]*/"time_per_update":0.0012/' known/results.jsonl
sort -t: -k2,2r -k4,4 -o known/results.jsonl known/results.jsonl # sync before async
sed -i '1,2s/"predicted_per_update":[^,]*/"predicted_per_update":0.0008/
    3,4s/"predicted_per_update":[^,]*/"predicted_per_update":0.001/' known/results.jsonl
met 1 1.0437
met 2 1.0537
met 3 2.2611
met 4 2.2711
works race --resume known
has 'times to target known to ± 0.08 s'
# an interval is wider by the resolution and rounded outwards
has '^sync  *0.1  *1.0 ± 0.2  *1.0  '
has '^async  *0.1  *2.3 ± 0.2  *0.5 (0.3 to 0.6)  '
has ', sync (1.0 ± 0.2 s) was .*, 2.2 times (95 % interval 1.8 to 2.6) as fast as async (2.3 ± 0.2'
has 's/update: median 35.0 %, maximum 50.0 %; '
has '^sync  *[0-9.]*  *[0-9.]*  *[0-9.]*  *1.0  *0.877  *1.2$'
has '^async  *[0-9.]*  *[0-9.]*  *[0-9.]*  *2.3  *0.877  *2.6$'
met 4 null # a bound has no ratio
works race --resume known
has '^async .* reached in 1 of 2 runs'
has '^async  *[0-9.]*  *[0-9.]*  *[0-9.]*  *≥ [0-9.]*  *0.877  *-$'
has '^prediction error.* %$' # and no place in a ranking of two
met 4 2.2711
works race --resume known
grep -q 'sync – 1.0 s<' known/plot.svg || fail "the plot: $(grep -o 'sync – [^<]*' known/plot.svg)"

echo "-- one workload"
for option in data=blobs model=softmax workers=4 delay=exp:mean=2 attack=nan target-loss=1; do
    refused "all methods of a race have the same ${option%%=*}" race sync "async@$option"
done

works race async@batch=4 async --lr 0.1 --model quadratic --updates 9 --out sizes
! grep -q 'batch 32' out || fail "one entrant has another batch: $(cat out)"

echo "-- going on"
# shellcheck disable=SC2086
works race sync async --tune no --seeds 2 $small --updates 60 --out whole
mkdir cut
cp whole/race.json cut
head -n 2 whole/results.jsonl >cut/results.jsonl
printf '{"entrant":"asy' >>cut/results.jsonl
works race --resume cut
lines whole/results.jsonl | sort >a
lines cut/results.jsonl | sort >b
cmp -s a b || fail "a race that went on has other results"
works race --resume cut kasync --seeds 3
[ "$(wc -l <cut/results.jsonl)" -eq 9 ] || fail "more methods and seeds did not run"
has '^kasync '
works race --resume cut
[ "$(wc -l <cut/results.jsonl)" -eq 9 ] || fail "a finished race ran again"
refused 'all its entrants need the same' race --resume cut --workers 4
refused 'is in the race already' race --resume cut sync
refused 'leave out --out' race --resume cut --out other
refused 'is not of a race' race --resume .
printf '{"seeds":1,"options":{"workers":"many"},"entrants":[]}' >cut/race.json
refused 'is not of a race' race --resume cut

echo "-- interrupted"
# the last evaluation of the first two entrants starts the third, which would take long
"$PACELINE" race sync async kasync@updates=100000000 --tune no --model quadratic --updates 60 \
    --out stopped >out 2>err &
pid=$!
while [ "$(cat stopped/results.jsonl 2>/dev/null | wc -l)" -lt 2 ] && kill -0 $pid; do
    sleep 0.1
done
kill -INT $pid
wait $pid
[ $? -eq 130 ] || fail "an interrupted race has another status than 130"
has '^sync '
has '^kasync@updates=100000000 *not run'
has '^kasync@updates=100000000 did not run\.$'
grep -q '^3 of 3 runs done' err && fail "a run that was interrupted counts: $(cat err)"
grep -q -- "--resume stopped" err || fail "an interrupted race said $(cat err)"

echo "-- side by side"
for jobs in 1 2 5; do
    works race sync async@lr=0.1 kasync --workers 3 --model quadratic --target-loss 1 \
        --updates 300 --seeds 3 --jobs $jobs --out side-$jobs
    sed 's/side-[0-9]*/side/g' out >table-$jobs
    lines side-$jobs/results.jsonl | sort >results-$jobs
    cmp -s table-1 table-$jobs || fail "--jobs $jobs prints another table"
    cmp -s results-1 results-$jobs || fail "--jobs $jobs has other results"
    for file in side-1/*; do
        case $file in */run*.json | */results.jsonl) continue ;; esac # have ids and times of day
        cmp "$file" "side-$jobs/${file#*/}" || fail "--jobs $jobs has another ${file#*/}"
    done
done
[ "$(wc -l <results-5)" -eq 9 ] || fail "side by side: $(cat results-5)"
refused 'is not a whole number from 1' race sync --jobs 0 --model quadratic
refused 'is not a whole number from 1' race sync --jobs many --model quadratic
(
    ulimit -n 20 # a child has its own files open, and none of the others'
    works race sync async --tune no --model quadratic --updates 60 --seeds 10 --jobs 20 --out few
    exit $bad
) || bad=1
refused 'leave out --jobs' race sync --jobs 2 --dashboard 127.0.0.1:0 --model quadratic

# children PID: the processes that it has started
children() {
    cat "/proc/$1/task/$1/children" 2>/dev/null
}
# begins a race with an entrant that would take very long, and waits until all but it have ended
endless='kasync@updates=100000000'
begin() { # folder
    "$PACELINE" race $endless sync async --tune no --model quadratic --updates 60 --seeds 2 \
        --jobs 3 --out "$1" >out 2>err &
    pid=$!
    while [ "$(cat "$1/results.jsonl" 2>/dev/null | wc -l)" -lt 4 ] && kill -0 $pid; do
        sleep 0.1
    done
    while [ "$(children $pid | wc -w)" -gt 2 ]; do sleep 0.1; done
    # shellcheck disable=SC2046
    set -- $(children $pid)
    [ $# -eq 2 ] || fail "not one process per run: $*"
    child=${1:-} other=${2:-}
}
begin crash
kill -USR1 "$child"
kill -KILL "$other"
wait $pid && fail "a race with failed runs has status 0"
grep -q "in '$endless': .* ended by signal 10" err || fail "a signal: $(cat err)"
grep -q "in '$endless': .* ended by signal 9 .*--jobs needs less" err || fail "a kill: $(cat err)"
grep -q "2 of 6 runs have no result; 'paceline race --resume crash' repeats them" err ||
    fail "failed runs: $(cat err)"
has '^sync '
grep -q '"why": *"failed"' crash/run.json || fail "a race that failed: $(cat crash/run.json)"
begin ctrl-c
kill -INT $pid "$child" "$other" # as a terminal does
wait $pid
[ $? -eq 130 ] || fail "an interrupted race has another status than 130"
[ "$(wc -l <ctrl-c/results.jsonl)" -eq 4 ] || fail "results of an interrupted race"
grep -q 'ended by signal' err && fail "an interrupted race: $(cat err)"
begin orphans
kill -KILL $pid
wait $pid
for p in "$child" "$other"; do
    for _ in $(seq 400); do
        kill -0 "$p" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/$p/status" || break
        sleep 0.3
    done
    kill -0 "$p" 2>/dev/null && ! grep -q '^State:.*Z' "/proc/$p/status" && fail "an orphan: $p"
done

echo "-- one JSON object"
# shellcheck disable=SC2086
works race sync async --tune no $small --updates 30 --json --out object
[ "$(wc -l <out)" -eq 1 ] || fail "not one line of JSON: $(cat out)"
grep -q '"run":{"id":"[0-9]' out || fail "JSON without the run: $(cat out)"
grep -q '"sorted_by":"training loss"' out || fail "JSON: $(cat out)"
[ "$(number lr sync)" = 0.10000000000000001 ] || fail "the rate of sync is $(number lr sync)"

echo "-- what the seeds can tell"
# shellcheck disable=SC2086
works race sync@lr=0.02 sync@lr=0.3 async@lr=0.3 --seeds 4 $small --target-accuracy 0.5 --time 100 \
    --out seeds
has 'x vs sync@lr=0.3' # the best of its kind, not the first
has '^async@lr=0.3 ([0-9. ±]* s) was the first to reach a test accuracy of 0.5, [0-9.]* times ('
has '^sync@lr=0.02 .* - *≤ 0' # not reached within 100 s: no time, and a bound for the factor
has '^sync@lr=0.02 did not reach the target'
verdict=$(sed -n 's/^  "\(async.*was the first.*\)",*$/\1/p' seeds/race.json)
grep -qxF -- "${verdict:-none}" out || fail "race.json says '$verdict', the table $(cat out)"
# shellcheck disable=SC2086
works race sync async --lr 0.1 --seeds 2 $small --delay exp:mean=20 --target-accuracy 0.5 \
    --time 100000 --out long
! sed -n '/reach a test/p' out | grep -q 'e+' || fail "an exponent: $(cat out)"
# shellcheck disable=SC2086
works race sync async --tune no $small --target-accuracy 0.5 --time 200 --out one
has 'were .*async.* and sync.*, which cannot be told apart with 1 seed'
grep -q 'times as fast' out && fail "one seed tells who is faster: $(cat out)"
sed -i '/"entrant":"sync"/s/"time_to_target":[^,]*/"time_to_target":null/' one/results.jsonl
works race --resume one
has 'async reached a test accuracy of 0.5 after [0-9.]* s, with 1 seed'
! grep -q 'was the first' out || fail "one seed tells who is first: $(cat out)"
# shellcheck disable=SC2086
works race async sync --lr 0.1 --seeds 3 $small --target-accuracy 0.01 --time 80 --out begun
has 'were async (0 ± 0 s) and sync (0 ± 0 s), which cannot be told apart'
# shellcheck disable=SC2086
refused 'a race is to one target' race async sync $small --target-accuracy 0.5 --target-loss 1
# a run that missed the target counts with the time it had, and what has it in is a bound
# shellcheck disable=SC2086
works race sync async --tune no --seeds 4 $small --target-accuracy 0.5 --time 80 --out part
has '^sync .* ≥ .*reached in 1 of 4 runs'
has '^async .* ≥ '
has ', async .* at least [0-9.]* times as fast as sync (at least [0-9.]* s on av'
has '^sync reached the target in 1 of 4 runs'

echo "-- a factor is a geometric mean, with the interval of the logarithms"
# shellcheck disable=SC2086
works race sync async --tune no --seeds 2 $small --target-accuracy 0.5 --time 400 --out wild
# took ENTRANT SEED SECONDS REACHED: what such a run took
took() {
    sed -i "/\"entrant\":\"$1\".*\"seed\":$2\.0/{s/\"time_to_target\":[^,]*/\"time_to_target\":$4/
        s/\"time\":[^,]*/\"time\":$3/}" wild/results.jsonl
}
took async 1 1 1
took async 2 1 1
took sync 1 2 2
took sync 2 8 8
works race --resume wild
has '^async .* 4\.00 (0\.00 to 26727)  '
has 'cannot be told apart with 2 seeds; about [0-9]* more'
took sync 2 8 null # it had not arrived when it ended: what is known is the lower end
works race --resume wild
has '^async .*  - ' # what is known is far below 1 and says nothing
! grep -q '≥ 0\.00' out || fail "a factor that says nothing: $(cat out)"
tr -d ' \n' <wild/race.json |
    grep -q '"method":"async",[^{]*{[^}]*},"factor":{"mean":null' ||
    fail "race.json has a factor that says nothing: $(cat wild/race.json)"

echo "-- a bound is rounded to the side on which it holds"
for seed in 1 2; do took async $seed 1 1; done
took sync 1 147.31 147.31
took sync 2 148 null
works race --resume wild
has '^sync .* ≥ 147\.6  ' # of 147.655
has '^async .* ≥ 143\.33  ' # of 143.336
has ' at least 143 times as fast as sync (at least 147 s on average)'
grep -q 'sync – ≥ 147 s<' wild/plot.svg || fail "the plot: $(grep -o 'sync – [^<]*' wild/plot.svg)"
grep -q '"shown": "≥ 147"' wild/race.json || fail "race.json: $(grep '"shown"' wild/race.json)"
for seed in 1 2; do took sync $seed 100 100; done
took async 1 147.31 147.31
took async 2 148 null
works race --resume wild
has '^async .* ≥ 147\.6  .* ≤ 0\.70  ' # of 0.6977
took async 1 3.3 3.3
took async 2 3.3 null
works race --resume wild
has '^async .* ≥ 3\.3  .* ≤ 30\.31  ' # a number with few digits keeps them; of 30.303

echo "-- divergence"
works race sync@lr=0.5 async@lr=60 --data digits:samples=300,test=50 --model mlp --workers 3 \
    --updates 40 --seeds 2 --out apart
has 'diverged in 2 of 2 runs'
has '^async@lr=60 diverged\.$'
# if one of two runs did, the entrant has no place among the losses
sed -i '/"entrant":"async@lr=60".*"seed":1\.0/s/"diverged":true/"diverged":false/' \
    apart/results.jsonl
works race --resume apart
has '^async@lr=60 diverged in 1 of 2 runs\.$'
has '^sync@lr=0.5 had a training loss of .* at the end, with 2 seeds'
! grep -q '^async@lr=60 diverged\.$\|lowest training loss' out || fail "one of two: $(cat out)"
"$PACELINE" race sync async --lr 300 --data digits:samples=300,test=50 --workers 3 --updates 40 \
    --out none-left >out 2>err && fail "all runs diverged: status 0"
grep -q 'all 2 runs diverged; try smaller learning rates' err || fail "all diverged: $(cat err)"
"$PACELINE" simulate --data digits:samples=300,test=50 --model mlp --lr 60 \
    --workers 3 --updates 40 >out 2>err &&
    fail "a run that diverged: status 0"
grep -q 'the loss rose from' err || fail "a loss far above its start: $(cat err)"

[ $bad -eq 0 ] && echo "all good"
exit $bad
