#!/bin/sh
# tests/tidy finds what it is there to find: plants one breach at a time in a small tree that is in
# order, and expects tidy to fail and to say why.
set -eu
: "${SOURCE_DIR:?}"
[ -z "${SANITIZE:-}" ] || { echo "skipped: nothing here is instrumented"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree objects=$work/objects
failures=0 with=

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

# Tidy must make these complaints about the tree as it is, and no others.
expect() { # words of each
    if out=$(sh "$work/tests/tidy" "$tree" "$with"); then
        echo "FAIL: not caught: $*"
        failures=$((failures + 1))
    fi
    for words; do
        printf '%s\n' "$out" | grep -qF "$words" && echo "caught: $words" && continue
        printf 'FAIL: expected "%s", got:\n%s\n' "$words" "$out"
        failures=$((failures + 1))
    done
    if [ "$(printf '%s\n' "$out" | wc -l)" != $(($# + 1)) ]; then
        printf 'FAIL: expected %s complaints, got:\n%s\n' $# "$out"
        failures=$((failures + 1))
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
echo '#include "base/status.h"' >>src/policy/ksync.c
echo '#include "core/policy.h"' >>src/base/status.h
echo '#include "core/policy.h"' >src/sim/sim.h
echo '#include "sim/sim.h"' >>src/run/server.c
echo '#include "sim/sim.h"' >src/engine/wrong.c
echo '#include "core/policy.h"' >src/engine/engine.h
printf '#include "engine/engine.h"\n#include <time.h>\n' >src/sim/sim.c
echo '#include "engine/engine.h"' >src/core/extra.c
echo '#include "../base/status.h"' >>src/cli/main.c
echo '#include "base/status.h"' >>src/cli/main.c
mkdir src/extra && echo 'int pl_extra;' >src/extra/extra.c
expect "src/policy must not include <stdlib.h>" "src/policy must not include base/status.h" \
    "src/base must not include core/policy.h" "src/run must not include sim/sim.h" \
    "src/engine must not include sim/sim.h" "<time.h> is not for src/sim" \
    "src/core must not include engine/engine.h" "there is no ../base/status.h" \
    "src/cli must not include base/status.h" "src/extra is not in the table of layers"

# dead files
echo 'int pl_dead(void);' >src/sim/dead.h
echo '#include "sim/dead.h"' >src/sim/dead.c
cp src/policy/ksync.c src/policy/kasync.c
expect "src/sim/dead.h:1: no file but its own includes this header" \
    "kasync is not in src/policy/table.c"

# size and shape
code=$(setting MAX_CODE_FILE_LINES) header=$(setting MAX_FILE_LINES)
repeat $((code + 1)) '/* */' >src/sim/long.c
repeat $((code + 1)) '/* */' >tests/base/test_long.c
repeat "$code" '/* */' >tests/base/test_short.c
repeat "$header" '/* */' >>include/paceline.h # has a line already
long_function() { # lines
    printf 'int pl_a(int a,\n         int b) {\n'
    repeat $(($1 - 3)) '    a += b;'
    echo '}'
}
ours=$(setting MAX_SRC_FUNCTION_LINES) most=$(setting MAX_FUNCTION_LINES)
long_function $((ours + 1)) >src/sim/tall.c
long_function "$ours" >src/sim/short.c
long_function $((most + 1)) >tests/base/test_tall.c
long_function "$most" >tests/base/test_small.c
printf '/* %099d */\n' 0 >src/sim/wide.c
printf 'int pl_a;\n\tint pl_b;\n' >src/sim/tab.c
printf 'int pl_a; \n' >src/sim/blank.c
printf 'a = "%0114d"\nb = "%0115d"\n' 0 0 >tests/base/wide.py
printf 'let a;  \n' >src/sim/blank.js
echo 'int main(void) { return 0; }' >tests/test_stray.c
expect "src/sim/long.c:$((code + 1)): the file has more than $code lines" \
    "tests/base/test_long.c:$((code + 1)): the file has more than $code lines" \
    "include/paceline.h:$((header + 1)): the file has more than $header lines" \
    "src/sim/tall.c:1: the function has more than $ours lines" \
    "tests/base/test_tall.c:1: the function has more than $most lines" \
    "src/sim/wide.c:1: more than 100 columns" "src/sim/tab.c:2: a tab" \
    "src/sim/blank.c:1: blanks at the end of the line" \
    "tests/base/wide.py:2: more than 120 columns" \
    "src/sim/blank.js:1: blanks at the end of the line" \
    "tests/test_stray.c:1: belongs into a folder of tests"

# words
echo '/* TODO: later */' >src/sim/later.c
echo '/* FIXME */' >src/sim/words.c
echo '# FIXME' >tests/base/words.py
echo 'int pl_a(char *s) { return /* no */ atoi (s); }' >src/sim/number.c
echo 'void pl_a(void) { exit(1); }' >src/sim/end.c
expect "src/sim/later.c:1: a TODO without the place" "src/sim/words.c:1: FIXME or XXX" \
    "tests/base/words.py:1: FIXME or XXX" "atoi() is banned" "exit() is banned"

# names of methods and plug-ins in generic code
echo 'int pl_a(const char *s) { return strcmp(s, "ksync"); }' >src/engine/names.c
echo 'int pl_a(const char *s) { return strcmp(s, "sync"); }' >src/core/names.c
echo 'const char *pl_a(void) { return "ksync:k=2"; }' >src/sim/names.c
echo 'const char *pl_a(void) { return "use local-sgd for this"; }' >>src/run/server.c
mkdir src/learn && echo 'int pl_zeno;' >src/learn/names.c
echo 'enum { PL_IS_LOCAL_SGD_TOO };' >src/sim/words.c
echo 'int cli_a(const char *s) { return strncmp(s, "sync", 4); }' >src/cli/names.c
echo 'int cli_a(pl_setup *s) { return pl_setup_set(s, "method", "ksync:k=2"); }' >src/cli/sets.c
mkdir -p src/observe/page
echo 'const own = run => run.method === "local-sgd";' >src/observe/page/names.js
mkdir -p python/paceline && echo 'own = method in ("ksync", "sync")' >python/paceline/loop.py
expect 'src/engine/names.c:1: generic code knows "ksync" by name' \
    'src/core/names.c:1: generic code knows "sync" by name' \
    'src/sim/names.c:1: generic code knows "ksync" by name' \
    'generic code speaks of "local-sgd"' "pl_zeno: generic code knows zeno by name" \
    "PL_IS_LOCAL_SGD_TOO: generic code knows local_sgd by name" \
    'src/cli/names.c:1: compares or looks up "sync" by name' \
    'src/cli/sets.c:1: compares or looks up "ksync" by name' \
    'src/observe/page/names.js:1: compares or looks up "local-sgd" by name' \
    'python/paceline/loop.py:1: compares or looks up "ksync" by name'
echo 'int pl_a[] = {0};' >src/core/recipe.c
sed -i 's/"ksync"/KSYNC/' src/policy/ksync.c
expect "src/core/recipe.c:1: tidy finds no method in it" \
    "src/policy/ksync.c:1: tidy finds no name in it"

# Python and JavaScript: who imports whom, and lengths
mkdir -p python/paceline/torch src/observe/page
echo 'x = 1' >python/paceline/extra.py
printf 'import os\nfrom ._setup import Setup\n' >python/paceline/_text.py
echo 'from . import errors, simulation' >python/paceline/_setup.py
echo 'from ._optimizer import Optimizer' >python/paceline/torch/_vector.py
echo 'from .._gone import Gone' >python/paceline/torch/_state.py
{ echo 'def long(x):' && yes '    x += 1' | head -60; } >python/paceline/loop.py
{ echo '  function wide() {' && yes '    a();' | head -60 && echo '  }'; } >src/observe/page/wide.js
yes 'x = 1' | head -601 >python/paceline/errors.py
expect "python/paceline/extra.py:1: extra is not in the table of Python modules" \
    "python/paceline/_text.py:2: _text must not import _setup" \
    "python/paceline/_setup.py:1: _setup must not import simulation" \
    "python/paceline/torch/_vector.py:1: torch/_vector must not import torch/_optimizer" \
    "python/paceline/torch/_state.py:1: there is no module _gone in the table" \
    "python/paceline/loop.py:1: long has 61 lines, more than 60" \
    "src/observe/page/wide.js:1: wide has 62 lines, more than 60" \
    "python/paceline/errors.py:601: the file has more than 600 lines"

# one prefix per file
sed -i 's/server_start/start/' src/run/server.c
printf 'static int net_a(void) { return 0; }\nstatic int link_b(void) { return net_a(); }\n' \
    >src/sim/net.c
printf '/* Prefix: wire_ */\nstatic int wire_a(void) { return 0; }\nstatic int wires(void) {\n}\n' \
    >src/sim/link.c
expect "src/run/server.c:5: functions that do not begin with server_: start" \
    "src/sim/net.c:2: functions that do not begin with net_: link_b" \
    "src/sim/link.c:3: functions that do not begin with link_: wires"

# who executes what
sed 's/Threads:/Thread/; s/server/near/' src/run/server.c >src/run/near.c
sed -i -e '1d' -e 's/^static/\/* Threads: one *\/\n&/' src/run/server.c
printf '/* Threads: one. */\n#include "core/policy.h"\n' >src/run/door.h
printf '#include "run/door.h"\n' >src/run/door.c
printf '#include "run/door.h"\n' >src/run/floor.c
expect "src/run/near.c:1: neither it nor its header says at the top" \
    "src/run/server.c:1: neither it nor its header says at the top" \
    "src/run/floor.c:1: neither it nor its header says at the top"

# object code: policies like ksync, each with a breach
with=$objects
plant() { # its name, a line before the function, what stands for log(*at)
    sed -e "s|ksync|$1|g; s|^static void|$2\\n&|; s|log(\*at)|$3|" "$tree/src/policy/ksync.c" \
        >"src/policy/$1.c"
    sed -i -e "s|^#include.*|&\\nextern const struct pl_policy pl_policy_$1;|" \
        -e "s|, 0}|,\\n    \&pl_policy_$1&|" src/policy/table.c
    compile "policy/$1"
}
plant clocked 'long time(long *);' '(double)time(0)'
plant printed 'int __printf_chk(int, const char *, ...);' '(double)__printf_chk(1, "")'
plant counted 'static long n;' '(double)++n'
plant started 'static long n = 3;' '(double)++n'
plant shown 'extern const int pl_more; const int pl_more = 1;' 1
plant lost '' 1
rm "$objects/policy/lost.c.o"
# … and decisions outside the families
decide() { # which, what stands for pl_fail(), a line before it
    sed -i -e "s|return pl_fail()|return $2|" -e "s|^static|$3\\n&|" "src/core/$1.c"
    compile "core/$1"
}
decide control '(int)time(0)' 'long time(long *);'
decide arms '++n' 'static int n;'
decide twin '(int)write(1, "", 0)' 'long write(int, const void *, unsigned long);'
decide timeline '(pl_journal_warn(), 0)' ''
rm "$objects/core/plan.c.o" src/core/referee.c
expect "src/policy/clocked.c:1: pure code must not use time" \
    "src/policy/printed.c:1: pure code must not use __printf_chk" \
    "src/policy/counted.c:1: pure code must not have variables of its own" \
    "src/policy/started.c:1: pure code must not have variables of its own" \
    "must define the global symbol pl_policy_shown alone" \
    "src/policy/lost.c:1: has no object file" \
    "src/core/control.c:1: pure code must not use time" \
    "src/core/arms.c:1: pure code must not have variables of its own" \
    "src/core/twin.c:1: pure code must not use write" \
    "src/core/timeline.c:1: pure code must not use pl_journal_warn of src/base/journal.c" \
    "src/core/plan.c:1: has no object file" "src/core/referee.c:1: is in the list of pure files"

[ $failures = 0 ] || { echo "$failures breaches were not caught"; exit 1; }
echo "every breach was caught"
