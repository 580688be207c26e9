#!/bin/sh
# Runs a file of tests with PyTorch: tests/shell/torch.sh tests/python/torch_NAME.py
. "${SOURCE_DIR:?}/tests/shell/python.sh"
find_python_with_torch
unset PACELINE # the variable tells Python programs who they are
export PYTHON="$python" PATH="$BUILD_DIR:$PATH" OMP_NUM_THREADS=1
$python "$1"
