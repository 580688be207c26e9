/* Results that are not finite, found by the commit that reads them: the new version is what it
 * would be without them, workers look for themselves from then on, and a replay repeats it. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "choices.h"
#include "suite_train.h"
#include "timing/recording.h"

#define N_WORKERS 9
#define DIM 5000

/* --- the store ----------------------------------------------------------------------------- */

static struct pl_store *open_rules(const char *reduce, const char *correct, const char *optim,
                                   enum pl_sends sends) {
    static float w0[DIM];
    struct pl_store_conf conf = rules_of(DIM, N_WORKERS, correct, reduce, optim, 0.05);
    conf.k = 1;
    conf.sends = sends;
    conf.outer = 1;
    for (int i = 0; i < DIM; i++) w0[i] = 0.001f * (float)(i % 97);
    return store_of(&conf, w0);
}

/* One commit of random members; those in `bad` are not finite, or, if `leave_out`, not there. */
static void commit(struct pl_store *s, int number, unsigned bad, bool leave_out) {
    static float g[N_WORKERS][DIM];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 4, (uint64_t)number);
    for (int w = 0; w < N_WORKERS; w++) {
        for (int i = 0; i < DIM; i++) g[w][i] = (float)(2 * pl_rng_unit(&rng) - 1);
        uint32_t where = pl_rng_below(&rng, DIM);
        if (bad >> w & 1 && leave_out) continue;
        if (bad >> w & 1) g[w][where] = w % 2 ? NAN : INFINITY;
        struct pl_member m = {.worker = w,
                              .samples = (uint32_t)w + 1,
                              .lag = (uint64_t)w % 3,
                              .factor = 1,
                              .loss = 0.5};
        assert_int_equal(pl_store_take(s, &m, pl_store_newest(s), g[w], PL_FINITE_UNKNOWN), 0);
    }
    assert_int_equal(pl_store_commit(s, 1, NULL), 0);
    for (int w = 0; w < N_WORKERS && !leave_out; w++)
        assert_true(pl_store_is_spoiled(s, w) == (bad >> w & 1));
}

static void check_left_out(const char *reduce, const char *correct, enum pl_sends sends) {
    static const unsigned bad[] = {0, 1, 1u << 8, 0x15, 0xff, 0};
    struct pl_store *a = open_rules(reduce, correct, "sgd", sends);
    struct pl_store *b = open_rules(reduce, correct, "sgd", sends);
    assert_true(pl_store_can_leave_out(a));
    for (int i = 0; i < 6; i++) {
        commit(a, i, bad[i], false);
        commit(b, i, bad[i], true);
        const struct pl_version *x = pl_store_newest(a), *y = pl_store_newest(b);
        if (memcmp(x->model, y->model, DIM * sizeof *x->model) != 0 || x->id != y->id)
            fail_msg("%s, %s: commit %d is not what it would be without its members 0x%x", reduce,
                     correct, i, bad[i]);
        assert_true(pl_store_progress(a)->samples == pl_store_progress(b)->samples);
    }
}

TEST(test_left_out) {
    static const char *const reduces[] = {"mean",     "mean:by=samples", "median",
                                          "krum:f=1", "trimmed:f=1",     "geomedian"};
    static const char *const corrects[] = {"none", "lag", "distance", "clip"};
    for (size_t i = 0; i < sizeof reduces / sizeof *reduces; i++)
        check_left_out(reduces[i], "none", PL_SENDS_GRADIENT);
    for (size_t i = 0; i < sizeof corrects / sizeof *corrects; i++)
        check_left_out("mean", corrects[i], PL_SENDS_GRADIENT);
    check_left_out("mean", "none", PL_SENDS_DELTA);
    check_left_out("mean", "none", PL_SENDS_MODEL);
}

TEST(test_nothing_left) {
    struct pl_store *r = open_rules("mean", "none", "sgd", PL_SENDS_GRADIENT);
    float before[DIM];
    commit(r, 0, 0, false);
    memcpy(before, pl_store_newest(r)->model, sizeof before);
    double samples = pl_store_progress(r)->samples;
    commit(r, 1, (1u << N_WORKERS) - 1, false);
    assert_memory_equal(before, pl_store_newest(r)->model, sizeof before);
    assert_true(pl_store_newest(r)->id == 2);
    assert_true(pl_store_progress(r)->samples == samples);
}

/* Rules with a memory of their own cannot go back. */
TEST(test_cannot_go_back) {
    static const char *const optims[] = {"momentum", "adam"};
    for (size_t i = 0; i < sizeof optims / sizeof *optims; i++) {
        struct pl_store *r = open_rules("mean", "none", optims[i], PL_SENDS_GRADIENT);
        assert_false(pl_store_can_leave_out(r));
    }
}

/* --- whatever the rules do, the model stays finite -------------------------------------------- */

static bool all_finite(const float *v) {
    for (int i = 0; i < DIM; i++)
        if (!isfinite(v[i])) return false;
    return true;
}

/* Seven members, one of them not finite in one element. Bad < 0: none. */
static void take_all(struct pl_store *s, float (*g)[DIM], int bad, bool writable) {
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, 0);
    for (int w = 0; w < N_WORKERS; w++) {
        for (int i = 0; i < DIM; i++) g[w][i] = (float)(2 * pl_rng_unit(&rng) - 1);
        if (w == bad) g[w][pl_rng_below(&rng, DIM)] = w % 2 ? NAN : -INFINITY;
        struct pl_member m = {.worker = w, .samples = 1, .factor = 1};
        assert_int_equal(pl_store_take(s, &m, pl_store_newest(s), g[w],
                                       writable ? PL_FINITE_WRITABLE : PL_FINITE_UNKNOWN),
                         0);
    }
}

static void check_commit(const char *reduce, const char *correct, const char *optim,
                         enum pl_sends sends) {
    static float g[N_WORKERS][DIM], healthy[DIM];
    for (int writable = 0; writable < 2; writable++) {
        struct pl_store_conf conf = rules_of(DIM, N_WORKERS, correct, reduce, optim, 0.05);
        conf.k = N_WORKERS;
        conf.sends = sends;
        conf.outer = 1;
        struct pl_store *s = store_of(&conf, NULL);
        take_all(s, g, -1, writable);
        assert_int_equal(pl_store_commit(s, 1, NULL), 0);
        for (int i = 0; i < N_WORKERS; i++) assert_false(pl_store_is_spoiled(s, i));
        const float *now = pl_store_newest(s)->model;
        if (writable) assert_memory_equal(now, healthy, sizeof healthy);
        memcpy(healthy, now, sizeof healthy);
        for (int bad = 0; bad < 3; bad++) {
            take_all(s, g, bad, writable);
            assert_int_equal(pl_store_commit(s, 1, NULL), 0);
            if (!all_finite(pl_store_newest(s)->model) ||
                !all_finite(pl_store_newest(s)->lookahead))
                fail_msg("%s, %s, %s: worker %d spoilt the model", reduce, correct, optim, bad);
            assert_true(pl_store_is_spoiled(s, bad));
            for (int i = 0; i < N_WORKERS; i++) assert_true(i == bad || !pl_store_is_spoiled(s, i));
            assert_true(pl_store_progress(s)->samples == N_WORKERS + (bad + 1) * (N_WORKERS - 1));
        }
        take_all(s, g, -1, writable); /* nothing is left in the memory of a rule */
        assert_int_equal(pl_store_commit(s, 1, NULL), 0);
        assert_true(all_finite(pl_store_newest(s)->model));
    }
}

TEST(test_commits_use_what_is_finite) {
    static const char *const reduces[] = {"mean",          "mean:by=samples", "median",
                                          "trimmed:f=1",   "krum:f=1",        "geomedian",
                                          "centered-clip", "bulyan:f=1"};
    static const char *const corrects[] = {"none", "lag", "distance", "gap", "dc", "clip"};
    static const char *const optims[] = {"sgd", "momentum", "nesterov", "adam"};
    for (size_t i = 0; i < sizeof reduces / sizeof *reduces; i++)
        check_commit(reduces[i], "none", "momentum", PL_SENDS_GRADIENT);
    for (size_t i = 0; i < sizeof corrects / sizeof *corrects; i++)
        check_commit("mean", corrects[i], "sgd", PL_SENDS_GRADIENT);
    for (size_t i = 0; i < sizeof optims / sizeof *optims; i++)
        check_commit("mean", "none", optims[i], PL_SENDS_GRADIENT);
    check_commit("mean", "none", "sgd", PL_SENDS_MODEL);
    check_commit("mean", "none", "sgd", PL_SENDS_DELTA);
}

/* --- real runs ----------------------------------------------------------------------------- */

#define TASKS 8 /* of worker 2 are begun before the others have more; then 7 have been judged */

/* From its sixth task on, worker 2 has gradients that are not finite, with a loss that is. */
static int late_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                         double *loss) {
    atomic_int *begun = ctx; /* by worker 2 */
    if (b->worker == 1) atomic_fetch_add(begun, 1);
    while (b->worker != 1 && b->batch_no >= TASKS && atomic_load(begun) < TASKS) usleep(1000);
    for (int i = 0; i < 3; i++) g[i] = w[i] - 1;
    *loss = 0.5;
    if (b->worker == 1 && b->batch_no >= 5) g[2] = -INFINITY;
    return 0;
}

static size_t n_rejects(const char *tape) {
    struct pl_recording r;
    struct pl_why why = {""};
    size_t n = 0;
    if (pl_recording_read(tape, &r, &why)) fail_msg("%s", why.text);
    assert_true(pl_recording_is_real(&r));
    for (size_t i = 0; i < r.n_events; i++) n += r.event[i].kind == PL_REJECT;
    pl_recording_free(&r);
    return n;
}

/* The first is found by a commit; those that follow are rejected on arrival. The recording has the
 * latter alone as rejects, and a replay has both. */
static void check_run(const char *method) {
    atomic_int *begun = mmap(NULL, sizeof *begun, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* also of processes */
    const struct pl_function f = {.dim = 3, .gradient = late_gradient, .ctx = begun};
    assert_true(begun != MAP_FAILED);
    for (size_t i = 0; i < n_spawns(); i++) {
        char options[200], log[4096] = "";
        const char *tape = folder_path("tape");
        remove(tape);
        atomic_store(begun, 0);
        snprintf(options, sizeof options, "method=%s workers=3 updates=120 delay=const:t=0.0005 %s",
                 method, spawns[i]);
        pl_setup *s = make("%s", options);
        pl_setup_set(s, "record", tape);
        pl_setup_function(s, &f);
        pl_setup_log(s, say, log);
        pl_run *run = train(s);
        assert_non_null(run);
        check_books(run);
        double rejected = number(run, "tasks.rejected");
        size_t on_arrival = n_rejects(tape);
        if (!(on_arrival + 1 == (size_t)rejected && rejected > 1))
            fail_msg("%s: %g rejected, %zu on arrival", options, rejected, on_arrival);
        if (!strstr(log, "worker 2 sent a gradient that is not finite"))
            fail_msg("%s: not named: %s", options, log);
        size_t n;
        const float *w = pl_run_weights(run, &n);
        for (size_t j = 0; j < n; j++) assert_true(isfinite(w[j]) && w[j] == w[0]);
        pl_setup *again = plain();
        pl_setup_function(again, &f);
        pl_run *replayed = check_same_replay(run, again, tape);
        assert_true(number(replayed, "tasks.rejected") == rejected);
    }
    munmap(begun, sizeof *begun);
}

TEST(test_runs) {
    check_run("async");
    check_run("sync");
}

ALL_TESTS_FROM_SEED(71, folder_make, folder_clear)
