#!/bin/sh
# Results that are sent in chunks, and updates that are drafted while they arrive: also if a rank
# freezes or dies half-way through its result.
set -u
: "${BUILD_DIR:?}"

skip() {
    echo "skipped: $*"
    exit 77
}

[ -n "${MPIEXEC:-}" ] || skip "built without MPI; Debian's libopenmpi-dev and openmpi-bin have it"
command -v "$MPIEXEC" >/dev/null || skip "there is no $MPIEXEC; Debian's openmpi-bin has it"
case ${SANITIZE:-} in *thread*) skip "thread sanitizer does not see other processes" ;; esac
[ -x "$BUILD_DIR/tests/mpi_draft" ] || skip "cmocka is missing"

# As root, on loopback, more ranks than cores: in tests alone. Open MPI's leaks are its own.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
export ASAN_OPTIONS=detect_leaks=0 OPENBLAS_NUM_THREADS=1
export PACELINE_MPI_SHARED=no

n_failed=0
fail() {
    echo "FAILED: $*"
    n_failed=$((n_failed + 1))
}

timeout -k 5 200 "$MPIEXEC" -n 4 "$BUILD_DIR/tests/mpi_draft" || fail "mpi_draft under mpirun"

timeout -k 5 60 "$MPIEXEC" -n 4 "$BUILD_DIR/tests/mpi_draft" dies >/dev/null 2>&1
status=$?
[ $status != 0 ] || fail "a rank died half-way through a result, and the job did not fail"
[ $status != 124 ] && [ $status != 137 ] || fail "a rank died, and the job did not end"

[ $n_failed = 0 ] && echo "drafts on ranks: all as it should be"
[ $n_failed = 0 ]
