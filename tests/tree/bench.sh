#!/bin/sh
# scripts/bench on made-up programs and results: the summary, what it does with programs that fail
# or are missing, and that the tables of docs/benchmarks.md are those that docs/bench gives.
. "${SOURCE_DIR:?}/tests/shell/fresh.sh"
python=$(command -v python3) || { echo "skipped: python3 is not installed"; exit 77; }

bench() { "$python" "$SOURCE_DIR/scripts/bench" "$@"; }
has() { # pattern
    grep -Eq "$1" out || fail "no line '$1': $(cat out)"
}

# a file of rows: shares should be large, times small; the last row of a key counts
cat >rows <<'END'
{"about":"compiler","value":"gcc 12"}
{"key":"store.adam.1","ours":12,"unit":"GB/s","peer":"triad","limit":48,"ratio":0.25}
{"key":"store.adam.1","ours":40.123,"unit":"GB/s","peer":"triad","limit":48,"ratio":0.8}
{"key":"store.clip.1","ours":30,"unit":"GB/s","peer":"triad","limit":48,"ratio":0.625}
{"key":"run.round.2","ours":4.5,"unit":"ms","peer":"Open MPI","limit":18,"ratio":0.25}
{"key":"run.growth","ours":62,"unit":"ms","peer":"2 workers","limit":8.9,"ratio":6.97}
{"key":"mpi.pushpull","missing":"Open MPI is missing"}
END
bench --rows rows >out 2>&1 || fail "a good file of rows"
has 'Adam, one thread.* 40\.1 GB/s +triad 48 +0\.80 +>= 0\.8  met$'
has 'clip, one thread.* 0\.62 +>= 0\.8  MISSED$'
has 'round of 40 MB, 2 processes.* 4\.5 ms +Open MPI 18 +0\.25 +<= 0\.25  met$'
has 'its time with 64 workers.* 6\.97 +<= 1\.2  MISSED$'
has 'push and pull of 40 MB.* not measured$'
has '^2 met, 2 missed, [0-9]+ not measured$'
has '^not measured, because Open MPI is missing: 1$'

for line in 'no JSON' '{"key":"store.adam.1","ours":1}' '{"key":"store.adam.1","ours":"x"}' '[1]' \
    '{"key":"no.such.row","missing":"x"}'; do
    echo "$line" >rows
    bench --rows rows >out 2>&1 && fail "accepted: $line"
    has 'rows:1: '
done

# programs: one reports, one fails, one is missing
mkdir -p build/bench
program() { # name, script
    printf '#!/bin/sh\n%s\n' "$2" >"build/$1"
    chmod +x "build/$1"
}
program paceline 'echo paceline 9.9'
row() { # key, ratio: a command that reports it
    # shellcheck disable=SC2028 # for the printf of the command
    echo "printf '%s\n' '{\"key\":\"$1\",\"ours\":1,\"unit\":\"s\",\"peer\":\"peer\"," \
        "\"limit\":2,\"ratio\":$2}' >>\"\$BENCH_ROWS\""
}
program bench/bench_store "echo some detail; $(row store.adam.1 0.5)"
program bench/bench_sim 'echo trouble >&2; exit 3'
run="--build build --out results --name test --commit abc"
# shellcheck disable=SC2086 # options
bench $run store sim mpi >out 2>&1
[ $? = 1 ] || fail "a program failed, and the exit status is not 1"
has '^== store \(part 1 of 3, '
has '^some detail$'
has '^trouble$'
has '^failed: bench_sim exited with 3$'
has '^skipped: bench_mpi is not built'
has 'Adam, one thread.* 0\.50 +>= 0\.8  MISSED$'
has '^0 met, 1 missed, '
has '^not measured, because bench_sim exited with 3: 6$'
has '^not measured, because bench_mpi is not built.*: 3$'
grep -q '^some detail$' results/test.txt || fail "the details are not in the file"

# two compilers: the same program of two builds
reduce() { # folder, compiler, milliseconds: a bench_reduce that knows its cases by their keys
    mkdir -p "$1/bench"
    cat >"$1/bench/bench_reduce" <<END
#!/bin/sh
{
    echo '{"about":"compiler","value":"$2 1.2"}'
    for key in "\$@"; do
        [ "\$key" != no-such-case ] || continue
        echo '{"key":"'\$key'","ours":$3,"unit":"ms","peer":"reading","limit":1,"ratio":1}'
    done
} >>"\$BENCH_ROWS"
END
    chmod +x "$1/bench/bench_reduce"
}
reduce build clang 260
reduce other clang 100
# shellcheck disable=SC2086
bench $run --other other compilers >out 2>&1 || fail "compilers"
has '^skipped: bench_reduce is not built by both gcc and clang$'
reduce other gcc 100
# shellcheck disable=SC2086
bench $run --other other compilers >out 2>&1 || fail "compilers"
has 'median of 20 compiled by clang.* 260 ms +gcc 100 +2\.60 +<= 1\.3  MISSED$'
has '^0 met, 3 missed, 0 not measured$'

# a run that is ended ends its program
program bench/bench_mf "echo \$\$ >'$work/pid'; exec sleep 1000"
# shellcheck disable=SC2086
"$python" "$SOURCE_DIR/scripts/bench" $run mf >out 2>&1 &
job=$!
i=0
while [ ! -s pid ] && [ $i -lt 1200 ]; do
    sleep 0.1
    i=$((i + 1))
done
kill "$job"
wait "$job"
[ -s pid ] || fail "bench_mf was not started"
! kill "$(cat pid)" 2>/dev/null || fail "bench_mf outlives the run"

# more parts of the same commit join the results; another commit replaces them
program bench/bench_sim "$(row sim.task.ns 0.9)"
# shellcheck disable=SC2086
bench $run sim >out 2>&1 || fail "sim alone"
has '^1 met, 0 missed, 5 not measured$'
grep -q '"store.adam.1"' results/test.json || fail "rows of the other part are lost"
# shellcheck disable=SC2086
bench $run --commit def sim >out 2>&1 || fail "another commit"
grep -q '"store.adam.1"' results/test.json && fail "rows of another commit are kept"
bench --build . store >out 2>&1 && fail "a folder without programs"
has 'does not run; build it'
# shellcheck disable=SC2086
bench $run stoer >out 2>&1 && fail "an unknown part"
has "no part 'stoer'; parts are model store"

# the page: written from results, checked, and every missed aim explained
# shellcheck disable=SC2086
bench $run --commit def store >out 2>&1 || fail "store alone"
sed '/^### /d' "$SOURCE_DIR/docs/benchmarks.md" >page.md
page="--docs --page page.md --out results"
# shellcheck disable=SC2086
{
    bench $page --check >out 2>&1 && fail "a page of other results passes"
    bench $page >out 2>&1 || fail "the page is not written"
    bench $page --check >out 2>&1 && fail "a missed aim without an explanation passes"
    has "explain it under '### Other commits'"
    sed 's/^## Missed aims/&\n\n### Other commits/' page.md >new.md
    mv new.md page.md
    bench $page --check >out 2>&1 || fail "an explained page"
    cp page.md out
    has '^\| Adam, one thread.* \| ≥ 0\.8 \| 0\.50 \*\*missed\*\* \|$'
    sed -i 's/0\.50 \*\*missed/0.99 **missed/' page.md
    bench $page --check >out 2>&1 && fail "a table edited by hand passes"
}
bench --docs --check >out 2>&1 || fail "docs/benchmarks.md: run 'make bench-docs'"
exit $bad
