#!/bin/sh
# Clients that come and go leave nothing at the server (scripts/crowd; its long forms are
# commands of their own).
. "${SOURCE_DIR:?}/tests/shell/python.sh"
find_python 'import selectors' "no Python"
if "$PACELINE" keys --out none 2>&1 | grep -q "this build cannot"; then
    echo "skipped: this build has no HTTP server"
    exit 77
fi
rm -rf none
storms=100
[ -z "${SANITIZE:-}" ] || storms=20
$python "$SOURCE_DIR/scripts/crowd" "$PACELINE" storms $storms
# a sanitizer keeps memory that was freed
[ -n "${SANITIZE:-}" ] || $python "$SOURCE_DIR/scripts/crowd" "$PACELINE" turnover 1000
$python "$SOURCE_DIR/scripts/crowd" "$PACELINE" waiting 50
$python "$SOURCE_DIR/scripts/crowd" "$PACELINE" encrypted 20
