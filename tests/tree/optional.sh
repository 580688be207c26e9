#!/bin/sh
# A build without the optional libraries (libmicrohttpd, libcurl, GnuTLS) compiles without warnings
# and links. Only the files that depend on them are compiled; the other objects are the build's.
set -eu
: "${BUILD_DIR:?}" "${SOURCE_DIR:?}" "${CC:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
built=$BUILD_DIR/CMakeFiles/paceline_objects.dir
own=$work/build/CMakeFiles/paceline_objects.dir

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

symbols() { # file of undefined and file of defined ones, objects …
    undefined=$1 defined=$2
    shift 2
    nm "$@" | awk -v U="$undefined" -v D="$defined" '
        NF < 2 { next }
        $(NF - 1) == "U" && $NF ~ /^pl_/ { print $NF >U }
        $(NF - 1) ~ /^[A-TV-Z]$/ { print $NF >D }'
    sort -u -o "$undefined" "$undefined"
    sort -u -o "$defined" "$defined"
}

without() { # packages …
    echo "-- without $*"
    rm -rf "$work/build" "$work/packages"
    mkdir "$work/packages"
    for package; do # found first, and too old
        printf 'Name: %s\nDescription: none\nVersion: 0.0.1\n' "$package" \
            >"$work/packages/$package.pc"
    done
    PKG_CONFIG_PATH=$work/packages cmake -S "$SOURCE_DIR" -B "$work/build" -G "Unix Makefiles" \
        -DCMAKE_C_COMPILER="$CC" -DBUILD_TESTING=OFF -DPACELINE_WERROR=ON -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    sed -n 's|.* -o CMakeFiles/paceline_objects.dir/\([^ ]*\) .*|\1|p' \
        "$work/build/compile_commands.json" >"$work/objects"
    [ "$(wc -l <"$work/objects")" -gt 100 ] || fail "the objects of the library were not found"
    set --
    for object in $(cat "$work/objects"); do
        source=${object%.o}
        if [ -f "$SOURCE_DIR/$source" ] && grep -q PL_HAVE_ "$SOURCE_DIR/$source"; then
            make -s -C "$work/build" "$object" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
            set -- "$@" "$own/$object"
        else
            set -- "$@" "$built/$object"
        fi
    done
    symbols "$work/undefined" "$work/defined" "$@"
    comm -23 "$work/undefined" "$work/defined" >"$work/missing"
    [ ! -s "$work/missing" ] || fail "nothing defines $(tr '\n' ' ' <"$work/missing")"
}

without libmicrohttpd libcurl gnutls
without gnutls
without libcurl
