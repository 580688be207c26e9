#!/bin/sh
# Finding things: one method or part explained, help, the manual, completion in shells.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

# shows WORDS ARGUMENTS...: status 0 and WORDS on standard output
shows() {
    words=$1
    shift
    "$PACELINE" "$@" >out 2>err || fail "paceline $*: status $?, $(cat err)"
    grep -qF -e "$words" out || fail "paceline $* lacks \"$words\": $(cat out)"
}

echo "-- one method or part"
shows "row         --policy kasync:k=1,stop=yes --tuner abs:rule=measured" list abs
shows "when        Delays have heavy tails" list abs
shows "Tan, Zhu, Zhang" list abs
shows "max_lag=N|inf" list abs
shows "(here 1) [policy kasync]" list abs
shows "try         paceline simulate --method abs --data digits" list abs
shows "policy kasync" list kasync
shows "method kasync" list kasync
shows "methods     kardam" list kardam
shows "commands    simulate, train, serve, race, plan, replay" list workers
shows "write       --workers N" list workers
shows "answers     what do hostile workers send?" list signflip
shows "filter: " list filter attack
shows "attack: " list filter attack
[ "$(awk 'length > 100' out | grep -c 'when  ')" -eq 0 ] || fail "a line of list is too long"

echo "-- help"
for command in train simulate serve work keys launch race replay report eval predict plan \
    reproduce list; do
    shows "usage: paceline $command" help $command
    cp out first
    "$PACELINE" $command --help >out
    cmp -s first out || fail "help $command differs from $command --help"
done
shows "usage: paceline COMMAND" help
shows "usage: paceline completion bash|zsh" help completion
"$PACELINE" help train race >out 2>err && fail "help takes two commands"
for command in train simulate race; do
    "$PACELINE" help $command >out
    for heading in Method Workers "Model, data and learning rate" Limits Files; do
        grep -q "^$heading" out || fail "help $command has no heading $heading"
    done
done

# narrow FILE WHAT: no line is wider than a terminal of 80 columns
narrow() {
    wide=$(LC_ALL=C tr -d '\200-\277' <"$1" | awk 'length > 79') # characters, not bytes
    [ -z "$wide" ] || fail "$2 has wide lines: $wide"
}
"$PACELINE" help >all
narrow all help
for command in $(sed -n 's/^  \([a-z]*\)  .*/\1/p' all); do
    "$PACELINE" help "$command" >out
    narrow out "help $command"
done
"$PACELINE" list >all
narrow all list
for family in $(sed -n 's/^\([a-z]*\): .*/\1/p' all); do
    "$PACELINE" list "$family" >out
    narrow out "list $family"
done
for name in $(sed -n '/^method:/,/^$/s/^  \([a-z][^ ]*\) .*/\1/p' all); do
    "$PACELINE" list "$name" >out
    narrow out "list $name"
done

echo "-- the manual"
"$PACELINE" --man >paceline.1
for section in NAME SYNOPSIS DESCRIPTION COMMANDS OPTIONS EXAMPLES FILES "EXIT STATUS" METHOD \
    FILTER ATTACK; do
    grep -qx "\.SH $section" paceline.1 || fail "the manual lacks $section"
done
grep -q '^\\fB\\-\\-workers\\fR \\fIN\\fR$' paceline.1 || fail "--workers has no type"
grep -q '^\\fB\\-\\-log\\fR \\fIFILE\\fR$' paceline.1 || fail "--log has no type"
grep -q '^\\fB\\-\\-method\\fR \\fISPEC\\fR$' paceline.1 || fail "--method has no type"
grep -q '\\fITEXT' paceline.1 && fail "something in the manual is a mere text"
grep -q 'seeds.*\\fIN\\fR' paceline.1 || fail "the flags of single commands are missing"

echo "-- completion"
"$PACELINE" completion bash >paceline.bash || fail "completion bash"
"$PACELINE" completion zsh >_paceline || fail "completion zsh"
"$PACELINE" completion fish >out 2>err && fail "completion fish"
grep -q 'completion bash' err || fail "completion fish: $(cat err)"
mkdir saved
: >seen.rec

# offers "WORDS OFFERED" WORDS ON THE LINE..., the last of them being completed
offers() {
    wanted=$1
    shift
    bash -c '. ./paceline.bash
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _paceline; echo "${COMPREPLY[*]}"' \
        bash "$@" >out 2>err
    [ "$(cat out)" = "$wanted" ] || fail "bash offers \"$(cat out)\" for \"$*\", not \"$wanted\""
    [ ! -s err ] || fail "bash says: $(cat err)"
}
if command -v bash >/dev/null; then
    offers "train" paceline tr
    offers "abs" paceline train --method ab
    offers "iid epoch" paceline train --sampling ""
    offers "iid epoch" paceline train --sampling = ""
    offers "epoch" paceline train --sampling = ep
    offers "--seeds --seed" paceline race --seed
    offers "--real" paceline race --real
    offers "" paceline train --real
    offers "ksync kbatchsync kasync kbatchasync krum kardam" paceline race k
    offers "kasync" paceline list kas
    offers "seen.rec" paceline replay se
    offers "saved" paceline train --checkpoint s
    offers "saved" paceline eval sa
    offers "saved" paceline report sa
    offers "saved" paceline plot sa
    offers "saved" paceline report x -o sa
    offers "seen.rec" paceline report x --out se
    offers "" paceline simulate --workers ""
    offers "train" paceline help t
    offers "schedule" paceline list sched
    offers "exp" paceline simulate --delay ex
    offers "cosine" paceline train --lr-schedule cos
    offers "auto" paceline train --resume au
    offers "saved" paceline train --resume sa
    offers "off" paceline train --evict of
    offers "seen.rec" paceline train --data csv : se
    offers "seen.rec" paceline train --data = csv : se
    offers "paceline.1 paceline.bash" paceline train --data csv : pace
    offers "" paceline train --method kasync : se
fi
if command -v zsh >/dev/null; then
    zsh -n _paceline || fail "zsh does not accept its completion"
    # the functions of the line editor, as far as they are used
    zsh -c 'words=(paceline train --method ""); CURRENT=4
        compadd() { shift; print -r -- $*; }; _files() { print files $*; }; compset() { :; }
        . ./_paceline' >out 2>&1
    grep -q '^sync async ksync' out || fail "zsh offers $(cat out)"
fi
exit $bad
