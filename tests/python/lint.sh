#!/bin/sh
# All Python code passes mypy --strict, black and flake8. python/pyproject.toml has the settings and
# lists what is relaxed. Debian's versions are meant: others may judge differently. What mypy knows
# about torch is kept in the build folder.
. "${SOURCE_DIR:?}/tests/shell/python.sh"
[ -z "${SANITIZE:-}" ] || { echo "skipped: it has read these files in the plain build"; exit 77; }
for tool in mypy black flake8; do
    command -v $tool >/dev/null || {
        echo "skipped: there is no $tool (make setup-test installs it)"
        exit 77
    }
done
find_python "$finds_torch" "no Python has torch, whose types mypy reads"
cd "$SOURCE_DIR"
bad=0
echo "-- mypy --strict"
check() {
    MYPYPATH=python:examples:tests/python:tests/observe mypy --config-file python/pyproject.toml \
        --python-executable "$(command -v $python)" --cache-dir "$BUILD_DIR/mypy" "$@" || bad=1
}
programs=$(grep -lE '^#!.*python' scripts/*) # whose names do not end in .py
check python/paceline examples tests/python
# some files have the names of others
# shellcheck disable=SC2086 # a list of files
check --scripts-are-modules bench tests/observe tests/shell tests/fuzz python/setup.py $programs
code="python examples bench tests $programs"
echo "-- black"
# shellcheck disable=SC2086 # a list of folders
BLACK_CACHE_DIR=$BUILD_DIR/black black --config python/pyproject.toml --check --diff -q \
    $code || bad=1
echo "-- flake8"
# E203 and W503 contradict black; a test may give a lambda a name (E731)
# shellcheck disable=SC2086
flake8 --max-line-length 120 --extend-ignore E203,W503,E731 $code || bad=1
exit $bad
