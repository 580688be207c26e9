#!/bin/sh
# Runs a file of tests with PyTorch: tests/shell/torch.sh tests/python/torch_NAME.py
. "${SOURCE_DIR:?}/tests/shell/python.sh"
find_python_with_torch
unset PACELINE # the variable tells Python programs who they are
export PYTHON="$python" PATH="$BUILD_DIR:$PATH" OMP_NUM_THREADS=1
case $1 in
*_gpu.py)
    if ! $python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
        echo "skipped: there is no CUDA device"
        exit 77
    fi
    ;;
esac
$python "$1"
