#!/bin/sh
# Workers that are PyTorch programs: every tests/python/torch_*.py but torch_simulate and torch_gpu.
set -eu
if [ -n "${SANITIZE:-}" ]; then
    echo "skipped: Python cannot load an instrumented library ($SANITIZE)"
    exit 77
fi
: "${BUILD_DIR:?}" "${SOURCE_DIR:?}"
python=
for p in /usr/bin/python3 python3; do
    if command -v $p >/dev/null && $p -c 'import torch' 2>/dev/null; then
        python=$p
        break
    fi
done
if [ -z "$python" ]; then
    echo "skipped: no Python can import torch (make setup-test installs it)"
    exit 77
fi
unset PACELINE # the variable tells Python programs who they are
export PYTHONDONTWRITEBYTECODE=1 PACELINE_LIBRARY="$BUILD_DIR/libpaceline.so" OMP_NUM_THREADS=1
export PYTHONPATH="$SOURCE_DIR/python:$SOURCE_DIR/tests/python"
export PYTHON=$python PATH="$BUILD_DIR:$PATH"
for t in exact methods failures evaluate examples adapters; do
    echo "-- $t"
    $python "$SOURCE_DIR/tests/python/torch_$t.py"
done
