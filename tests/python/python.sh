#!/bin/sh
# The Python package, without PyTorch: tests/python/test_*.py, and what make install
# installs; wheel.sh is about pip.
. "${SOURCE_DIR:?}/tests/shell/python.sh"
find_python 'import sys; sys.exit(sys.version_info < (3, 9))' "there is no Python 3.9 or later"
. "$SOURCE_DIR/tests/shell/fresh.sh"

modules() { (cd "$1" && find . -name '*.py' | sort); }
one='import paceline as p; print(p.simulate(model="none", updates=3)["updates"], p.__file__)'

step "tests"
PACELINE_LIBRARY=$BUILD_DIR/libpaceline.so PYTHONPATH=$SOURCE_DIR/python LD_PRELOAD=$preload \
    $python -m unittest discover -s "$SOURCE_DIR/tests/python" -p 'test_*.py' || fail "the tests"

[ -z "$preload" ] || exit 0 # what follows is about files

step "by make install"
DESTDIR=$work/dest cmake --install "$BUILD_DIR" --prefix /opt/paceline >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "cmake --install"; }
packages=$work/dest/opt/paceline/lib/python3/dist-packages
modules "$SOURCE_DIR/python/paceline" >"$work/modules"
modules "$packages/paceline" | diff "$work/modules" - || fail "modules are missing"
[ -f "$packages/paceline/py.typed" ] || fail "py.typed is not installed"
(cd "$work" && PYTHONPATH=$packages $python -c "$one") | grep "3.0 $packages" ||
    fail "the installed package"
