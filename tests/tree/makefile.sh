#!/bin/sh
# What the Makefile adds to CMake: a checkout that was moved is configured again, and one that was
# not keeps its settings; where a library lies that the loader does not find is said.
set -u
command -v make >/dev/null || { echo "skipped: make is not installed"; exit 77; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/build" || exit 1
cp "${SOURCE_DIR:?}/Makefile" "$dir" && cd "$dir" || exit 1
echo "CMAKE_HOME_DIRECTORY:INTERNAL=/where/it/was" >build/CMakeCache.txt
make -n build | grep -q -e ' --fresh ' || { echo "the old settings are used"; exit 1; }
echo "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" >build/CMakeCache.txt
! make -n build | grep -q -e ' --fresh ' || { echo "settings are forgotten"; exit 1; }
rm build/CMakeCache.txt
! make -n build | grep -q -e ' --fresh ' || { echo "there is nothing to forget"; exit 1; }
make -n install PREFIX=/opt/here | grep -q LD_LIBRARY_PATH || { echo "not said"; exit 1; }
