#!/bin/sh
# Simulations of PyTorch models: tests/python/torch_*.py, on the CPU, and on a GPU if there is one.
. "${SOURCE_DIR:?}/tests/shell/python.sh"
find_python_with_torch
$python "$SOURCE_DIR/tests/python/torch_simulate.py"
if $python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    $python "$SOURCE_DIR/tests/python/torch_gpu.py"
else
    echo "not tested: rules on a GPU, because there is no CUDA device"
fi
