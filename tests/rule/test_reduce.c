/* The robust reductions in single precision: golden values, the order of the members, the number
 * of threads, hostile numbers, groups that are too small, chains and what check says. */
#include "base/rng.h"
#include "golden_reduce.h"
#include "groups.h"
#include "setups.h"
#include "sys/pool.h"
#include "teams.h"

TEST(golden_values) {
    golden_a(3e-6);
    golden_b();
    golden_c(3e-5);
}

/* ---- order and threads ---- */

static const char *const chains[] = {"nnm+median",
                                     "nnm+trimmed:f=2",
                                     "nnm:f=2+krum",
                                     "clipping:c=3+mean",
                                     "clipping:form=arc,f=3+geomedian",
                                     "clipping+nnm+mean-around-median:f=3",
                                     "buffers:b=5+median",
                                     "bucketing:s=2+median"};
#define N_CHAINS (sizeof chains / sizeof *chains)

static size_t all_specs(const char **spec) {
    size_t n = 0;
    for (const struct pl_entry *const *e = pl_reduce_family.table; *e; e++)
        if (!((const struct pl_reduce *)*e)->prepares) spec[n++] = (*e)->name;
    for (size_t i = 0; i < N_CHAINS; i++) spec[n++] = chains[i];
    return n;
}

/* Members in another order: the same result to rounding. Buckets are drawn by place, and buffers go
 * by worker, who here is the place: those two may differ. */
TEST(order_does_not_matter) {
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (size_t s = 0; s < n_specs; s++)
        for (int round = 0; round < N_ROUNDS / 40; round++) {
            struct group g;
            if (strstr(spec[s], "buffers") || strstr(spec[s], "bucketing")) continue;
            int n = 11 + (int)pl_rng_below(&rng, 12);
            group_new(&g, &rng, n, 130);
            golden_reduce(spec[s], n, g.dim, g.x, g.again);
            for (size_t i = 0; i < g.dim; i++) g.wanted[i] = (double)g.again[i];
            for (int i = n - 1; i > 0; i--) {
                size_t j = pl_rng_below(&rng, (uint32_t)i + 1);
                for (size_t k = 0; k < g.dim; k++) {
                    float mine = g.x[(size_t)i * g.dim + k];
                    g.x[(size_t)i * g.dim + k] = g.x[j * g.dim + k];
                    g.x[j * g.dim + k] = mine;
                }
            }
            golden_reduce(spec[s], n, g.dim, g.x, g.got);
            compare(spec[s], &g);
            group_free(&g);
        }
}

/* Three commits on one team; the model afterwards. */
static void team_run(const char *reduce, const char *correct, struct pl_parallel_for team,
                     const struct group *g, float *out) {
    size_t owned = n_owned();
    struct pl_store_conf conf = golden_rules(reduce, g->dim, g->n);
    conf.parallel_for = team;
    conf.weight_decay = 0.01;
    conf.correct = choose(&pl_correct_family, correct, g->n);
    struct pl_store *s = store_of(&conf, NULL);
    for (int k = 0; k < 3; k++) golden_commit(s, g->n, g->dim, g->x);
    memcpy(out, pl_store_newest(s)->model, g->dim * sizeof *out);
    release_owned(owned);
}

TEST(threads_do_not_matter) {
    static const char *const corrections[] = {"none", "clip:c=5", "gap", "dc"};
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    struct pl_rng rng;
    struct pl_pool *pool;
    assert_int_equal(pl_pool_new(3, &pool), 0);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, 0);
    for (size_t s = 0; s < n_specs; s++)
        for (size_t c = 0; c < 4; c++) {
            struct group g;
            group_new(&g, &rng, 13, c == 0 ? 70000 : 3000);
            team_run(spec[s], corrections[c], (struct pl_parallel_for){NULL, NULL}, &g, g.got);
            team_run(spec[s], corrections[c], (struct pl_parallel_for){team_backwards, NULL}, &g,
                     g.again);
            assert_memory_equal(g.got, g.again, g.dim * sizeof *g.got);
            team_run(spec[s], corrections[c], (struct pl_parallel_for){team_threads, pool}, &g,
                     g.again);
            assert_memory_equal(g.got, g.again, g.dim * sizeof *g.got);
            group_free(&g);
        }
    pl_pool_free(pool);
}

/* ---- hostile numbers ---- */

/* f members send huge numbers; every robust rule stays among the honest ones. */
TEST(huge_members_do_no_harm) {
    static const float huge[] = {1e15f, -1e20f, 1e30f, 3.4e38f, -3.4e38f};
    static const char *const robust[] = {"median",
                                         "trimmed:f=3",
                                         "mean-around-median:f=3",
                                         "phocas:f=3",
                                         "geomedian",
                                         "krum:f=3",
                                         "multikrum:f=3",
                                         "bulyan:f=3",
                                         "mda:f=3",
                                         "nnm+trimmed:f=3",
                                         "nnm+median",
                                         "nnm:f=3+krum",
                                         "clipping:c=100+median",
                                         "clipping:form=arc,f=3+trimmed"};
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 4, 0);
    for (size_t s = 0; s < sizeof robust / sizeof *robust; s++)
        for (size_t h = 0; h < sizeof huge / sizeof *huge; h++)
            for (int where = 0; where < 3; where++) {
                struct group g;
                group_new(&g, &rng, 16, 100);
                double low = INFINITY, high = -INFINITY;
                for (int i = 0; i < g.n; i++)
                    for (size_t k = 0; k < g.dim; k++) {
                        float *x = &g.x[(size_t)i * g.dim + k];
                        *x = (float)pl_rng_unit(&rng);
                        if ((i + 8 * where) % g.n >= 3) {
                            low = fmin(low, (double)*x);
                            high = fmax(high, (double)*x);
                        } else {
                            *x = k % 3 == 2 ? -huge[h] : huge[h];
                        }
                    }
                golden_reduce(robust[s], g.n, g.dim, g.x, g.got);
                for (size_t k = 0; k < g.dim; k++)
                    if (!(g.got[k] >= low - 0.3 && g.got[k] <= high + 0.3))
                        fail_msg("%s, %g in three of 16: coordinate %zu is %g", robust[s],
                                 (double)huge[h], k, (double)g.got[k]);
                group_free(&g);
            }
}

/* All members huge, or a mean that would overflow on the way: finite all the same. */
TEST(finite_in_finite_out) {
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    for (size_t s = 0; s < n_specs; s++)
        for (int sign = 0; sign < 2; sign++) {
            float x[11 * 40], got[40];
            for (int i = 0; i < 11 * 40; i++)
                x[i] = (sign && i / 40 % 2 ? -1.0f : 1.0f) * (3e38f + 1e37f * (float)(i % 4));
            if (strstr(spec[s], "mean:")) continue;
            golden_reduce(spec[s], 11, 40, x, got);
            for (int k = 0; k < 40; k++)
                if (!isfinite(got[k]))
                    fail_msg("%s: coordinate %d is %g", spec[s], k, (double)got[k]);
        }
}

/* Lanes of equal values, zeros of both signs: sorted like any. */
TEST(equal_members_stay) {
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    for (size_t s = 0; s < n_specs; s++) {
        float x[11 * 3], got[3];
        for (int i = 0; i < 11; i++) {
            x[3 * i] = 0.25f;
            x[3 * i + 1] = i % 2 ? 0.0f : -0.0f;
            x[3 * i + 2] = -0.5f;
        }
        golden_reduce(spec[s], 11, 3, x, got);
        assert_true(fabsf(got[0] - 0.25f) < 1e-6f && fabsf(got[2] + 0.5f) < 1e-6f);
        assert_true(got[1] == 0);
    }
}

/* ---- f, K and who is missing ---- */

TEST(small_groups_get_the_median) {
    float x[7 * 2] = {1, 8, 2, 7, 3, 6, 4, 5, 5, 4, 6, 3, 7, 2};
    struct pl_store_conf conf = golden_rules("krum:f=2", 2, 7);
    struct pl_store *s = store_of(&conf, NULL);
    golden_commit(s, 7, 2, x);
    assert_int_equal(pl_store_n_medians(s), 0);
    for (int n = 6; n >= 1; n--) {
        float before = pl_store_newest(s)->model[0];
        golden_commit(s, n, 2, x);
        assert_int_equal(pl_store_n_medians(s), 7 - n);
        assert_true(fabsf(before - pl_store_newest(s)->model[0] - (float)(n + 1) / 2) < 1e-5f);
    }
    golden_commit(s, 7, 2, x);
    assert_int_equal(pl_store_n_medians(s), 6);
}

/* What the public check says of --reduce with K of 20 workers. */
static void check_says(const char *reduce, const char *policy, const char *wanted) {
    pl_setup *s = plain();
    int rc = pl_setup_set(s, "workers", "20") | pl_setup_set(s, "policy", policy) |
             pl_setup_set(s, "reduce", reduce) | pl_setup_set(s, "model", "quadratic");
    if (!rc) rc = pl_setup_check(s);
    if (!wanted && rc) fail_msg("%s with %s: %s", reduce, policy, pl_setup_why(s));
    if (wanted && (!rc || !strstr(pl_setup_why(s), wanted)))
        fail_msg("%s with %s: '%s', not '%s'", reduce, policy, pl_setup_why(s), wanted);
}

TEST(check_names_the_numbers) {
    check_says("krum:f=6", "ksync:k=8",
               "reduce 'krum:f=6' needs 2f+2 < K and only K=8 gradients are reduced at once; use "
               "f=2 or less, or K=15 or more");
    check_says("krum:f=6", "ksync:k=15", NULL);
    check_says("krum:f=6", "ksync:k=14", "use f=5 or less, or K=15 or more");
    check_says("krum", "kasync:k=2",
               "reduce 'krum:f=auto' needs 2f+2 < K and only K=2 gradients are reduced at once; "
               "use K=3 or more");
    check_says("krum", "kasync:k=3", NULL);
    check_says("trimmed:f=4", "ksync:k=8", "use f=3 or less, or K=9 or more");
    check_says("trimmed:f=1", "kasync:k=1", "use f=0, or K=3 or more");
    check_says("bulyan:f=5", "ksync:k=all", "use f=4 or less, or K=23 or more");
    check_says("mda:f=17", "ksync:k=all", "use f=9 or less");
    check_says("bucketing:s=2+krum:f=3", "ksync:k=10",
               "needs 2f+2 < K and of K=10 gradients only 5 are reduced at once; use f=1 or less, "
               "or K=17 or more");
    check_says("nnm+trimmed:f=6", "ksync:k=12", "reduce 'nnm:f=6' needs 2f < K");
    check_says("nnm+trimmed:f=6", "ksync:k=13", NULL);
    check_says("nnm", "ksync:k=all", "prepares gradients for another rule");
    check_says("krum+mean", "ksync:k=all", "leaves one vector");
    check_says("median+nnm", "ksync:k=all", "leaves one vector");
    check_says("krumm", "ksync:k=all", "did you mean 'krum'");
    check_says("nnm+", "ksync:k=all", "is not a spec");
    check_says("nnm+nnm+nnm+nnm+median", "ksync:k=all", "a chain has at most 4");
    check_says("krum", "kbatchasync:k=2000", "use K=1024 or less");
    check_says("median", "kbatchasync:k=2000", NULL);
    check_says("krum:f=1", "rounds:give=any,ahead=100", "a group may have K=1920 of them");
    check_says("krum:f=1", "rounds:give=any", NULL);
    check_says("trimmed:f=30%", "ksync:k=all", NULL);
    check_says("trimmed:f=50%", "ksync:k=all", "reduce 'trimmed:f=10' needs 2f < K");
    check_says("trimmed:f=-1", "ksync:k=all", "f=-1 is not accepted");
}

/* A tuner that lets K grow: the smallest K counts. */
TEST(check_asks_the_tuner) {
    pl_setup *s = setup_of("method=adasync-ksync model=quadratic workers=20 reduce=krum:f=1");
    assert_int_not_equal(pl_setup_check(s), 0);
    assert_non_null(strstr(pl_setup_why(s), "K=1 gradients"));
    assert_int_equal(pl_setup_set(s, "tuner", "adasync:k0=5"), 0);
    assert_int_equal(pl_setup_check(s), 0);
}
