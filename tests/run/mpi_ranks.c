/* Real runs on the ranks of a job: the tests of every real run, and what is refused or fails at one
 * rank; and the same on several servers. mpi.sh starts this with mpirun -n 5, and as
 * `mpi_ranks servers` with mpirun -n 7; alone it has nothing to test. Another word names one
 * test. */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "core/policy.h"
#include "core/recipe.h"
#include "learn/task.h"
#include "ranges.h"
#include "suite_train.h"

TEST(every_method_as_simulated) {
    test_every_method_as_simulated(state);
}

TEST(twenty_asynchronous_runs) {
    test_twenty_asynchronous_runs(state);
}

TEST(results_are_rejected) {
    test_rejected(state);
}

TEST(shapes) {
    check_replay("policy=kbatchsync:k=19 updates=6");
    check_replay("policy=kbatchasync:k=19 updates=6 correct=gap optim=momentum");
    check_replay("model=mlp:hidden=1000 updates=10 method=ssp");
    check_replay("method=dana-ga updates=60");
    check_replay("method=local-sgd:u=3 updates=10");
    check_replay("model=quadratic:dim=7 updates=300 method=abs");
}

/* Vectors that are sent in chunks, the first before the last is computed: whole and of parts of the
 * workers, replaced, cancelled, and sent again or not. */
TEST(long_vectors) {
    static const char *const methods[] = {
        "method=sync",
        "method=async",
        "method=ssp",
        "method=sync optim=nesterov threads=1",
        "method=gap-aware optim=momentum threads=3",
        "method=local-sgd:u=2",
        "policy=ksync:k=2,cancel=yes delay=exp:mean=0.002",
        "policy=kbatchsync:k=5 delay=exp:mean=0.001",
        "policy=kasync:k=2 delay=exp:mean=0.001",
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        check_replay("model=mlp:hidden=%d updates=15 transport=mpi %s", i % 2 ? 3000 : 3333,
                     methods[i]);
    }
}

#define LEVEL_DIM 300000
static int n_torn, n_bad;

/* All elements of a model are equal, as long as it is one version. The last element of worker 3's
 * gradient is not finite at times. */
static int level_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                          double *loss) {
    for (size_t i = 0; i < LEVEL_DIM; i++) {
        n_torn += w[i] != w[0];
        g[i] = w[i] - 1;
    }
    if (b->worker == 2 && b->batch_no % 4 == 3) {
        g[LEVEL_DIM - 1] = 1.0F / 0.0F;
        n_bad++;
    }
    *loss = 1;
    return 0;
}

/* A commit that finds such a value at the end of a version writes it again. The chunks that were
 * sent of the first attempt are not computed on. */
TEST(a_version_that_is_written_again) {
    static const char *const methods[] = {"method=sync", "policy=kasync:k=2", "method=async"};
    const struct pl_function f = {.dim = LEVEL_DIM, .gradient = level_gradient};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        pl_setup *s = make("%s transport=mpi updates=40 lr=0.01", methods[m]);
        assert_int_equal(pl_setup_function(s, &f), 0);
        n_torn = n_bad = 0;
        pl_run *run = train(s);
        size_t n;
        const float *w = run ? pl_run_weights(run, &n) : NULL;
        for (size_t i = 0; w && i < LEVEL_DIM; i++)
            if (!(w[i] > 0.05F && w[i] < 0.5F) || w[i] != w[0])
                fail_msg("%s: element %zu is %g", methods[m], i, (double)w[i]);
        if (run) check_books(run);
        assert_int_equal(n_torn, 0);
        if (m > 0) continue; /* how often worker 3 answers depends on the machine */
        if (run) assert_true(number(run, "tasks.rejected") >= 1);
        assert_true(pl_rank() != 3 || n_bad > 0);
    }
}

/* --- cancels --------------------------------------------------------------------------------- */

static int n_taken_back, n_overdue; /* of worker 0's tasks */

/* Ranks share the folder they were started in: waits until one of them has made a file there. */
static void await_mark(const char *mark) {
    for (time_t end = time(NULL) + 60; access(mark, F_OK) && time(NULL) < end;) nap(1);
}

/* Worker 0 computes until somebody takes its task back. The others do not go on before it has
 * begun, because the run could end before that. */
static int stubborn_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                             double *loss) {
    time_t end = time(NULL) + 60;
    for (int i = 0; i < 3; i++) g[i] = w[i] - 1;
    *loss = 1;
    if (pl_rank() == 0) return 0; /* scores */
    if (b->worker != 0) {
        await_mark("stubborn");
        return 0;
    }
    close(creat("stubborn", 0600));
    while (time(NULL) < end)
        if (b->cancelled(b->token)) {
            n_taken_back++;
            return PL_ECANCELLED;
        }
    n_overdue++;
    return 0;
}

TEST(a_cancel_reaches_who_computes) {
    const struct pl_function f = {.dim = 3, .gradient = stubborn_gradient};
    pl_setup *s = make("transport=mpi policy=ksync:k=3,cancel=yes updates=50");
    pl_setup_function(s, &f);
    pl_run *run = train(s);
    if (run) {
        check_books(run);
        assert_true(number(run, "updates") == 50);
        assert_true(number(run, "tasks.cancelled") >= 40);
    }
    assert_int_equal(n_overdue, 0);
    assert_true(pl_rank() != 1 || n_taken_back > 0);
    if (run) remove("stubborn");
}

/* --- peers -------------------------------------------------------------------------------------
 */

/* Vectors from rank to rank, small and large, asked for while others compute, rest or wait; one run
 * after the other, so that nothing of one is left for the next. */
TEST(peers) {
    static const char *const methods[] = {"gossip-pull", "gossip-push", "gosgd", "ad-psgd", "sgp"};
    char options[200];
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        snprintf(options, sizeof options, "method=%s model=quadratic:dim=50 updates=%d", methods[i],
                 sanitized ? 200 : 1000);
        check_replay("%s", options);
        snprintf(options, sizeof options,
                 "method=%s model=mlp:hidden=1000 updates=30 eval-every=0.02 local=own:beta=0.5",
                 methods[i]);
        check_replay("%s", options);
    }
    check_replay("policy=gossip:mode=pair,a=0.3 delay=exp:mean=0.002 updates=100");
}

/* The others wait for the first rejected task of worker 1. */
static int bad_peer_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                             double *loss) {
    if (b->worker == 1 && b->batch_no == 3) close(creat("rejected", 0600));
    if (pl_rank() != 0 && b->worker != 1 && b->batch_no > 20) await_mark("rejected");
    return bad_gradient(ctx, w, b, g, loss);
}

/* A task that will not do is done again, on the same model. */
TEST(peers_reject) {
    const struct pl_function f = {.dim = 3, .gradient = bad_peer_gradient};
    pl_setup *s = make("transport=mpi method=ad-psgd updates=300");
    pl_setup_function(s, &f);
    pl_run *run = train(s);
    if (run) {
        check_books(run);
        assert_true(number(run, "tasks.rejected") >= 1);
        assert_true(isfinite(number(run, "consensus")));
        remove("rejected");
    }
}

/* --- several servers ------------------------------------------------------------------------- */

/* The simulator has one store, so these are the weights that one server would have come to. */
TEST(every_method_on_three_servers) {
    for (const struct pl_entry *const *m = pl_recipe_family.table; *m; m++) {
        const struct pl_recipe *recipe = (const struct pl_recipe *)*m;
        if (strcmp(pl_recipe_column(recipe, PL_COLUMN_FILTER), "none") != 0 ||
            strcmp(pl_recipe_column(recipe, PL_COLUMN_LOCAL), "own") == 0)
            continue;                    /* whole vectors only, or none at all */
        if (options_of(*m)[0]) continue; /* one server has the blocks */
        check_replay("method=%s transport=mpi servers=3 workers=4 delay=exp:mean=0.002",
                     (*m)->name);
    }
    check_replay(
        "policy=kbatchasync:k=19 updates=6 correct=gap optim=momentum servers=2 workers=5");
    check_replay("model=mlp:hidden=300 updates=100 method=gap-aware servers=3 workers=4");
    check_replay("model=mlp:hidden=300 updates=100 method=async average=tail servers=3 workers=4");
    check_replay("model=mlp:hidden=300 updates=30 optim=adam weight-decay=0.01 correct=dc method="
                 "async servers=6 workers=1 eval-every=0.01");
}

/* Norms, inner products and medians over a vector of which each server has a part. */
TEST(every_reduction_on_three_servers) {
    for (const struct pl_entry *const *r = pl_reduce_family.table; *r; r++) {
        char options[200];
        snprintf(options, sizeof options, "method=sync workers=4 reduce=%s", (*r)->name);
        pl_setup *alone = make("%s", options); /* some prepare gradients for another rule */
        const char *next = pl_setup_check(alone) ? "+median" : "";
        snprintf(options, sizeof options,
                 "method=sync reduce=%s%s transport=mpi servers=3 workers=4 updates=15", (*r)->name,
                 next);
        check_replay("%s", options);
    }
}

/* A bowl in the first 2000 elements; the others are buffers and count steps. */
enum { BOWL_FREE = 1000, BOWL_FROZEN = 2000, BOWL_DIM = 3000 };

static int bowl_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                         double *loss) {
    *loss = 1;
    for (size_t i = 0; i < BOWL_DIM; i++) g[i] = i < BOWL_FROZEN ? w[i] - 1 : w[i] + 1;
    return 0;
}

/* Frozen parameters and buffers, whichever server has them. */
TEST(ranges_on_three_servers) {
    static const struct pl_model_range range[] = {
        {BOWL_FREE, BOWL_FROZEN, 0, 1, PL_RANGE_PARAMETERS},
        {BOWL_FROZEN, BOWL_DIM, 0, 0, PL_RANGE_BUFFERS}};
    static const char *const methods[] = {"method=sync optim=adam", "method=local-sgd:u=1",
                                          "method=sync correct=clip reduce=geomedian"};
    const struct pl_function f = {.dim = BOWL_DIM, .gradient = bowl_gradient};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        char options[200];
        size_t n;
        snprintf(options, sizeof options, "%s transport=mpi servers=3 workers=4 updates=20 lr=0.01",
                 methods[m]);
        pl_setup *s = make("%s", options);
        assert_int_equal(pl_setup_function(s, &f), 0);
        set_ranges(range, 2);
        pl_run *run = train(s);
        const float *w = run ? pl_run_weights(run, &n) : NULL;
        for (size_t i = 0; w && i < BOWL_DIM; i++)
            if (i < BOWL_FREE ? !(w[i] > 0.001F) : i < BOWL_FROZEN ? w[i] != 0 : w[i] != 20)
                fail_msg("%s: element %zu is %g", options, i, (double)w[i]);
    }
}

/* --- lies ------------------------------------------------------------------------------------ */

static bool lies; /* workers call every result finite */

bool __real_pl_task_finite(const struct pl_job *job, const struct pl_task_at *at, float *out,
                           double loss);
bool __wrap_pl_task_finite(const struct pl_job *job, const struct pl_task_at *at, float *out,
                           double loss);
bool __wrap_pl_task_finite(const struct pl_job *job, const struct pl_task_at *at, float *out,
                           double loss) {
    return lies || __real_pl_task_finite(job, at, out, loss);
}

/* Worker 4's gradient is not finite, in the range of the last of three servers alone. */
static int bad_end_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                            double *loss) {
    bowl_gradient(ctx, w, b, g, loss);
    if (b->worker == 3) g[BOWL_DIM - 1] = NAN;
    return 0;
}

/* What only one server can see has the fate that it has with one server. */
TEST(a_lie_that_one_of_three_servers_sees) {
    static const char *const methods[] = {
        "method=sync updates=100",
        /* enough for ten results of worker 4, even if it runs less than the others */
        "method=async delay=const:t=0.001 updates=1500"};
    const struct pl_function f = {.dim = BOWL_DIM, .gradient = bad_end_gradient};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        char options[200];
        size_t n;
        snprintf(options, sizeof options, "%s transport=mpi servers=3 workers=4 lr=0.01",
                 methods[m]);
        pl_setup *s = make("%s", options);
        assert_int_equal(pl_setup_function(s, &f), 0);
        lies = true;
        pl_run *run = train(s);
        lies = false;
        const float *w = run ? pl_run_weights(run, &n) : NULL;
        for (size_t i = 0; w && i < BOWL_DIM; i++) assert_true(isfinite(w[i]));
        if (run) check_books(run);
        if (run &&
            !(number(run, "tasks.rejected") >= 10 && number(run, "suspended.quarantined") >= 1))
            fail_msg("%s: %g rejected, %g quarantined", options, number(run, "tasks.rejected"),
                     number(run, "suspended.quarantined"));
    }
}

/* With one worker a run is determined: on six servers, stopped half-way and resumed, it ends with
 * the bits of a run on this machine. */
static void check_resumed(const char *variant, const char *name) {
    static const char *const where[] = {"transport=inproc", "transport=mpi servers=6"};
    pl_run *run[3] = {NULL};
    for (int i = 0; i < 2; i++) {
        const char *method = strstr(variant, "method=") ? "" : "method=async";
        pl_setup *s = make("workers=1 updates=40 %s %s %s", method, variant, where[i]);
        if (i == 1) {
            pl_setup_set(s, "checkpoint", folder_path(name));
            pl_setup_set(s, "updates", "20");
            train(s);
            set_all(s, "resume=auto updates=40");
        }
        run[i] = train(s);
    }
    if (run[1]) check_same_weights(run[0], run[1]);
}

TEST(resume_on_six_servers) {
    static const char *const variants[] = {"optim=momentum",
                                           "optim=adam",
                                           "optim=nesterov",
                                           "correct=gap optim=momentum",
                                           "method=dana-ga",
                                           "correct=dc",
                                           "lr-schedule=step:at=20,unit=updates",
                                           "weight-decay=0.01",
                                           "average=tail"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char name[32];
        snprintf(name, sizeof name, "cut-%zu", i);
        check_resumed(variants[i], name);
    }
}

/* Over MPI: refused at all ranks alike, told at rank 0; and the next run is none the worse. */
TEST(refusals_of_ranks) {
    static const char *const bad[][2] = {
        {"workers=3", "needs 4 ranks (1 server + 3 workers), but 5 were started"},
        {"servers=5", "--servers 5 needs at least 6 ranks"},
        {"servers=2", "needs 6 ranks (2 servers + 4 workers), but 5 were started"},
        {"spawn=threads", "spawn is for workers on this machine"},
        {"model=none", "needs something to compute"},
        {"model=mlp:hidden=x", "hidden"},
        {"events=/proc/nowhere/at/all", "events"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_setup *s = make("transport=mpi");
        pl_run *run = NULL;
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(bad[i][0], "="), bad[i][0]);
        pl_setup_set(s, key, strchr(bad[i][0], '=') + 1);
        assert_true(pl_train(s, &run) < 0);
        if (pl_rank() > 0)
            assert_true(pl_setup_why(s)[0] == '\0');
        else if (!strstr(pl_setup_why(s), bad[i][1]))
            fail_msg("%s: %s", bad[i][0], pl_setup_why(s));
    }
    check_replay("method=async transport=mpi");
}

/* What one rank alone cannot do is told by rank 0, by name. */
TEST(a_rank_that_fails) {
    pl_setup *s = make("transport=mpi");
    pl_run *run = NULL;
    const struct pl_function f = {.dim = 3, .gradient = bad_gradient};
    if (pl_rank() == 2) pl_setup_function(s, &f); /* is not what rank 0 has */
    assert_true(pl_train(s, &run) < 0);
    if (pl_rank() == 0 && !strstr(pl_setup_why(s), "rank 2: "))
        fail_msg("not named: %s", pl_setup_why(s));
    check_replay("method=sync transport=mpi");
}

/* A policy of the program's own: every rank registers it, and one that has not is named. */
TEST(own_policy) {
    for (int missing = 0; missing < 2; missing++) {
        pl_setup *s = make("transport=mpi");
        pl_run *run = NULL;
        struct pl_policy own = *(const struct pl_policy *)pl_policy_family.table[0];
        own.id.name = "own";
        if (!missing || pl_rank() != 2) assert_int_equal(pl_setup_policy(s, &own), 0);
        if (pl_rank() == 0) assert_int_equal(pl_setup_set(s, "policy", "own:k=2"), 0);
        int rc = pl_train(s, &run);
        own_run(run);
        if (missing && pl_rank() == 0 &&
            !strstr(pl_setup_why(s), "rank 2: the run has policy 'own', which is not registered"))
            fail_msg("not named: %s", pl_setup_why(s));
        if (!missing && rc) fail_msg("%s", pl_setup_why(s));
        assert_true(!missing == !rc);
        if (run) assert_string_equal(pl_run_text(run, "policy"), "own:k=2");
    }
}

/* Tests whose name speaks of servers are those of seven ranks. */
int main(int argc, char **argv) {
    if (pl_rank() < 0) {
        printf("skipped: mpirun did not start this; tests/transport/mpi.sh does\n");
        return 77;
    }
    if (pl_rank() > 0 && !freopen("/dev/null", "w", stdout)) return 1; /* rank 0 tells */
    if (argc > 1 && strcmp(argv[1], "servers") == 0) {
        cmocka_set_test_filter(argc > 2 ? argv[2] : "*_servers*");
    } else {
        cmocka_set_skip_filter("*_servers*");
        if (argc > 1) cmocka_set_test_filter(argv[1]);
    }
    begin_tests(11);
    return run_all_tests(folder_make, folder_clear);
}
