#!/bin/sh
# What `make install` installs is complete and works where it lies: a C and a C++ program find it by
# pkg-config and by find_package, link to it and run; the shared library shows exactly the functions
# that the headers mark PL_API; the library's own policies compile with the installed headers alone.
set -e
if [ -n "${SANITIZE:-}" ]; then
    echo "skipped: programs outside the build are not instrumented ($SANITIZE)"
    exit 77
fi
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"

step "install with DESTDIR and a prefix"
DESTDIR=$work/dest cmake --install "$BUILD_DIR" --prefix /opt/paceline >"$work/log" 2>&1 ||
    { cat "$work/log"; fail "cmake --install"; }
root=$work/dest/opt/paceline
[ "$(ls "$work/dest")" = opt ] || fail "something was installed outside the prefix"
pc=$(find "$root" -name paceline.pc)
lib=$(dirname "$(dirname "$pc")")
version=$(sed -n 's/^#define PL_VERSION "\(.*\)"$/\1/p' "$root/include/paceline.h")
for f in bin/paceline include/paceline.h include/paceline_client.h include/paceline_loop.h \
    include/paceline_policy.h share/man/man1/paceline.1; do
    [ -s "$root/$f" ] || fail "$f is not installed"
done
for f in libpaceline.a libpaceline.so "libpaceline.so.$version"; do
    [ -s "$lib/$f" ] || fail "$f is not installed"
done
"$root/bin/paceline" --version | grep -F "$version" || fail "bin/paceline --version"
grep -q '^\.TH PACELINE 1' "$root/share/man/man1/paceline.1" || fail "paceline.1 is no manual page"

step "the shared library exports what the headers declare, and nothing else"
printf '#include "%s"\n' "$root/include/paceline_client.h" "$root/include/paceline_loop.h" \
    "$root/include/paceline_policy.h" |
    "${CC:-cc}" -E -P - | tr '\n' ' ' |
    grep -o 'visibility("default")))[^(;]*(' | grep -o 'pl_[a-z0-9_]* *($' | tr -d ' (' | sort \
    >"$work/declared"
nm -D --defined-only "$lib/libpaceline.so" | awk '$NF !~ /^_/ { print $NF }' | sort \
    >"$work/exported"
for f in pl_setup_new pl_take pl_rng_unit; do
    grep -qx "$f" "$work/declared" || fail "$f is not found among the declared functions"
done
diff "$work/declared" "$work/exported" || fail "declared (<) and exported (>) functions differ"

step "MPI is in a module, which is loaded when it is asked for"
for f in "$root/bin/paceline" "$lib/libpaceline.so"; do
    ldd "$f" >"$work/needs" || fail "ldd $f"
    if grep -E 'libmpi|libmpich|libpaceline-mpi' "$work/needs"; then fail "$f needs MPI"; fi
done
asked() { # words of the one sentence it must say
    "$root/bin/paceline" train --transport mpi --updates 1 >"$work/log" 2>&1 &&
        fail "one process trained over MPI"
    [ "$(grep -c '^paceline: ' "$work/log")" = 1 ] || fail "not one sentence: $(cat "$work/log")"
    grep -qe "$1" "$work/log" || fail "--transport mpi said: $(cat "$work/log")"
}
module=$lib/libpaceline-mpi.so
if [ -n "${MPIEXEC:-}" ]; then
    [ -s "$module" ] || fail "libpaceline-mpi.so is not installed"
    (export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 && asked 'mpirun -n')
    mv "$module" "$work/module.so"
fi
asked 'MPI needs libpaceline-mpi.so, which cannot be loaded (.*); build with MPI'
echo 'const struct { const char *version; long size[64]; } pl_mpi_module = {"0.0.0", {0}};' \
    >"$work/other.c"
"${CC:-cc}" -shared -fPIC "$work/other.c" -o "$module"
asked 'libpaceline-mpi.so is of version 0.0.0, from another build'
rm "$module"
[ -z "${MPIEXEC:-}" ] || mv "$work/module.so" "$module"

export PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"
[ "$(pkg-config --modversion paceline)" = "$version" ] || fail "the version of paceline.pc"
strict="-Wall -Wextra -Wpedantic -Werror"
consumer=$SOURCE_DIR/tests/tree/install/consumer.c
cc=${CC:-cc}
cxx=no
for c in "${CXX:-c++}" g++ clang++; do
    if command -v "$c" >/dev/null; then
        cxx=$c
        break
    fi
done

# shellcheck disable=SC2046,SC2086 # flags are words
{
    step "the policies of the library by the installed headers alone"
    n=0
    for f in "$SOURCE_DIR"/src/policy/*.c; do
        case $f in */table.c) continue ;; esac
        $cc -std=c17 $strict -fsyntax-only "$f" $(pkg-config --cflags paceline) || fail "$f"
        n=$((n + 1))
    done
    [ $n -gt 0 ] || fail "there is no policy"

    step "C by pkg-config"
    $cc -std=c99 $strict "$consumer" -o "$work/c" $(pkg-config --cflags --libs paceline)
    "$work/c"

    step "C by pkg-config, the static library"
    static=$(pkg-config --static --cflags --libs paceline | sed "s|-lpaceline|$lib/libpaceline.a|")
    $cc -std=c99 $strict "$consumer" -o "$work/c-static" $static
    env -u LD_LIBRARY_PATH "$work/c-static"

    if [ "$cxx" = no ]; then
        step "C++: skipped, there is no C++ compiler"
    else
        step "C++ by pkg-config"
        $cxx -std=c++17 $strict -x c++ "$consumer" -o "$work/cxx" \
            $(pkg-config --cflags --libs paceline)
        "$work/cxx"
    fi
}

step "find_package"
cmake_args=-DWITH_CXX=OFF
[ "$cxx" = no ] || cmake_args="-DWITH_CXX=ON -DCMAKE_CXX_COMPILER=$cxx"
# shellcheck disable=SC2086 # flags are words
cmake -S "$SOURCE_DIR/tests/tree/install" -B "$work/cmake" -DCMAKE_C_COMPILER="$cc" $cmake_args \
    -DCMAKE_PREFIX_PATH="$root" >"$work/log" 2>&1 || { cat "$work/log"; fail "find_package"; }
grep -q "^paceline_DIR:PATH=$root/" "$work/cmake/CMakeCache.txt" || fail "found another paceline"
cmake --build "$work/cmake" >"$work/log" 2>&1 || { cat "$work/log"; fail "build by find_package"; }
for program in "$work"/cmake/consumer-*; do
    env -u LD_LIBRARY_PATH "$program" || fail "$program"
done

echo "installed, found and run"
