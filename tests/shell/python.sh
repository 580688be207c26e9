# For tests that run Python. Sets python to the first interpreter that can execute a statement:
#
#     . "$SOURCE_DIR/tests/shell/python.sh"
#     find_python 'import torch' "no Python can import torch (make setup-test installs it)"
set -eu
: "${BUILD_DIR:?}" "${SOURCE_DIR:?}"
if [ -n "${SANITIZE:-}" ]; then
    echo "skipped: Python cannot load an instrumented library ($SANITIZE)"
    exit 77
fi
export PYTHONDONTWRITEBYTECODE=1

find_python() { # a statement, why the test is skipped if no interpreter can execute it
    for python in /usr/bin/python3 python3; do
        ! command -v $python >/dev/null || ! $python -c "$1" 2>/dev/null || return 0
    done
    echo "skipped: $2"
    exit 77
}

# The interpreter and the environment of tests/python/torch_*.py.
find_python_with_torch() {
    find_python 'import torch' "no Python can import torch (make setup-test installs it)"
    export PACELINE_LIBRARY="$BUILD_DIR/libpaceline.so"
    export PYTHONPATH="$SOURCE_DIR/python:$SOURCE_DIR/tests/python"
}
