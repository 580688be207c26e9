#!/bin/sh
# The page in a real browser: runs of every kind, 10^5 tasks, the keyboard, hostile files, a live
# run. Not in an instrumented build, where a browser finds nothing more.
set -u
[ -z "${SANITIZE:-}" ] || { echo "skipped: built with a sanitizer"; exit 77; }
python=$(command -v python3) || { echo "skipped: python3 is not installed"; exit 77; }
exec "$python" "$SOURCE_DIR/tests/observe/page.py"
