#!/bin/sh
# The first things that people type: the message says what they meant, and the status is 2.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# says WORDS ARGUMENTS...
says() {
    words=$1
    shift
    "$PACELINE" "$@" >out 2>err
    status=$?
    [ $status -eq 2 ] || fail "paceline $*: status $status"
    [ "$(wc -l <err)" -eq 1 ] || fail "paceline $* says more than one line: $(cat err)"
    grep -qF -e "$words" err || fail "paceline $* lacks \"$words\": $(cat err)"
}

echo "-- words of other tools"
says "use --lr" train --learning-rate 0.1
says "use --optim momentum:beta=0.9" train --momentum 0.9
says "use --optim" train --optimizer adam
says "use --batch" simulate --batch-size=64
says "use --optim adam" train --method adam
says "use --batch" train --batchsize 64
says "use --target-loss" train --loss-target 0.3
says "use --target-accuracy" train --accuracy-target 0.9
says "use --sampling epoch" train --shuffle
says "use --data csv:FILE,share=0.2" train --val-split 0.2
says "use --data csv:FILE,test=FILE" train --train-data x.csv
says "paceline race sync async" race --methods sync,async
says "separate methods by spaces: race sync async ksync:k=2" race sync,async,ksync:k=2
for model in resnet18 resnet50; do says "use --model cnn (a ResNet" train --model $model; done
says "use --method sync" simulate --method ddp
says "use --data idx:DIR" train --data mnist
says "use --data csv:mine.csv" train --data mine.csv
says "use --data csv:./a.b/mine.csv" train --data ./a.b/mine.csv
says "put -- before the program: paceline launch -n N -- python3" launch -n 2 python3 x.py
says "did you mean --target-loss" train --traget-loss 1
says "did you mean --eval-every" train --eval 5
says "use a worker program of your own, which decides where" train --device cuda
says "it has --quiet" train --verbose
says "use --target-loss to end at a loss; --model decides which loss it is" train --loss mse
says "use --max-norm" train --grad-clip 1

echo "-- an option of a spec is answered with those of the spec"
says "did you mean 'beta1'? The options are beta1, beta2," simulate --optim adam:beta=0.9
says "no option 'momentum'; the options are beta, form" simulate --optim nesterov:momentum=0.9
says "no option 'momentum'; use --optim momentum:beta=0.9" simulate --optim sgd:momentum=0.9
says "no option 'foo'; none are accepted" simulate --optim sgd:foo=1
says "there is no option 'k'; the only option is s" simulate --policy ssp:k=3
says "there is no option 'staleness'; the options are k," simulate --policy kasync:staleness=3
says "there is no option 'hidden'; the options are" simulate --model cnn:hidden=64
says "there is no option 'timeout'; the only option is mean" simulate --delay exp:timeout=3
says "did you mean 'k'?" simulate --policy kasync:K=2

echo "-- a name of another option, in other letters, of something that is not there"
says "no policy is called 'async'; use --method async" simulate --policy async
says "no filter is called 'krum'; use --reduce krum:f=1" simulate --filter krum:f=1
says "no method is called 'rounds'; use --policy rounds" simulate --method rounds
says "use --data idx:DIR" train --data MNIST
says "did you mean 'mlp'?" train --model MLP
says "use --method async" simulate --method ASGD
says "use --resume" train --load x
says "use --checkpoint DIR for weights" train --output x
says "use --data csv:FILE; files of Parquet" train --data x.parquet
says "no data is called 'cifar100'; give one of " train --data cifar100

echo "-- a word without its flag, a number without its key"
says "write --method sync" train sync --data digits
says "write --method kasync:k=2" simulate kasync:k=2
says "write --data digits" train digits
says "'soon' is not expected here; flags of train are --NAME VALUE" train soon
says "use --data npy:X.npy,labels=Y.npy" train --data mnist.npz
says "'-n' is not a flag of train; use --workers" train -n 2
says "'-np' is not a flag of race; use --workers" race sync -np 2
says "'-x' is not a flag of train; write --NAME VALUE" train -x 2
count="put -n before the number of workers: paceline launch -n 2 --"
says "$count python3 ..." launch 2 python3 train.py
says "$count python3 ..." launch 2 -- python3 train.py
says "$count PROGRAM ..." launch 2
says "launch -n N -- train.py" launch train.py -- 2
[ "$("$PACELINE" version)" = "$("$PACELINE" --version)" ] || fail "version: $("$PACELINE" version)"
for n in -np --np --n; do says "launch has no option $n; use -n N" launch $n 2 -- true; done
says "use --delay const:t=0.02" simulate --delay 0.02
says "use --delay const:t=20ms" simulate --delay 20ms
says "delay 'exp': '0.02' is not key=value; did you mean mean=0.02?" simulate --delay exp:0.02
says "did you mean mean=20ms?" simulate --delay exp:20ms
says "did you mean k=3?" simulate --method ksync:3
says "'fast' is not key=value" simulate --delay exp:fast
grep -q 'did you mean' err && fail "exp:fast: $(cat err)"
says "use paceline train --checkpoint DIR --resume auto" resume ck
says "use paceline eval" evaluate ck

echo "-- no hint is better than a wrong one"
for word in dropout patience layers activation version start-epoch weights test nodes; do
    says "train has no option --$word; see paceline train --help" train --$word 1
done

echo "-- values"
says "epochs takes a number from 0 to 1000000000; did you mean 5?" train --epochs 5e
says "did you mean 90%?" train --target-accuracy 90
says "seconds, or 500ms, 90s, 5m, 2h, 1h30m, 1d" train --time soon
says "did you mean 10m?" train --time '10 minutes'
says "did you mean 1h30m?" train --time '1 hour 30 min'
says "did you mean 500ms?" train --time '500 ms'
for time in 5minuets '5 months' '5 milliseconds' '1 0 m' 1h30 30m1h 1h-5m h 5,5m; do
    says "(seconds, or 500ms" train --time "$time"
    grep -q 'did you mean' err && fail "--time $time: $(cat err)"
done
says "takes a share above 0, up to 1" train --target-accuracy 0
says "takes a number above 0" simulate --target-loss 0
says "takes a share above 0" simulate --target-accuracy 0% --target-loss 0.5
says "from 0 to 9007199254740992" train --seed 99999999999999999999
says "lr takes a number above 0" train --lr 0
says "lr takes a number above 0, up to 1000000" train --lr 1e-400
says "did you mean 0.1?" train --lr 0,1
says "did you mean 1000?" train --updates 1,000
says "did you mean 1000?" train --updates 1_000
says "did you mean 1000?" train --updates 1k
says "did you mean 10000000?" train --updates 10M
says "did you mean 1000?" train --batch 1k
says "did you mean 0.1?" train --lr 10%
for wrong in "target-accuracy 1.5" "updates 5x" "batch 10M" "updates 1h"; do
    # shellcheck disable=SC2086
    says "is not accepted" train --$wrong
    grep -q 'did you mean' err && fail "--$wrong: $(cat err)"
done
says "--method needs a value" train --method ''

echo "-- standard output where it is not possible"
for flag in "simulate --record" "train --history" "replay --record"; do
    # shellcheck disable=SC2086
    says "takes the name of a file; - cannot be used here" $flag -
done
for flag in "train --log-dir" "train --checkpoint" "race --out" "race -o" "keys --out"; do
    # shellcheck disable=SC2086
    says "takes the name of a folder; - cannot be used here" $flag -
done
[ ! -e - ] || fail "a file or a folder called -"

echo "-- a flag that is given twice"
"$PACELINE" simulate --model none --updates 5 --workers 3 --workers=2 --json >out 2>err ||
    fail "$(cat err)"
grep -q '"workers":2,' out || fail "the last one does not count: $(cut -c1-100 out)"
grep -qF -e "--workers is given twice; the last one counts" err || fail "no word: $(cat err)"

echo "-- units"
seconds() { # TIME SECONDS
    "$PACELINE" simulate --model none --delay const:t=1 --workers 1 --time "$1" --json >out 2>err ||
        fail "--time $1: $(cat err)"
    grep -qE "\"time\":$2(,|\.0000)" out || fail "--time $1 is not $2 s: $(cut -c1-200 out)"
}
seconds 2m 120
seconds 90s 90
seconds 1500ms 1.5
seconds 7 7
seconds 1.2 1.2
seconds 5min 300
seconds 2hours 7200
seconds 1h30m 5400
seconds 1m30sec 90
seconds 1day1second 86401
# the same in the options of a law or a policy, whose numbers look like those of --time
alike() { # OPTION VALUE SAME-VALUE
    for value in "$2" "$3"; do
        "$PACELINE" simulate --model none --workers 2 --updates 5 "$1" "$value" --json 2>err |
            sed 's/,"run":.*//' >"same.$value"
        [ -s "same.$value" ] || fail "$1 $value: $(tail -n 1 err)"
    done
    cmp -s "same.$2" "same.$3" || fail "$1 $2 is not $3"
}
alike --delay exp:mean=20ms exp:mean=0.02
alike --delay '2*const:t=1.5s|const:t=1m' '2*const:t=1.5|const:t=60'
alike --delay shiftexp:shift=10ms,mean=1m30s shiftexp:shift=0.01,mean=90
alike --delay pareto:shape=2,scale=5ms pareto:shape=2,scale=0.005
alike --delay hetero:v=0.5,gamma:shape=4,mean=250ms hetero:v=0.5,gamma:shape=4,mean=0.25
alike --net latency=3ms latency=0.003
alike --method pbsp:sample=1,poll=2ms pbsp:sample=1,poll=0.002
alike --evict 30m 1800
says "(seconds, or 500ms, 90s" simulate --delay exp:mean=20mss
grep -q 'did you mean' err && fail "a mean of 20 s is proposed for 20mss: $(cat err)"
says "like 90, 500ms or 30m" simulate --evict soon
for every in 5min 1h30m 1d '500 updates'; do
    "$PACELINE" train --model quadratic --workers 1 --updates 3 --checkpoint saved \
        --checkpoint-every "${every% updates}" >out 2>err || fail "every $every: $(cat err)"
    grep -q "saved to saved every $every\$" err || fail "every $every: $(grep saved err)"
    rm -r saved
done

echo "-- yes or no may be left out"
says "--lr fixes" race sync --tune --lr 0.1
says "--lr fixes" race sync --lr 0.1 --tune
says "--tune 'perhaps': use yes or no" race sync --tune=perhaps
"$PACELINE" race sync --tune no --workers 2 --model quadratic --updates 3 >out 2>err ||
    fail "--tune no: $(cat err)"
exit $bad
