# For tests that run Python. Sets python to the first interpreter that can execute a statement:
#
#     . "$SOURCE_DIR/tests/shell/python.sh"
#     find_python 'import yaml' "no Python can import yaml (Debian package python3-yaml)"
set -eu
: "${BUILD_DIR:?}" "${SOURCE_DIR:?}"
# what LD_PRELOAD must be for an instrumented library
preload=
case ${SANITIZE:-} in
'') ;;
*address*) # its library must be there before Python, which leaks by itself
    preload=$("${CC:-cc}" -print-file-name=libasan.so)
    export ASAN_OPTIONS=detect_leaks=0
    ;;
*)
    echo "skipped: Python cannot load an instrumented library ($SANITIZE)"
    exit 77
    ;;
esac
export PYTHONDONTWRITEBYTECODE=1

# Finds PyTorch without importing it, which takes a second.
finds_torch='import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))'

find_python() { # a statement, why the test is skipped if no interpreter can execute it
    for python in /usr/bin/python3 python3; do
        ! command -v $python >/dev/null || ! $python -c "$1" 2>/dev/null || return 0
    done
    echo "skipped: $2"
    exit 77
}

# The interpreter and the environment of tests/python/torch_*.py.
find_python_with_torch() {
    if [ -n "$preload" ]; then
        echo "skipped: PyTorch is not loaded beside a sanitizer ($SANITIZE)"
        exit 77
    fi
    find_python "$finds_torch" "no Python has torch (make setup-test installs it)"
    export PACELINE_LIBRARY="$BUILD_DIR/libpaceline.so"
    export PYTHONPATH="$SOURCE_DIR/python:$SOURCE_DIR/tests/python"
}
