#!/bin/sh
# Every target of tests/fuzz for a second, and first each input of its corpus.
if [ -n "${SANITIZE:-}" ]; then
    echo "skipped: the targets have sanitizers of their own"
    exit 77
fi
exec "$SOURCE_DIR/tests/fuzz/run" "$BUILD_DIR/fuzz" seconds=1 jobs=1 seed=1
