# For tests that run in a folder of their own, which is removed at the end, and go on after a
# failure: . "$SOURCE_DIR/tests/shell/fresh.sh", and at the end: exit $bad
set -u
: "${PACELINE:?}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0

fail() {
    echo "FAIL: $*" >&2
    bad=1
}

step() {
    echo "-- $*"
}
