#!/bin/sh
# Simulations of PyTorch models: tests/python/torch_*.py, on the CPU, and on a GPU if there is one.
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
export PYTHONDONTWRITEBYTECODE=1 PACELINE_LIBRARY="$BUILD_DIR/libpaceline.so"
export PYTHONPATH="$SOURCE_DIR/python:$SOURCE_DIR/tests/python"
$python "$SOURCE_DIR/tests/python/torch_simulate.py"
if $python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    $python "$SOURCE_DIR/tests/python/torch_gpu.py"
else
    echo "not tested: rules on a GPU, because there is no CUDA device"
fi
