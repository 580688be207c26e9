#!/bin/sh
# paceline predict: what was trained on a file predicts new rows of it, by the names, categories,
# units and ids that travel with the weights, and as well as eval says.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

train() { # FOLDER ARGUMENTS...
    folder=$1
    shift
    "$PACELINE" train --workers 2 --spawn threads "$@" --checkpoint "$folder" >out 2>err ||
        fail "train $*: $(cat err)"
}
predict() { # FILE CHECKPOINT ARGUMENTS...
    to=$1
    shift
    "$PACELINE" predict "$@" >"$to" 2>err || fail "predict $*: $(cat err)"
}
refused() { # WORDS CHECKPOINT ARGUMENTS...
    words=$1
    shift
    "$PACELINE" predict "$@" >out 2>err && fail "predict $* was accepted"
    [ "$(wc -l <err)" -eq 1 ] || fail "predict $* says more than one line: $(cat err)"
    grep -qF -e "$words" err || fail "predict $* lacks \"$words\": $(cat err)"
}
# number KEY CHECKPOINT: of its evaluation
number() { "$PACELINE" eval "$2" --json 2>err | sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p"; }
near() { # WHAT GOT WANTED
    awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; if (d < 0) d = -d
        exit !(a != "" && b != "" && d <= 1e-4 * (b < 0 ? -b : b)) }' || fail "$1: '$2', not '$3'"
}

# Rows of three kinds of flower, one of a number, ratings of a product of two numbers.
awk 'BEGIN { srand(7); split("rose,tulip,\"lily, white\"", f, ","); f[3] = "\"lily, white\""
    print ",petal,colour,kind" >"train.csv"; print ",petal,colour,kind" >"test.csv"
    for (i = 0; i < 900; i++) { k = i % 3; to = i < 600 ? "train.csv" : "test.csv"
        printf "%d,%.3f,%s,%s\n", i, k + rand(), rand() < 0.8 ? "red" : "blue", f[k + 1] >to } }'

step "classes: names, categories, an index; as many right as eval says"
train flowers --data csv:train.csv,test=test.csv --updates 200
predict all flowers --data csv:test.csv
[ "$(head -1 all)" = "prediction,probability" ] || fail "the first line is $(head -1 all)"
[ "$(wc -l <all)" -eq 301 ] || fail "$(wc -l <all) lines"
grep -q '^"lily, white",0\.' all || fail "no lily in $(head -5 all)"
sed 's/.*\(rose\|tulip\|lily\).*/\1/' test.csv >wanted
sed 's/.*\(rose\|tulip\|lily\).*/\1/' all >got
right=$(paste wanted got | awk 'NR > 1 && $1 == $2 { n++ } END { print n / 300 }')
near "accuracy" "$right" "$(number test_accuracy flowers)"
awk -F, 'NR > 1 && ($NF < 0.33 || $NF > 1) { exit 1 }' all || fail "a probability is none"

step "a reader that has read enough"
mkfifo go
{
    read -r _ <go
    "$PACELINE" predict flowers --data csv:test.csv 2>err
    echo $? >code
} | {
    exec <&-
    echo go >go
}
until [ -s code ]; do sleep 0.1; done
[ "$(cat code)" -eq 1 ] || fail "into a closed pipe: status $(cat code)"
[ ! -s err ] || fail "into a closed pipe: $(cat err)"

step "without the target, in another order, with more columns; a new category; a missing value"
awk -F, '{ print (NR == 1 ? "more" : "x") "," $3 "," $2 }' test.csv >features.csv
predict some flowers --data csv:features.csv
cmp -s all some || fail "other predictions without the target"
printf 'petal,colour\n0.5,green\n2.5,blue\n' >new.csv
"$PACELINE" predict flowers --data csv:new.csv --out new.out >out 2>err || fail "$(cat err)"
grep -qx 'paceline: wrote 2 rows to new.out' err || fail "what was written is not said: $(cat err)"
[ "$(cut -c1-5 new.out | tr '\n' ' ')" = 'predi rose, "lily ' ] || fail "$(cat new.out)"
printf 'petal,colour\n,red\n' >new.csv
refused "add missing=fill" flowers --data csv:new.csv
refused "make missing texts a category" flowers --data csv:new.csv,ignore=petal
! grep -q 'ignore=' err || fail "a column that the model needs: $(cat err)"
printf 'petal,colour\nmaybe,red\n' >odd.csv
refused "as in the rows of the training; replace it, or empty the field" flowers --data csv:odd.csv
! grep -q 'ignore=\|category=' err || fail "what a model cannot have: $(cat err)"
predict filled flowers --data csv:new.csv,missing=fill
printf 'petals,colour\n1,red\n' >new.csv
refused "did you mean 'petals'" flowers --data csv:new.csv
for out in "--out -" "-o -" --out=-; do
    # shellcheck disable=SC2086
    predict stream flowers --data csv:test.csv $out
    cmp -s all stream && [ ! -s err ] && [ ! -e - ] || fail "$out: $(ls), $(cat err)"
done
refused "predict needs the rows to predict: paceline predict CHECKPOINT --data csv:FILE" flowers
refused "already exists and will not be overwritten" flowers --data csv:new.csv --out new.out

step "numbers, in their own unit"
awk 'BEGIN { srand(3); head = "size,district,price"
    print head >"flats.csv"; print head >"more.csv"
    for (i = 0; i < 500; i++) { s = 20 + 100 * rand(); n = rand() < 0.5
        printf "%.1f,%s,%.0f\n", s, n ? "north" : "south", 3000 * s + 50000 * n \
            >(i < 400 ? "flats.csv" : "more.csv") } }'
train flats --data csv:flats.csv,test=more.csv,target=price,task=regress --model linear \
    --updates 400
predict prices flats --data csv:more.csv
rmse=$(paste -d, more.csv prices | awk -F, 'NR > 1 { d = $3 - $4; s += d * d } END {
    print sqrt(s / (NR - 1)) }')
near "RMSE" "$rmse" "$(number test_rmse flats)"

step "sparse rows, and pictures"
awk 'BEGIN { srand(5); for (i = 0; i < 300; i++) { k = i % 2 ? -1 : 7
    printf "%d 1:%.2f 3:%.2f\n", k, k + rand(), rand() >(i < 200 ? "a.svm" : "b.svm") } }'
train sparse --data libsvm:a.svm,test=b.svm --model softmax --updates 100
sed 's/^[-0-9]* /0 /; s/$/ 9:1/' b.svm >c.svm # no labels, and a feature that is new
predict svm sparse --data libsvm:c.svm
right=$(paste -d ' ' b.svm svm | sed 1d | wc -l)
[ "$right" -eq 100 ] || fail "$right lines of sparse predictions"
sed 1d svm | cut -d, -f1 >got
cut -d' ' -f1 b.svm | paste - got | awk '$1 == $2 { n++ } END { exit n != 100 }' ||
    fail "not all sparse rows are right"
train digits --data digits:samples=500,test=100 --model softmax --updates 50
predict pictures digits --data digits:samples=500,test=100
[ "$(wc -l <pictures)" -eq 101 ] || fail "$(wc -l <pictures) lines of pictures"

step "ratings, by their ids"
awk 'BEGIN { srand(2); for (u = 0; u < 60; u++) for (v = 0; v < 40; v++) {
    r = 3 + (u % 3 - 1) + (v % 5 - 2) / 2
    to = rand() < 0.9 ? "r" : "t"
    if (rand() < 0.5) printf "%d,%d,%.1f\n", 1000 + 7 * u, 50 - v, r >to } }'
train stars --model mf:k=4 --data ratings:r,test-file=t --updates 2000
predict rated stars --data ratings:t
[ "$(head -1 rated)" = "user,item,prediction" ] || fail "the first line is $(head -1 rated)"
sed 1d rated | paste -d, t - | awk -F, '$1 != $4 || $2 != $5 { exit 1 }' || fail "other ids"
rmse=$(sed 1d rated | paste -d, t - |
    awk -F, '{ d = $3 - $6; s += d * d } END { print sqrt(s / NR) }')
near "RMSE of ratings" "$rmse" "$(number test_rmse stars)"
printf '1000 50\n999999 1\n' >pairs
predict pair stars --data ratings:pairs
[ "$(wc -l <pair)" -eq 3 ] || fail "pairs without ratings: $(cat pair)"

step "what cannot be predicted"
refused "the model was not trained on a file of ratings" flats --data ratings:t
refused "the model was not trained on a CSV file" sparse --data csv:more.csv
refused "has rows of" flats --data digits
refused "predict takes one checkpoint" --data digits
refused "cannot be found" nowhere --data digits
train square --model quadratic --updates 5
refused "has nothing to predict" square
head='{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
printf "\\$(printf %03o ${#head})\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0" "$head" >other.safetensors
refused "does not say what its data were (columns, scaling, classes, ids): another program" \
    other.safetensors --data csv:more.csv
exit $bad
