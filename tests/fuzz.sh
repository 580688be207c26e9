#!/bin/sh
# Every target of tests/fuzz for a second, and first each input of its corpus.
if [ -n "${SANITIZE:-}" ]; then
    echo "skipped: the targets have sanitizers of their own"
    exit 77
fi
FUZZ_SEED=1 exec "$SOURCE_DIR/tests/fuzz/run" "$BUILD_DIR/fuzz" 1 2
