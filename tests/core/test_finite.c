/* Commits use what is finite, and leave the members out that are not, whole or in parts. */
#define _GNU_SOURCE
#include "choices.h"
#include "suite_train.h"

#define N_WORKERS 7
#define DIM 5000

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

ALL_TESTS_FROM_SEED(15, folder_make, folder_clear)
