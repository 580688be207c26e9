#!/bin/sh
# With all defaults a model learns what its data asks for: numbers and ratings, too. The header of
# the run says which method and learning rate were taken.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# number KEY: of the JSON object in the file out
number() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" out; }

# below LIMIT WHAT ARGUMENTS...: the test RMSE of a simulated run
below() {
    limit=$1 header=$2
    shift 2
    "$PACELINE" simulate --workers 2 "$@" --json >out 2>err || fail "$*: $(cat err)"
    awk -v x="$(number test_rmse)" -v y="$limit" 'BEGIN { exit !(x != "" && x + 0 < y) }' ||
        fail "$*: the test RMSE is '$(number test_rmse)', not below $limit"
    "$PACELINE" simulate --workers 2 "$@" --updates 1 >out 2>err
    grep -qF -e "$header" err || fail "$*: the header lacks \"$header\": $(cat err)"
}

step "numbers: the standard deviation of these targets is 5"
below 2.5 "lr 0.003" --data friedman
below 2.5 "lr 0.0003" --data friedman --optim momentum
below 2.5 "optim adam, lr 0.001" --data friedman --optim adam
below 3 "lr 0.1" --data friedman --model linear

step "ratings: the mean alone gives 0.9"
below 0.7 "method    fpsgd" --model mf --data lowrank:users=300,items=200,ratings=30000

step "numbers that are taken for classes"
awk 'BEGIN { print "a,price"; for (i = 0; i < 300; i++) print i % 7 "," 1000 + 3 * i }' >prices.csv
! "$PACELINE" simulate --data csv:prices.csv --updates 1 >out 2>err || fail "300 classes"
grep -q "add task=regress" err || fail "$(cat err)"

step "the method: auto, or kasync with the parts that are given or with too many workers"
"$PACELINE" simulate --model quadratic --updates 1 >out 2>err
header="auto: policy kbatchasync:k=8, tuner auto, correct brake, average tail,"
grep -q "method    $header" err || fail "$(cat err)"
"$PACELINE" simulate --model quadratic --correct gap --updates 1 >out 2>err
grep -q "method    kasync: policy kasync:k=4, correct gap," err || fail "$(cat err)"

"$PACELINE" simulate --model quadratic --workers 4097 --updates 1 >out 2>err
grep -q "method    kasync: policy kasync:k=2049," err || fail "4,097 workers: $(cat err)"

step "a rate and a method that are given are taken"
"$PACELINE" simulate --data friedman --lr 0.01 --updates 1 >out 2>err
grep -q "lr 0.01, batch 32$" err || fail "--lr 0.01: $(cat err)"
"$PACELINE" simulate --model mf --data lowrank:users=30,items=20,ratings=300 --policy kasync \
    --updates 1 >out 2>err
grep -q "method    custom: policy kasync" err || fail "--policy kasync: $(cat err)"

step "without test rows there is no test accuracy"
printf 'a,y\n1,2\n2,4\n3,6\n4,8\n' >t.csv
"$PACELINE" simulate --data csv:t.csv,task=regress,share=0 --updates 5 >out 2>err ||
    fail "$(cat err)"
grep -q "test" out && fail "a line about tests: $(cat out)"
exit $bad
