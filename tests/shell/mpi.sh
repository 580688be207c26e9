# For tests that start ranks with mpirun, on this machine with more ranks than cores:
#
#     . "$SOURCE_DIR/tests/shell/mpi.sh"
#
# Skips the test if there is no MPI, moves to an empty folder, and defines what follows.
set -u
: "${PACELINE:?}" "${BUILD_DIR:?}"

skip() {
    echo "skipped: $*"
    exit 77
}

n_failed=0
fail() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}

finish_test() { # what was tested
    [ $n_failed = 0 ] && echo "$1: all as it should be"
    exit $((n_failed > 0))
}

[ -n "${MPIEXEC:-}" ] ||
    skip "built without MPI; Debian's libopenmpi-dev and openmpi-bin have it"
command -v "$MPIEXEC" >/dev/null || skip "there is no $MPIEXEC; Debian's openmpi-bin has it"
case ${SANITIZE:-} in *thread*) skip "thread sanitizer does not see other processes" ;; esac

# As root, on loopback, more ranks than cores: in tests alone. Open MPI's leaks are its own.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
export ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1

ranks() { # n, command …
    n=$1
    shift
    timeout -k 5 "${limit_s:-1500}" "$MPIEXEC" -n "$n" "$@"
}
small='--model softmax --data digits:samples=400,test=50 --batch 8 --eval-samples 100'
# The shell of each rank notes its process and becomes the program: sh -c "$each" sh PROGRAM …
# shellcheck disable=SC2016
each='echo $$ >pid.${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-x}}; exec "$@"'

# Waits up to two minutes until a command succeeds.
await() { # command …
    tries=0
    until "$@" 2>/dev/null || [ $tries = 1200 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ $tries -lt 1200 ]
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
ranks 2 "$PACELINE" --version >/dev/null 2>err || {
    cat err
    skip "$MPIEXEC starts nothing here"
}
