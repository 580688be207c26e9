#!/bin/sh
# Random pages in a real browser: one point, constant, diverged, a thousand workers, no model, names
# with quotes and markup. `make pages` opens 200.
set -u
[ -z "${SANITIZE:-}" ] || { echo "skipped: built with a sanitizer"; exit 77; }
python=$(command -v python3) || { echo "skipped: python3 is not installed"; exit 77; }
PACELINE=$(realpath "$PACELINE") || exit 1
export PACELINE
exec "$python" "$SOURCE_DIR/tests/observe/pages.py" "${PAGES:-12}"
