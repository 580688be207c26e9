#!/bin/sh
# A wheel has the library, the MPI module and the program. In a fresh virtual environment, without
# the checkout on any path, all of it works: the command, python -m paceline, and the package. Every
# Python from 3.9 on that is there tries the same wheel. Needs no network.
. "${SOURCE_DIR:?}/tests/shell/python.sh"
have='import sys, importlib.util as i; sys.exit(not all(map(i.find_spec, sys.argv[1:])))'
find_python "import sys; sys.argv += ['pip', 'setuptools', 'wheel', 'venv']; $have" \
    "pip, setuptools, wheel or venv is missing (make setup-test installs them)"
if [ -n "$preload" ]; then
    echo "skipped: programs outside the build are not instrumented ($SANITIZE)"
    exit 77
fi
. "$SOURCE_DIR/tests/shell/fresh.sh"

step "pip wheel"
cp -r "$SOURCE_DIR/python" "$work/python"
PACELINE_BUILD=$BUILD_DIR $python -m pip --disable-pip-version-check wheel --no-build-isolation \
    --no-deps --no-index -w "$work" "$work/python" >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "pip wheel"; }
wheel=$(echo "$work"/paceline-*-py3-none-*.whl)
[ -s "$wheel" ] || fail "the wheel is not for one kind of machine and every Python: $(ls "$work")"

alone() { env -i PATH=/usr/bin:/bin HOME="$work" TMPDIR="$work" "$@"; }
version=$("$BUILD_DIR/paceline" --version)
one='import paceline as p; print(p.simulate(model="none", updates=3)["updates"], p.__file__)'
n=0
for each in $python python3.9 python3.10 python3.11 python3.12 python3.13; do
    "$each" -c "import sys; sys.exit(sys.version_info < (3, 9))" 2>/dev/null || continue
    step "pip install, $($each --version)"
    rm -rf venv
    $each -m venv --without-pip venv
    pip=$python # an older pip does not know the newest Python
    $each -m pip --python venv/bin/python --version >log 2>&1 && pip=$each
    $pip -m pip --disable-pip-version-check --python venv/bin/python install --no-index \
        --no-deps "$wheel" >log 2>&1 || { cat log; fail "pip install"; }
    package=$(echo "$work"/venv/lib/python3*/site-packages/paceline)
    (cd "$SOURCE_DIR/python/paceline" && find . -name '*.py' | sort) >modules
    (cd "$package" && find . -name '*.py' | sort) | diff modules - || fail "modules are missing"
    [ -f "$package/py.typed" ] || fail "py.typed is missing"
    [ "$(alone venv/bin/paceline --version)" = "$version" ] || fail "the command"
    [ "$(alone venv/bin/python -m paceline --version)" = "$version" ] || fail "python -m paceline"
    alone venv/bin/paceline simulate --model none --updates 3 >log 2>&1 ||
        fail "simulate: $(cat log)"
    alone venv/bin/python -c "$one" | grep -F "3.0 $package" || fail "the package"
    n=$((n + 1))
done
[ $n -gt 0 ] || fail "no Python was tried"

step "nothing of the checkout is needed"
for file in paceline libpaceline.so ${MPIEXEC:+libpaceline-mpi.so}; do
    [ -s "$package/$file" ] || fail "$file is not in the wheel"
    if grep -qF "$BUILD_DIR" "$package/$file"; then fail "$file looks for files in the build"; fi
done
if [ -n "${MPIEXEC:-}" ]; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        venv/bin/paceline train --transport mpi --updates 1 >log 2>&1 && fail "one process over MPI"
    grep -q 'mpirun -n' log || fail "the MPI module is not loaded: $(cat log)"
fi
echo "a wheel for $n versions of Python"
