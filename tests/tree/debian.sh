#!/bin/sh
# The packages of debian/ are built from what is in the build folder, and what they contain works
# where it is unpacked. dpkg-buildpackage in a checkout compiles everything as well.
set -eu
: "${BUILD_DIR:?}" "${SOURCE_DIR:?}"

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

[ -z "${SANITIZE:-}" ] || skip "what is packed is not instrumented ($SANITIZE)"
for tool in dpkg-buildpackage dh dh_python3; do
    command -v $tool >/dev/null || skip "there is no $tool (make setup-test installs it)"
done
[ -n "${MPIEXEC:-}" ] || skip "built without MPI, which is one of the packages"
[ -f "$BUILD_DIR/libpaceline-mpi.so" ] || fail "the MPI module is not built"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source" "$work/root"
cp -r "$SOURCE_DIR/debian" "$SOURCE_DIR/CHANGELOG.md" "$work/source"
cd "$work/source"
# -d: what it would need to compile is not needed here
PACELINE_BUILD=$BUILD_DIR dpkg-buildpackage -b -us -uc -d >../log 2>&1 ||
    { cat ../log; fail "dpkg-buildpackage"; }
cd "$work"
version=$(sed -n 's/^#define PL_VERSION "\(.*\)"$/\1/p' "$SOURCE_DIR/include/paceline.h")
for package in paceline paceline-mpi libpaceline-dev python3-paceline; do
    dpkg-deb -x ${package}_"$version"_*.deb root || fail "$package has another version"
done
[ "$(root/usr/bin/paceline --version)" = "$("$BUILD_DIR/paceline" --version)" ] ||
    fail "the program"
for file in include/paceline.h lib/libpaceline.a lib/libpaceline.so lib/libpaceline-mpi.so \
    lib/pkgconfig/paceline.pc share/man/man1/paceline.1.gz; do
    [ -s "root/usr/$file" ] || fail "$file is in no package"
done
packages=$work/root/usr/lib/python3/dist-packages
one='import paceline as p; print(p.simulate(model="none", updates=3)["updates"], p.__file__)'
env -i PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$packages" /usr/bin/python3 -c "$one" |
    grep -F "3.0 $packages" || fail "the Python package"
dpkg-deb -f paceline_*.deb Depends | grep -q openblas || fail "no dependency on OpenBLAS"
if dpkg-deb -f paceline_*.deb Depends | grep -q mpi; then fail "the program depends on MPI"; fi
echo "four packages"
