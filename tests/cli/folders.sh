#!/bin/sh
# Folders that have something in them: whatever a command is told to write there, it changes and
# removes nothing that it did not make, also if it fails, and also if it is killed.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# All files of the user's folder, with their contents.
state() {
    cd "$work/user" && find . -printf '%y %m %l %p\n' | sort &&
        find . -type f -exec cksum {} + | sort -k3
    cd "$work" || exit 1
}

# A folder with names that Paceline uses itself, and others.
furnish() {
    rm -rf user && mkdir -p user/sub/deep user/empty
    for name in run.json history.json events.txt metrics.jsonl trace.json plot.svg \
        race.json results.jsonl points-01-seed1.jsonl history-01.json report.html \
        report.html.part h.json h.json.part recording log run.socket latest best.safetensors \
        checkpoint-0000000003.safetensors best.tmp latest.tmp thesis.tex sub/deep/data.csv; do
        echo "the user's $name" >"user/$name"
    done
    ln -s thesis.tex user/link
    ln -s nowhere user/dangling
    state >before
}

unchanged() { # what was done
    state >after
    cmp -s before after || fail "$1 changed: $(diff before after | head -5)"
}

attempt() { # whatever its status
    timeout -k 1 60 "$PACELINE" "$@" >out 2>err </dev/null
    code=$?
    [ $code -lt 124 ] || fail "$*: status $code"
    unchanged "$*"
}

run="--workers 2 --data digits --model softmax --updates 4 --eval-every 2"
furnish

step "an output option that names what exists"
for name in recording thesis.tex link dangling empty sub h.json run.json; do
    # shellcheck disable=SC2086 # a list of options
    for option in record log events history; do
        attempt simulate $run --$option user/$name
        [ $code -ne 0 ] || fail "--$option user/$name succeeded"
    done
    # shellcheck disable=SC2086
    attempt train $run --listen user/$name --wait 1
    attempt report user/$name -o user/$name
done

step "folders that are not empty"
# shellcheck disable=SC2086
for name in user user/sub user/thesis.tex user/link user/dangling; do
    attempt simulate $run --log-dir $name
    attempt race sync async --tune no $run --seeds 1 --out $name
    attempt race --resume $name sync
    attempt report $name
    attempt report $name -o user/report.html
    attempt eval $name
done

step "checkpoints"
# shellcheck disable=SC2086
for name in user user/thesis.tex user/link user/sub/deep/data.csv; do
    attempt train $run --checkpoint $name
    [ $code -ne 0 ] || fail "--checkpoint $name succeeded"
    attempt train $run --checkpoint $name --resume auto
    attempt train $run --checkpoint $name --resume user/best.safetensors
done
# a folder with other things is fine: what is there stays, however many checkpoints come and go
mkdir keep
echo mine >keep/thesis.tex
echo mine >keep/checkpoint-1.safetensors
echo mine >keep/checkpoint-0000000001.safetensors.bak
echo mine >keep/checkpoint-0000000001.safetensors.1-1.tmp
# shellcheck disable=SC2086
for updates in 4 8 12; do
    "$PACELINE" train --workers 2 --data digits --model softmax --updates $updates \
        --checkpoint keep --checkpoint-every 1 --checkpoint-keep 1 --resume auto \
        >out 2>err </dev/null || { [ $updates -eq 4 ] || fail "resuming: $(cat err)"; }
done
for name in thesis.tex checkpoint-1.safetensors checkpoint-0000000001.safetensors.bak \
    checkpoint-0000000001.safetensors.1-1.tmp; do
    [ "$(cat keep/$name)" = mine ] || fail "keep/$name is gone"
done

step "a folder of checkpoints in which a name is the user's"
# shellcheck disable=SC2086
for name in run.json best latest best.tmp latest.tmp best/ link:run.json link:latest link:best \
    link:best.tmp; do
    rm -rf user && mkdir -p user
    case $name in
    link:*) ln -s thesis "user/${name#link:}" ;;
    */) mkdir "user/$name" ;;
    *) echo '{"id": "mine"}' >"user/$name" ;;
    esac
    echo mine >user/thesis
    state >before
    attempt train $run --checkpoint user
    [ $code -ne 0 ] || fail "--checkpoint with the user's $name succeeded"
    grep -q 'is in the way' err || fail "the user's $name: $(cat err)"
done
# nor does another output of the same run get one of these names, however the folder is called
rm -rf user && mkdir -p user/ck && ln -s ck user/linked && state >before
for name in latest best best.tmp run.json .lock best.safetensors \
    checkpoint-0000000004.safetensors checkpoint-0000000004.safetensors.paceline-1-1.tmp; do
    for option in record log events history log-dir listen; do
        for folder in ck linked ./ck/../ck; do
            # shellcheck disable=SC2086
            attempt train $run --checkpoint user/ck --$option user/$folder/$name
            [ $code -eq 2 ] || fail "--$option $folder/$name: status $code"
            grep -q "^paceline: --$option 'user/$folder/$name' has a name that --checkpoint" err ||
                fail "--$option $folder/$name: $(cat err)"
        done
    done
done
for option in record log events history log-dir listen; do
    # shellcheck disable=SC2086
    attempt train $run --checkpoint user/ck --$option user/ck/
    grep -q "such as --$option user/ck/$option\$" err || fail "--$option user/ck/: $(cat err)"
done
# shellcheck disable=SC2086 # other names are free, and so is a folder below
works train $run --checkpoint user/ck --record user/ck/run.rec --log-dir user/ck/log
works replay user/ck/run.rec
# those of an earlier run are replaced, but not by a run that never began
softmax="--workers 2 --data digits --model softmax"
# shellcheck disable=SC2086
{
    works train $softmax --checkpoint keep --resume auto --updates 16
    rm keep/checkpoint-* keep/best.safetensors
    works train $softmax --checkpoint keep --updates 4
    rm keep/checkpoint-* keep/best.safetensors
    cp keep/run.json described
    refused "cannot listen" train $softmax --checkpoint keep --metrics 1.2.3.4:1
}
cmp -s keep/run.json described || fail "a run that never began replaced run.json"
furnish

step "a folder below one of the user's, also of a run that is killed or fails"
# shellcheck disable=SC2086
for way in fails killed; do
    if [ $way = fails ]; then
        attempt simulate $run --log-dir user/empty --lr nonsense
        attempt race sync nonsense $run --out user/new
    else
        "$PACELINE" race sync async --tune no --workers 2 --data digits --seeds 3 --time 100000 \
            --out user/new >out 2>err </dev/null &
        pid=$!
        points=user/new/points-01-seed1.jsonl
        while [ ! -s $points ] && kill -0 $pid 2>/dev/null; do sleep 0.1; done
        kill -9 $pid
        wait $pid 2>/dev/null
        rm -rf user/new
    fi
    unchanged "a race that $way"
done

exit $bad
