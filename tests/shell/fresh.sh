# For tests that run in a folder of their own, $work, which is removed at the end. They go on after
# a failure, unless they have said set -e: . "$SOURCE_DIR/tests/shell/fresh.sh", and at the end:
# exit $bad
set -u
: "${PACELINE:?}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0

fail() {
    echo "FAIL: $*" >&2
    bad=1
    case $- in *e*) exit 1 ;; esac
}

step() {
    echo "-- $*"
}

# status, standard output and standard error of the program in $status, out and err
run() {
    "$PACELINE" "$@" >out 2>err
    status=$?
}

works() {
    run "$@"
    [ "$status" -eq 0 ] || fail "paceline $*: status $status, $(cat out err)"
}

refused() { # words of its message, arguments …
    words=$1
    shift
    run "$@"
    [ "$status" -ne 0 ] || fail "paceline $*: was not refused"
    grep -q -- "$words" err || fail "paceline $*: \"$(cat err)\" lacks \"$words\""
}

has() {
    grep -q -- "$1" out || fail "the output lacks '$1': $(cat out)"
}
