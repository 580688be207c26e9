#!/bin/sh
# Workers that are PyTorch programs: every tests/python/torch_*.py but torch_simulate and torch_gpu.
. "${SOURCE_DIR:?}/tests/shell/python.sh"
find_python_with_torch
unset PACELINE # the variable tells Python programs who they are
export PYTHON="$python" PATH="$BUILD_DIR:$PATH" OMP_NUM_THREADS=1
for t in exact early network groups methods failures runs steps changes unused folders evaluate \
    examples; do
    echo "-- $t"
    $python "$SOURCE_DIR/tests/python/torch_$t.py"
done
