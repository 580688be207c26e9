#!/bin/sh
# tests/tidy finds what it is there to find: plants one breach at a time in a small tree that is in
# order, and expects tidy to fail and to say why.
set -eu
: "${SOURCE_DIR:?}"
unset SANITIZE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree objects=$work/objects
failures=0

make_tree() {
    rm -rf "$tree" "$objects"
    mkdir -p "$tree/include" "$objects/policy"
    for d in base core policy sim run cli; do mkdir -p "$tree/src/$d"; done
    cd "$tree"
    cat >include/paceline.h <<'END'
const char *pl_status_text(int status);
END
    cat >src/base/status.h <<'END'
#include "paceline.h"
END
    cat >src/core/policy.h <<'END'
#include "base/status.h"
struct pl_policy {
    void (*arrive)(void *state);
};
double pl_take(double factor);
END
    cat >src/policy/ksync.c <<'END'
/* A policy. Comments may speak of strcpy(s) and "quotes; strings of sprintf( and // too. */
#include <math.h>

#include "core/policy.h"

static void ksync_arrive(void *state) {
    double *at = state;
    *at = pl_take(log(*at));
}

const struct pl_policy pl_policy_ksync = {.arrive = ksync_arrive};
END
    cat >src/policy/table.c <<'END'
#include "core/policy.h"

extern const struct pl_policy pl_policy_ksync;
const struct pl_policy *const pl_policies[] = {&pl_policy_ksync, 0};
END
    cat >src/cli/main.c <<'END'
#include <stdio.h>

#include "paceline.h"

int main(void) {
    puts("sprintf(\"gets(\")"); /* — 97 characters in 101 bytes are fine, this one: ……………… */
    return 0;
}
END
}

compile() {
    for name in ksync table; do
        "${CC:-cc}" -O2 -fPIC -I include -I src -c src/policy/$name.c -o "$objects/policy/$name.c.o"
    done
}

# expect "words of the complaint": tidy must fail on the tree as it is, for that reason alone
expect() {
    if out=$(sh "$SOURCE_DIR/tests/tidy" "$tree" "${2:-}"); then
        echo "FAIL: not caught: $1"
        failures=$((failures + 1))
    elif ! printf '%s\n' "$out" | grep -qF "$1"; then
        printf 'FAIL: expected "%s", got:\n%s\n' "$1" "$out"
        failures=$((failures + 1))
    elif [ "$(printf '%s\n' "$out" | wc -l)" != 2 ]; then
        printf 'FAIL: expected "%s" alone, got:\n%s\n' "$1" "$out"
        failures=$((failures + 1))
    else
        printf 'caught: %s\n' "$out" | head -n 1
    fi
    make_tree
}

repeat() { # count, text
    awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) print text }'
}

make_tree
compile
sh "$SOURCE_DIR/tests/tidy" "$tree" "$objects" || { echo "FAIL: the tree in order"; exit 1; }

# who may include whom
echo '#include <stdlib.h>' >>src/policy/ksync.c
expect "src/policy must not include <stdlib.h>"
echo '#include "base/status.h"' >>src/policy/ksync.c
expect "src/policy must not include base/status.h"
echo '#include "core/policy.h"' >>src/base/status.h
expect "src/base must not include core/policy.h"
echo '#include "core/policy.h"' >src/sim/sim.h
echo '#include "sim/sim.h"' >src/run/run.c
expect "src/run must not include sim/sim.h"
echo '#include "../base/status.h"' >>src/cli/main.c
expect "there is no ../base/status.h"
echo '#include "base/status.h"' >>src/cli/main.c
expect "src/cli must not include base/status.h"
echo '#include <time.h>' >src/sim/sim.c
expect "<time.h> is not for src/sim"
mkdir src/extra && echo 'int pl_extra;' >src/extra/extra.c
expect "src/extra is not in the table of layers"

# dead files
echo 'int pl_dead(void);' >src/sim/dead.h
echo '#include "sim/dead.h"' >src/sim/dead.c
expect "src/sim/dead.h:1: no file but its own includes this header"
cp src/policy/ksync.c src/policy/kasync.c
expect "kasync is not in src/policy/table.c"

# size and shape
repeat 721 '/* */' >src/sim/long.c
expect "src/sim/long.c:721: the file has more than 720 lines"
{
    printf 'int pl_a(int a,\n         int b) {\n'
    repeat 99 '    a += b;'
    echo '}'
} >src/sim/long.c
expect "src/sim/long.c:1: the function has more than 100 lines"
printf '/* %099d */\n' 0 >src/sim/wide.c
expect "src/sim/wide.c:1: more than 100 columns"
printf 'int pl_a;\n\tint pl_b;\n' >src/sim/tab.c
expect "src/sim/tab.c:2: a tab"
printf 'int pl_a; \n' >src/sim/blank.c
expect "blanks at the end of the line"

# words
echo '/* TODO: later */' >src/sim/words.c
expect "a TODO without the place"
echo '/* FIXME */' >src/sim/words.c
expect "FIXME or XXX"
echo 'int pl_a(char *s) { return /* no */ atoi (s); }' >src/sim/words.c
expect "atoi() is banned"
echo 'void pl_a(void) { exit(1); }' >src/sim/words.c
expect "exit() is banned"

# object code
plant() { # a line before the function, what stands for log(*at), the complaint
    sed -i -e "s|^static void|$1\\n&|" -e "s|log(\*at)|$2|" src/policy/ksync.c
    compile
    expect "$3" "$objects"
}
plant 'long time(long *);' '(double)time(0)' "pure code must not use time"
plant 'static long n;' '(double)++n' "pure code must not have variables of its own"
plant 'static long n = 3;' '(double)++n' "pure code must not have variables of its own"
plant 'extern const int pl_more; const int pl_more = 1;' 1 \
    "must define the global symbol pl_policy_ksync alone"
compile && rm "$objects/policy/ksync.c.o"
expect "src/policy/ksync.c:1: has no object file" "$objects"

[ $failures = 0 ] || { echo "$failures breaches were not caught"; exit 1; }
echo "every breach was caught"
