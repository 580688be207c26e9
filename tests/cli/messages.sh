#!/bin/sh
# What is said if something goes wrong: a sentence that a person can act on, and nothing that a
# terminal would carry out.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# says STATUS WORDS ARGUMENTS...
says() {
    wanted=$1 words=$2
    shift 2
    "$PACELINE" "$@" >out 2>err
    status=$?
    [ $status -eq "$wanted" ] || fail "paceline $*: status $status, not $wanted"
    grep -qF -e "$words" err || fail "paceline $*: no \"$words\" in: $(cat err)"
}

lacks() { # WORDS FILE
    ! grep -qF -e "$1" "$2" || fail "\"$1\" in: $(cat "$2")"
}

step "control characters of arguments and files are shown, not sent"
escape=$(printf '\033[31m')
plain() {
    "$PACELINE" "$@" >out 2>err && fail "paceline $* succeeds"
    grep -q '\^\[\[31m' err || fail "paceline $*: $(cat -v err)"
    ! LC_ALL=C tr -d '\n' <err | LC_ALL=C grep -q '[[:cntrl:]]' || fail "raw: $(cat -v err)"
}
printf '\033[31mEVIL lr=1\n' >layout
printf '\033[31mEVIL,b\nx,y\n' >evil.csv
plain train "${escape}EVIL"
plain train "--${escape}EVIL"
plain train --data digits --model softmax --layout layout
plain train --data csv:evil.csv,target=zz
plain "${escape}EVIL"
# the introducers of one byte, in Latin-1 and UTF-8; other letters stay
"$PACELINE" train "$(printf 'a\233b\302\233c\303\244')" 2>err
grep -qF "$(printf "'a?b?c\303\244'")" err || fail "$(cat -v err)"
"$PACELINE" simulate --data "csv:evil.csv,target=b" --workers 2 --updates 1 \
    --log-dir "${escape}logs" >out 2>err
! grep -q "$(printf '\033')" err || fail "the header is raw: $(cat -v err)"

step "no argument is echoed at length"
long=$(head -c 3000 /dev/zero | tr '\0' a)
for words in "--$long" "$long" "--$long=1" "--data $long" "--lr $long" "--method $long"; do
    # shellcheck disable=SC2086
    "$PACELINE" train $words >out 2>err && fail "accepted: $words"
    [ "$(wc -c <err)" -lt 600 ] || fail "$(wc -c <err) bytes for $(echo "$words" | cut -c1-20)"
done

step "files that are not what they should be"
says 1 "'/etc/passwd' is damaged: it is not a safetensors file" eval /etc/passwd
says 1 "recording 'MISSING' cannot be read: No such file" replay MISSING --lr 0.05
touch file
says 1 "paceline: log directory 'file/logs' cannot be created" \
    simulate --model none --updates 5 --log-dir file/logs
says 1 "folder '$work/x/y/z' cannot be created: there is no folder '$work/x'; create it first" \
    train --model quadratic --updates 3 --checkpoint "$work/x/y/z"
says 1 "log directory 'x/y/' cannot be created: there is no folder 'x'" \
    train --model quadratic --updates 3 --log-dir x/y/
for file in --log --events --record --history; do
    says 1 " file 'x/y' cannot be created: there is no folder 'x'; create it first" \
        simulate --model quadratic --updates 3 $file x/y
done
says 1 "there is no folder 'nosuch'; --resume takes that of a race" race --resume nosuch
printf 'a,label\n1,0\n2,0\n' >one.csv
says 1 "one.csv: all rows have the same target; there must be 2 classes or more" \
    simulate --data csv:one.csv --updates 1

awk 'BEGIN { print "a,width"; for (i = 0; i < 300; i++) print i "," i % 184 }' >many.csv
says 1 "the target 'width' (the last column) has 184 different numbers in 300 rows, too many" \
    simulate --data csv:many.csv --updates 1
says 1 "; if another column is the target, add target=NAME" simulate --data csv:many.csv --updates 1
"$PACELINE" simulate --data csv:many.csv,task=regress --model linear --updates 1 >out 2>err
grep -q ', 1 feature, a number to predict' err || fail "one feature: $(cat err)"

step "which commands have an option"
says 2 "commands that have it: simulate, race, replay" train --net latency=1
says 2 "takes a number above 0, up to 1000000" train --lr 1e-400
lacks "did you mean" err
for command in predict eval replay; do
    "$PACELINE" $command --help >out
    lacks "default fashion" out
done

step "refused before anything is made"
says 2 "k cannot be more than the number of workers" \
    train --method kasync:k=99 --data digits --workers 2 --updates 5 --log-dir l --record r
[ "$(wc -l <err)" -eq 1 ] || fail "a header before a refusal: $(cat err)"
says 2 "checkpoint-every '10.5' is neither" \
    train --data digits --updates 5 --checkpoint-every 10.5 --checkpoint c
says 2 "--checkpoint-every needs --checkpoint DIR" train --data digits --checkpoint-every 5
[ ! -e l ] && [ ! -e r ] && [ ! -e c ] || fail "left behind: $(ls)"

step "a start that fails late leaves nothing, so that the same command can be given again"
(
    ulimit -f 2000
    exec "$PACELINE" train --data digits --updates 5 --workers 2 --log-dir l --record r \
        --history h --log j --events e
) >out 2>err
status=$?
[ $status -eq 1 ] || fail "status $status: $(cat err)"
grep -q "raise the limit (ulimit -f)" err || fail "$(cat err)"
for name in l r h j e; do [ ! -e $name ] || fail "$name is left behind"; done
mkdir mine
"$PACELINE" simulate --model none --updates 5 --log-dir mine --record file >out 2>err &&
    fail "a file was overwritten"
[ -d mine ] && [ -e file ] || fail "a folder or file that was there is gone"
says 2 "'c' is the folder of --checkpoint; give another name, such as --log-dir c/log-dir" \
    train --data digits --workers 1 --updates 5 --log-dir c --checkpoint c
[ ! -e c ] || fail "left behind: $(ls -a c)"
mkdir none
for way in "--wait 0.2 --listen s" "--listen 1.2.3.4:99 --insecure yes" \
    "--listen 127.0.0.1:0 --keys none"; do
    # shellcheck disable=SC2086 # a list of options
    "$PACELINE" serve --data digits --model softmax --workers 1 --record r --log-dir l --log j \
        --events e --history h --checkpoint c $way >out 2>err && fail "serve $way succeeded"
    for name in l r h j e c; do [ ! -e $name ] || fail "serve $way left $name behind"; done
done

step "the header says what a run is"
"$PACELINE" train --data digits --method sync --workers 4 --attack signflip:f=2,scale=-100 \
    --updates 300 >out 2>err && fail "an attack of half of the workers succeeds"
grep -q '^  attack    signflip:f=2,scale=-100$' err || fail "no attack in the header: $(cat err)"
grep -q 'the run diverged: .*workers were hostile (--attack)' err || fail "$(cat err)"
lacks "try a smaller" err
grep -q '^  method  .*, lr 0.1, batch 32$' out || fail "no rate: $(cat out)"
"$PACELINE" simulate --model quadratic --method async --correct gap --updates 9 >out 2>err
grep -q '^  method  *async (kasync:k=1, correct gap), ' out || fail "no correction: $(cat out)"
"$PACELINE" simulate --data digits --workers 2 --epochs 1 --updates 1 --record rec >out 2>err ||
    fail "$(cat err)"
grep -q 'limits    1 update, 1 epoch$' err || fail "$(grep limits err)"
"$PACELINE" replay rec >out 2>err || fail "$(cat err)"
grep -q '^paceline .*: replay, run ' err || fail "a replay without a header: $(cat err)"

"$PACELINE" train --data digits --workers 1 --updates 1 >out 2>err || fail "$(cat err)"
! grep -q '[0-9]e-[0-9]* s' err || fail "a time with an exponent: $(cat err)"

step "what was not saved is said once"
"$PACELINE" train --method kasync --model quadratic --workers 1 --lr 1e6 --updates 7 \
    --checkpoint last --quiet >out 2>err && fail "a model that could not be saved is success"
[ "$(grep -c 'is not saved' err)" -eq 1 ] || fail "$(cat err)"

step "the last worker"
"$PACELINE" train --data digits --workers 1 --delay const:t=0.2 --updates 1e9 >out 2>err &
server=$!
worker=
while kill -0 $server 2>/dev/null; do
    worker=$(ps -o pid= --ppid $server | tr -d ' ')
    [ -n "$worker" ] && grep -q 'update 0' err && break
    sleep 0.05
done
[ -n "$worker" ] || fail "no worker was found: $(cat err)"
[ -z "$worker" ] || kill -9 "$worker"
wait $server
grep -q 'worker 1 was killed .*; no worker is left$' err || fail "$(cat err)"

step "results"
"$PACELINE" train --data digits --workers 1 --updates 5 --checkpoint saved --quiet >out 2>err
"$PACELINE" eval saved >out 2>err || fail "$(cat err)"
grep -Eq '^  loss  +[0-9]\.[0-9]{1,3}$' out || fail "digits: $(cat out)"
"$PACELINE" race sync async --data digits --workers 2 --updates 5 --tune no --json \
    --out race >out 2>err || fail "$(cat err)"
[ ! -s err ] || fail "--json prints more: $(cat err)"
"$PACELINE" report race -o - >out 2>err || fail "$(cat err)"
[ "$(head -n 1 out)" = '<!doctype html>' ] && [ ! -e - ] || fail "report -o -: $(head -c 200 out)"
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 "$PACELINE" simulate --model none --updates 3 \
    --quiet >out 2>err || fail "$(cat err)"
grep -q 'warning: this command uses one process.*: rank 0 runs it' err || fail "$(cat err)"
[ -s out ] || fail "rank 0 computed nothing"
OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 "$PACELINE" simulate --model none --updates 3 \
    --record by.another >out 2>err || fail "another rank: $(cat err)"
[ ! -s out ] && [ ! -s err ] && [ ! -e by.another ] || fail "another rank: $(cat out err)"
echo "-- ASCII where the locale says so"
"$PACELINE" race sync async --model quadratic --updates 30 --seeds 2 --out plain >wide 2>err
grep -q '±' wide || fail "no ± in a race: $(cat wide)"
for command in "race sync async --model quadratic --updates 30 --seeds 2 --out plain2" \
    "train --model quadratic --updates 200 --workers 2" "help train" "list worker-names"; do
    for locale in C POSIX de_DE.ISO-8859-1; do
        rm -rf plain2
        LC_ALL=$locale "$PACELINE" $command >out 2>&1 || fail "$command: $(cat out)"
        odd=$(LC_ALL=C grep '[^ -~]' out)
        [ -z "$odd" ] || fail "LC_ALL=$locale $command: $odd"
    done
done

exit $bad
