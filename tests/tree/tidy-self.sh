#!/bin/sh
# tests/tidy finds what it is there to find: plants one breach at a time in a small tree that is in
# order, and expects tidy to fail and to say why.
set -eu
: "${SOURCE_DIR:?}"
[ -z "${SANITIZE:-}" ] || { echo "skipped: nothing here is instrumented"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree objects=$work/objects
failures=0

mkdir "$work/tests"
cp "$SOURCE_DIR/tests/tidy" "$SOURCE_DIR/tests/tidy.awk" "$work/tests"
setting() { sed -n "s/^\(export \)\{0,1\}$1='\{0,1\}\([^']*\).*/\2/p" "$work/tests/tidy"; }
pure=$(sed -n "/^PURE='/,/'$/p" "$work/tests/tidy" | sed "s/^PURE=//; s/'//g")

# the tree in order, and its objects: made once, and copied after each breach
restore_tree() {
    rm -rf "$tree" "$objects"
    cp -r "$work/good/." "$work"
    cd "$tree"
}

make_tree() {
    mkdir -p "$tree/include" "$tree/tests/base"
    for d in base core engine policy sim run cli; do mkdir -p "$tree/src/$d" "$objects/$d"; done
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
    struct {
        const char *name;
    } id;
    void (*arrive)(void *state);
};
double pl_take(double factor);
void pl_journal_warn(void);
int pl_fail(void);
END
    cat >src/base/journal.c <<'END'
void pl_journal_warn(void) {
}
END
    cat >src/base/status.c <<'END'
int pl_fail(void) {
    return -1;
}
END
    cat >src/core/recipe.c <<'END'
#include "core/policy.h"

#define METHOD(word, policy) {word, policy}
const char *const pl_recipes[][2] = {
    METHOD("sync", "ksync"), METHOD("local-sgd", "ksync"), METHOD(
        "zeno++", "ksync")};
END
    for name in $pure; do
        cat >"src/$name.c" <<'END'
#include <stdlib.h>

#include "core/policy.h"

static int FILE_fail(void) {
    return pl_fail();
}

int pl_FILE(void **out) {
    *out = malloc(1);
    return *out ? 0 : FILE_fail();
}
END
        sed -i "s/FILE/$(basename "$name")/" "src/$name.c"
    done
    cat >src/run/server.c <<'END'
/* Threads: one, of whoever calls. */
int pl_server_sync_lag(void);
const char *pl_server_text(void);

static int server_start(void) {
    return 0;
}

int pl_server_sync_lag(void) {
    return server_start();
}

const char *pl_server_text(void) {
    return "the sync of none: asynchronous";
}
END
    cat >src/policy/ksync.c <<'END'
/* A policy. Comments may speak of strcpy(s) and "quotes; strings of sprintf( and // too. */
#include <math.h>

#include "core/policy.h"

static void ksync_arrive(void *state) {
    double *at = state;
    *at = pl_take(log(*at));
}

const struct pl_policy pl_policy_ksync = {
    .id = {.name = "ksync"},
    .arrive = ksync_arrive,
};
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

compile() { # files
    for name in "$@"; do
        "${CC:-cc}" -O2 -fPIC -I include -I src -c "src/$name.c" -o "$objects/$name.c.o"
    done
}

# expect "words of the complaint": tidy must fail on the tree as it is, for that reason alone
expect() {
    if out=$(sh "$work/tests/tidy" "$tree" "${2:-}"); then
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
    restore_tree
}

repeat() { # count, text
    awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) print text }'
}

make_tree
# shellcheck disable=SC2086 # a list
compile policy/ksync policy/table base/journal base/status $pure
mkdir "$work/good"
cp -r "$tree" "$objects" "$work/good"
sh "$work/tests/tidy" "$tree" "$objects" || { echo "FAIL: the tree in order"; exit 1; }

# who may include whom
echo '#include <stdlib.h>' >>src/policy/ksync.c
expect "src/policy must not include <stdlib.h>"
echo '#include "base/status.h"' >>src/policy/ksync.c
expect "src/policy must not include base/status.h"
echo '#include "core/policy.h"' >>src/base/status.h
expect "src/base must not include core/policy.h"
echo '#include "core/policy.h"' >src/sim/sim.h
echo '#include "sim/sim.h"' >>src/run/server.c
expect "src/run must not include sim/sim.h"
echo '#include "core/policy.h"' >src/sim/sim.h
echo '#include "sim/sim.h"' >src/engine/engine.c
expect "src/engine must not include sim/sim.h"
echo '#include "core/policy.h"' >src/engine/engine.h
echo '#include "engine/engine.h"' >src/sim/sim.c
echo '#include "engine/engine.h"' >src/core/extra.c
expect "src/core must not include engine/engine.h"
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
most=$(setting MAX_CODE_FILE_LINES)
for long in src/sim/long.c tests/base/test_long.c; do
    repeat $((most + 1)) '/* */' >$long
    repeat "$most" '/* */' >tests/base/test_short.c
    expect "$long:$((most + 1)): the file has more than $most lines"
done
most=$(setting MAX_FILE_LINES)
repeat "$most" '/* */' >>include/paceline.h # has a line already
expect "include/paceline.h:$((most + 1)): the file has more than $most lines"
long_function() { # lines
    printf 'int pl_a(int a,\n         int b) {\n'
    repeat $(($1 - 3)) '    a += b;'
    echo '}'
}
most=$(setting MAX_SRC_FUNCTION_LINES)
long_function $((most + 1)) >src/sim/long.c
long_function "$most" >src/sim/short.c
expect "src/sim/long.c:1: the function has more than $most lines"
most=$(setting MAX_FUNCTION_LINES)
long_function $((most + 1)) >tests/base/test_long.c
long_function "$most" >tests/base/test_short.c
expect "tests/base/test_long.c:1: the function has more than $most lines"
printf '/* %099d */\n' 0 >src/sim/wide.c
expect "src/sim/wide.c:1: more than 100 columns"
printf 'int pl_a;\n\tint pl_b;\n' >src/sim/tab.c
expect "src/sim/tab.c:2: a tab"
printf 'int pl_a; \n' >src/sim/blank.c
expect "blanks at the end of the line"
printf 'a = "%0114d"\nb = "%0115d"\n' 0 0 >tests/base/wide.py
expect "tests/base/wide.py:2: more than 120 columns"
printf 'let a;  \n' >src/sim/blank.js
expect "src/sim/blank.js:1: blanks at the end of the line"
echo 'int main(void) { return 0; }' >tests/test_stray.c
expect "tests/test_stray.c:1: belongs into a folder of tests"

# words
echo '/* TODO: later */' >src/sim/words.c
expect "a TODO without the place"
echo '/* FIXME */' >src/sim/words.c
expect "FIXME or XXX"
echo '# FIXME' >tests/base/words.py
expect "tests/base/words.py:1: FIXME or XXX"
echo 'int pl_a(char *s) { return /* no */ atoi (s); }' >src/sim/words.c
expect "atoi() is banned"
echo 'void pl_a(void) { exit(1); }' >src/sim/words.c
expect "exit() is banned"

# names of methods and plug-ins in generic code
echo 'int pl_a(const char *s) { return strcmp(s, "ksync"); }' >src/engine/names.c
expect 'src/engine/names.c:1: generic code knows "ksync" by name'
echo 'int pl_a(const char *s) { return strcmp(s, "sync"); }' >src/core/names.c
expect 'src/core/names.c:1: generic code knows "sync" by name'
echo 'const char *pl_a(void) { return "ksync:k=2"; }' >src/sim/names.c
expect 'src/sim/names.c:1: generic code knows "ksync" by name'
echo 'const char *pl_a(void) { return "use local-sgd for this"; }' >>src/run/server.c
expect 'generic code speaks of "local-sgd"'
mkdir src/learn && echo 'int pl_zeno;' >src/learn/names.c
expect "pl_zeno: generic code knows zeno by name"
echo 'enum { PL_IS_LOCAL_SGD_TOO };' >src/sim/names.c
expect "PL_IS_LOCAL_SGD_TOO: generic code knows local_sgd by name"
echo 'int cli_a(const char *s) { return strncmp(s, "sync", 4); }' >src/cli/names.c
expect 'src/cli/names.c:1: compares or looks up "sync" by name'
echo 'int cli_a(pl_setup *s) { return pl_setup_set(s, "method", "ksync:k=2"); }' >src/cli/names.c
expect 'src/cli/names.c:1: compares or looks up "ksync" by name'
mkdir -p src/observe/page
echo 'const own = run => run.method === "local-sgd";' >src/observe/page/names.js
expect 'src/observe/page/names.js:1: compares or looks up "local-sgd" by name'
mkdir -p python/paceline && echo 'own = method in ("ksync", "sync")' >python/paceline/names.py
expect 'python/paceline/names.py:1: compares or looks up "ksync" by name'
echo 'int pl_a[] = {0};' >src/core/recipe.c
expect "src/core/recipe.c:1: tidy finds no method in it"
sed -i 's/"ksync"/KSYNC/' src/policy/ksync.c
expect "src/policy/ksync.c:1: tidy finds no name in it"

# one prefix per file
sed -i 's/server_start/start/' src/run/server.c
expect "src/run/server.c:5: functions that do not begin with server_: start"
printf 'static int net_a(void) { return 0; }\nstatic int link_b(void) { return net_a(); }\n' \
    >src/sim/net.c
expect "src/sim/net.c:2: functions that do not begin with net_: link_b"
printf '/* Prefix: wire_ */\nstatic int wire_a(void) { return 0; }\nstatic int wires(void) {\n}\n' \
    >src/sim/net.c
expect "src/sim/net.c:3: functions that do not begin with net_: wires"

# who executes what
sed -i 's/Threads:/Thread/' src/run/server.c
expect "src/run/server.c:1: neither it nor its header says at the top"
sed -i -e '1d' -e 's/^static/\/* Threads: one *\/\n&/' src/run/server.c
expect "src/run/server.c:1: neither it nor its header says at the top"
printf '/* Threads: one. */\n#include "core/policy.h"\n' >src/run/door.h
printf '#include "run/door.h"\n' >src/run/door.c
printf '#include "run/door.h"\n' >src/run/floor.c
expect "src/run/floor.c:1: neither it nor its header says at the top"

# object code
plant() { # a line before the function, what stands for log(*at), the complaint
    sed -i -e "s|^static void|$1\\n&|" -e "s|log(\*at)|$2|" src/policy/ksync.c
    compile policy/ksync
    expect "$3" "$objects"
}
plant 'long time(long *);' '(double)time(0)' "pure code must not use time"
plant 'int __printf_chk(int, const char *, ...);' '(double)__printf_chk(1, "")' \
    "pure code must not use __printf_chk"
plant 'static long n;' '(double)++n' "pure code must not have variables of its own"
plant 'static long n = 3;' '(double)++n' "pure code must not have variables of its own"
plant 'extern const int pl_more; const int pl_more = 1;' 1 \
    "must define the global symbol pl_policy_ksync alone"
rm "$objects/policy/ksync.c.o"
expect "src/policy/ksync.c:1: has no object file" "$objects"

# … of decisions outside the families
decision() { # what stands for pl_fail() in core/control.c, a line before it, the complaint
    sed -i -e "s|return pl_fail()|return $1|" -e "s|^static|$2\\n&|" src/core/control.c
    compile core/control
    expect "$3" "$objects"
}
decision '(int)time(0)' 'long time(long *);' "src/core/control.c:1: pure code must not use time"
decision '++n' 'static int n;' "src/core/control.c:1: pure code must not have variables of its own"
decision '(int)write(1, "", 0)' 'long write(int, const void *, unsigned long);' \
    "src/core/control.c:1: pure code must not use write"
decision '(pl_journal_warn(), 0)' '' "pure code must not use pl_journal_warn of src/base/journal.c"
rm "$objects/core/plan.c.o"
expect "src/core/plan.c:1: has no object file" "$objects"
rm src/core/plan.c
expect "src/core/plan.c:1: is in the list of pure files" "$objects"

[ $failures = 0 ] || { echo "$failures breaches were not caught"; exit 1; }
echo "every breach was caught"
