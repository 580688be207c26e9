/* Updates that are drafted while their results arrive, on ranks: tests/mpi_draft.sh starts this
 * with mpirun -n 4; alone it has nothing to test. "dies" in place of a test's name: rank 2 ends
 * half-way through a result, without a word.
 *
 * A rank freezes half-way through a result because this program stands between the library and MPI:
 * it starts half of the sends, and the others when the server has given the rank up. */
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "suite_train.h"
#include "transport/mpi.h"

#define DIM 300000

/* --- half of a result ----------------------------------------------------------------------- */

static int stops_at; /* the result, 1, 2, 3, …, that this rank sends in two halves; 0: none */
static int n_results;
static bool dies; /* between the halves; otherwise it freezes until the server has given it up */
static const MPI_Request *of_result; /* the first request for a result */

#define IN_BETWEEN __attribute__((visibility("default")))
IN_BETWEEN int MPI_Send_init(const void *v, int n, MPI_Datatype type, int rank, int tag,
                             MPI_Comm comm, MPI_Request *out);
IN_BETWEEN int MPI_Startall(int n, MPI_Request request[]);

/* A worker prepares the sends of its results when it connects, the first chunk first. */
int MPI_Send_init(const void *v, int n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                  MPI_Request *out) {
    static const void *end;
    bool chunk = type == MPI_FLOAT;
    if (chunk && v != end) of_result = out;
    if (chunk) end = (const float *)v + n;
    return PMPI_Send_init(v, n, type, rank, tag, comm, out);
}

/* The server has given this rank up; it tells by a signal, which does not depend on the load. */
static bool given_up(time_t wait_s) {
    const struct timespec limit = {wait_s, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return sigtimedwait(&set, NULL, &limit) > 0;
}

int MPI_Startall(int n, MPI_Request request[]) {
    if (request != of_result || ++n_results != stops_at) {
        while (given_up(0)) { /* that was about an earlier task */
        }
        return PMPI_Startall(n, request);
    }
    MPI_Status status[64];
    int half = n / 2 < 64 ? n / 2 : 64, done = 0, rc = PMPI_Startall(half, request);
    for (int i = 0; i < 200 && !done; i++) { /* until the server has it */
        PMPI_Testall(half, request, &done, status);
        usleep(1000);
    }
    if (dies) _exit(9);
    given_up(60); /* frozen: no call to MPI */
    return rc ? rc : PMPI_Startall(n - half, request + half);
}

/* --- what the server does ------------------------------------------------------------------- */

static int n_drafts, n_dropped, n_frozen;
static pid_t process[4]; /* of every rank */

int __real_pl_engine_draft(struct pl_engine *e);
int __wrap_pl_engine_draft(struct pl_engine *e);
int __wrap_pl_engine_draft(struct pl_engine *e) {
    n_drafts++;
    return __real_pl_engine_draft(e);
}

bool __real_pl_engine_drop_draft(struct pl_engine *e);
bool __wrap_pl_engine_drop_draft(struct pl_engine *e);
bool __wrap_pl_engine_drop_draft(struct pl_engine *e) {
    bool dropped = __real_pl_engine_drop_draft(e);
    n_dropped += dropped;
    return dropped;
}

void __real_pl_engine_frozen(struct pl_engine *e, int worker, uint64_t now, const char *next);
void __wrap_pl_engine_frozen(struct pl_engine *e, int worker, uint64_t now, const char *next);
void __wrap_pl_engine_frozen(struct pl_engine *e, int worker, uint64_t now, const char *next) {
    n_frozen++;
    __real_pl_engine_frozen(e, worker, now, next);
    if (process[worker + 1] > 0) kill(process[worker + 1], SIGUSR1);
}

/* --- runs ----------------------------------------------------------------------------------- */

static void test_drafts_are_used(void **state) {
    static const char *const methods[] = {
        "method=sync",
        "method=sync threads=1",
        "method=async",
        "policy=kasync:k=2",
        "policy=kbatchsync:k=5 delay=exp:mean=0.001",
        "method=sync reduce=median",
        "policy=ksync:k=2,cancel=yes delay=exp:mean=0.002",
    };
    int n_used = 0;
    (void)state;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char options[200];
        snprintf(options, sizeof options,
                 "model=mlp:hidden=2500 updates=12 transport=mpi workers=3 %s", methods[i]);
        n_drafts = n_dropped = 0;
        check_replay(options);
        n_used += n_drafts - n_dropped;
        if (pl_rank() == 0 && i < 3 && n_drafts == n_dropped)
            fail_msg("%s: %d drafts, %d dropped", options, n_drafts, n_dropped);
    }
    assert_true(pl_rank() != 0 || n_used >= 10);
}

/* All elements of a model are equal, as long as it is one version. Worker 3's gradient is not
 * finite at times, at its end. */
static int n_torn, n_bad;

static int level_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                          double *loss) {
    (void)ctx;
    for (size_t i = 0; i < DIM; i++) {
        n_torn += w[i] != w[0];
        g[i] = w[i] - 1;
    }
    if (b->worker == 2 && b->batch_no % 4 == 3) {
        g[DIM - 1] = 1.0F / 0.0F;
        n_bad++;
    }
    *loss = 1;
    return 0;
}

/* What was sent of a version that is not made is not computed on. */
static void test_a_draft_that_is_void(void **state) {
    static const char *const methods[] = {"method=sync", "policy=kasync:k=2", "method=async"};
    const struct pl_function f = {.dim = DIM, .gradient = level_gradient};
    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        char options[200];
        snprintf(options, sizeof options, "%s transport=mpi workers=3 updates=40 lr=0.01",
                 methods[m]);
        pl_setup *s = make(options);
        assert_int_equal(pl_setup_function(s, &f), 0);
        n_drafts = n_dropped = n_torn = n_bad = 0;
        pl_run *run = train(s);
        size_t n;
        const float *w = run ? pl_run_weights(run, &n) : NULL;
        for (size_t i = 0; w && i < DIM; i++)
            if (!(w[i] > 0.05F && w[i] < 0.5F) || w[i] != w[0])
                fail_msg("%s: element %zu is %g", methods[m], i, (double)w[i]);
        if (run) {
            check_books(run);
            if (!(number(run, "tasks.rejected") >= 1) || n_drafts == 0)
                fail_msg("%s: %g rejected, %d drafts, %d dropped", methods[m],
                         number(run, "tasks.rejected"), n_drafts, n_dropped);
        }
        assert_int_equal(n_torn, 0);
        assert_true(pl_rank() != 3 || n_bad > 0);
        pl_run_free(run);
        pl_setup_free(s);
    }
}

/* The others go on without it, after the time of evict, and a replay repeats that. It wakes up and
 * its result is complete when the run has left it behind. */
static void test_a_rank_that_freezes_half_way(void **state) {
    static const char *const methods[] = {"method=sync", "policy=kasync:k=2"};
    int rank, size;
    struct pl_why why;
    pid_t self = getpid();
    (void)state;
    assert_int_equal(pl_mpi_begin(&rank, &size, &why), 0);
    assert_int_equal(size, sizeof process / sizeof *process);
    MPI_Allgather(&self, sizeof self, MPI_BYTE, process, sizeof self, MPI_BYTE, MPI_COMM_WORLD);
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        char options[200];
        snprintf(options, sizeof options,
                 "model=mlp:hidden=2500 updates=%d transport=mpi workers=3 evict=0.6 "
                 "delay=const:t=0.03 %s",
                 m ? 60 : 25, methods[m]);
        n_results = n_drafts = n_dropped = n_frozen = 0;
        stops_at = pl_rank() == 2 ? 4 : 0;
        check_replay(options);
        stops_at = 0;
        if (pl_rank() == 0 && (n_frozen < 1 || n_dropped < 1 || n_drafts - n_dropped < 1))
            fail_msg("%s: %d frozen, %d drafts, %d dropped", options, n_frozen, n_drafts,
                     n_dropped);
        assert_true(pl_rank() != 2 || n_results >= 4);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drafts_are_used),
        cmocka_unit_test(test_a_draft_that_is_void),
        cmocka_unit_test(test_a_rank_that_freezes_half_way),
    };
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before there are threads */
    if (pl_rank() < 0) {
        printf("skipped: mpirun did not start this; tests/mpi_draft.sh does\n");
        return 77;
    }
    if (pl_rank() > 0 && !freopen("/dev/null", "w", stdout)) return 1; /* rank 0 tells */
    if (suite_begin(12)) return 1;
    if (argc > 1 && strcmp(argv[1], "dies") == 0) {
        stops_at = pl_rank() == 2 ? 3 : 0;
        dies = true;
        check_replay("model=mlp:hidden=2500 updates=100 transport=mpi workers=3 method=sync");
        return 0; /* not at all */
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return suite_end(cmocka_run_group_tests(tests, NULL, NULL));
}
