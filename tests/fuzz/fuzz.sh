#!/bin/sh
# Every target of tests/fuzz, with its corpus and 2,000 inputs made from it, by the compiler at
# hand. libFuzzer goes much farther: `make fuzz`. PL_TEST_SEED makes other inputs.
set -u
seed=${PL_TEST_SEED:-1}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
python3 "$SOURCE_DIR/tests/fuzz/seeds.py" "$work/corpus" || exit 1
case ${SANITIZE:-} in
*address*) export ASAN_OPTIONS="${ASAN_OPTIONS:-}:leak_check_at_exit=1" ;;
esac
echo "PL_TEST_SEED=$seed"
cd "$work" || exit 1
bad=0 n=0
for target in $(ls corpus); do
    count=2000
    case $target in replay | resume) count=50 ;; esac # whole runs
    "$BUILD_DIR/tests/fuzz_plain" "$target" "corpus/$target" $count "$seed" >out 2>err
    status=$?
    n=$((n + 1))
    cat out
    [ $status = 0 ] && continue
    bad=1
    cp "failed-$target" "$BUILD_DIR/tests/" 2>/dev/null
    echo "FAILED: $target, status $status, see $BUILD_DIR/tests/failed-$target"
    tail -40 err
done
[ $n -ge 20 ] || { echo "FAILED: only $n targets"; exit 1; }
exit $bad
