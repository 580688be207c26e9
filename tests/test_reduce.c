/* The robust reductions in single precision: golden values, every rule against a naive twin in
 * double, the order of the members, the number of threads, hostile numbers, groups that are too
 * small, chains and what check says.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "golden_reduce.h"
#include "paceline.h"
#include "seed.h"
#include "sys/pool.h"
#include "teams.h"

static uint64_t test_seed;
static int n_rounds = 400;

static void golden_values(void **state) {
    (void)state;
    golden_a(3e-6);
    golden_b();
    golden_c(3e-5);
}

/* ---- twins: the definitions, one coordinate or one pair at a time ---- */

static int twin_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double twin_median(const double *sorted, int n) {
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static double twin_trimmed(const double *sorted, int n, int f) {
    double sum = 0;
    for (int i = f; i < n - f; i++) sum += sorted[i];
    return sum / (n - 2 * f);
}

/* The mean of the `keep` closest to c, the closest first, by looking for each. */
static double twin_closest(const double *sorted, int n, int keep, double c) {
    bool used[GOLDEN_MEMBERS] = {false};
    double sum = 0;
    for (int k = 0; k < keep; k++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!used[i] && (best < 0 || fabs(sorted[i] - c) < fabs(sorted[best] - c))) best = i;
        used[best] = true;
        sum += sorted[best];
    }
    return sum / keep;
}

static double twin_distance2(const double *x, size_t dim, int i, int j) {
    double sum = 0;
    for (size_t k = 0; k < dim; k++) {
        double d = x[(size_t)i * dim + k] - x[(size_t)j * dim + k];
        sum += d * d;
    }
    return sum;
}

static void twin_columns(const char *rule, int n, int f, size_t dim, const double *x, double *out) {
    double column[GOLDEN_MEMBERS];
    for (size_t k = 0; k < dim; k++) {
        for (int i = 0; i < n; i++) column[i] = x[(size_t)i * dim + k];
        qsort(column, (size_t)n, sizeof *column, twin_order);
        if (strcmp(rule, "median") == 0) out[k] = twin_median(column, n);
        if (strcmp(rule, "trimmed") == 0) out[k] = twin_trimmed(column, n, f);
        if (strcmp(rule, "mean-around-median") == 0)
            out[k] = twin_closest(column, n, n - f, twin_median(column, n));
        if (strcmp(rule, "phocas") == 0)
            out[k] = twin_closest(column, n, n - f, twin_trimmed(column, n, f));
        if (strcmp(rule, "bulyan") == 0)
            out[k] = twin_closest(column, n, n - 2 * f, twin_median(column, n));
    }
}

/* Krum's choice among those with alive[i]. */
static int twin_krum(int n, int f, size_t dim, const double *x, const bool *alive, double *score) {
    int best = -1, n_left = 0;
    for (int i = 0; i < n; i++) n_left += alive[i];
    for (int i = 0; i < n; i++) {
        double d[GOLDEN_MEMBERS];
        int m = 0, near = n_left - f - 2 > 1 ? n_left - f - 2 : 1;
        if (!alive[i]) continue;
        for (int j = 0; j < n; j++)
            if (j != i && alive[j]) d[m++] = twin_distance2(x, dim, i, j);
        qsort(d, (size_t)m, sizeof *d, twin_order);
        score[i] = 0;
        for (int j = 0; j < near && j < m; j++) score[i] += d[j];
        bool tie = n_left < n && best >= 0 && score[i] == score[best];
        if (best < 0 || score[i] < score[best]) best = i;
        if (!tie) continue;
        double mine = 0, its = 0;
        for (int j = 0; j < n; j++) {
            mine += alive[j] ? twin_distance2(x, dim, i, j) : 0;
            its += alive[j] ? twin_distance2(x, dim, best, j) : 0;
        }
        if (mine < its) best = i;
    }
    return best;
}

static void twin_sum(int n, size_t dim, const double *x, const double *weight, double *out) {
    for (size_t k = 0; k < dim; k++) {
        out[k] = 0;
        for (int i = 0; i < n; i++) out[k] += weight[i] * x[(size_t)i * dim + k];
    }
}

static void twin_krums(const char *rule, int n, int f, size_t dim, const double *x, double *out) {
    double weight[GOLDEN_MEMBERS] = {0}, score[GOLDEN_MEMBERS];
    bool alive[GOLDEN_MEMBERS];
    for (int i = 0; i < n; i++) alive[i] = true;
    if (strcmp(rule, "bulyan") == 0) {
        int theta = n - 2 * f;
        double *chosen = malloc((size_t)theta * dim * sizeof *chosen);
        assert_non_null(chosen);
        for (int i = 0; i < theta; i++) {
            int best = twin_krum(n, f, dim, x, alive, score);
            memcpy(chosen + (size_t)i * dim, x + (size_t)best * dim, dim * sizeof *x);
            alive[best] = false;
        }
        twin_columns("bulyan", theta, f, dim, chosen, out);
        free(chosen);
        return;
    }
    int m = strcmp(rule, "krum") == 0 ? 1 : n - f - 2;
    twin_krum(n, f, dim, x, alive, score);
    for (int k = 0; k < m; k++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (alive[i] && (best < 0 || score[i] < score[best])) best = i;
        alive[best] = false;
        weight[best] = 1.0 / m;
    }
    twin_sum(n, dim, x, weight, out);
}

/* Every subset of n-f, n <= 12. */
static void twin_mda(int n, int f, size_t dim, const double *x, double *out) {
    double weight[GOLDEN_MEMBERS] = {0}, least = INFINITY;
    for (unsigned set = 0; set < 1u << n; set++) {
        double widest = 0;
        int size = 0;
        for (int i = 0; i < n; i++) size += (int)(set >> i & 1);
        if (size != n - f) continue;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                if (set >> i & 1 && set >> j & 1)
                    widest = fmax(widest, twin_distance2(x, dim, i, j));
        /* the widest first, then the sum */
        double sum = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++)
                if (set >> i & 1 && set >> j & 1) sum += twin_distance2(x, dim, i, j);
        double rank = widest + 1e-9 * sum;
        if (!(rank < least)) continue;
        least = rank;
        for (int i = 0; i < n; i++) weight[i] = set >> i & 1 ? 1.0 / size : 0;
    }
    twin_sum(n, dim, x, weight, out);
}

static void twin_geomedian(int n, size_t dim, const double *x, double *out) {
    memset(out, 0, dim * sizeof *out);
    for (int t = 0; t < 3; t++) {
        double weight[GOLDEN_MEMBERS], total = 0;
        for (int i = 0; i < n; i++) {
            double d = 0;
            for (size_t k = 0; k < dim; k++) d += pow(out[k] - x[(size_t)i * dim + k], 2);
            total += weight[i] = 1 / fmax(0.1, sqrt(d));
        }
        for (int i = 0; i < n; i++) weight[i] /= total;
        twin_sum(n, dim, x, weight, out);
    }
}

static void twin_centered_clip(int n, size_t dim, const double *x, double tau, double *v) {
    double weight[GOLDEN_MEMBERS], *sum = calloc(dim, sizeof *sum);
    assert_non_null(sum);
    for (int i = 0; i < n; i++) {
        double d = 0;
        for (size_t k = 0; k < dim; k++) d += pow(x[(size_t)i * dim + k] - v[k], 2);
        weight[i] = fmin(1, tau / sqrt(d)) / n;
        for (size_t k = 0; k < dim; k++) sum[k] += weight[i] * (x[(size_t)i * dim + k] - v[k]);
    }
    for (size_t k = 0; k < dim; k++) v[k] += sum[k];
    free(sum);
}

static void twin_medoid(int n, size_t dim, const double *x, double *out) {
    int best = -1;
    double least = 0;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++) sum += sqrt(twin_distance2(x, dim, i, j));
        if (best >= 0 && sum >= least) continue;
        best = i;
        least = sum;
    }
    memcpy(out, x + (size_t)best * dim, dim * sizeof *x);
}

/* On a line the two in the middle of an even number are as good as each other. */
static bool twin_is_sure(const char *rule, int n, size_t dim) {
    return strcmp(rule, "medoid") != 0 || dim > 1 || n % 2 == 1;
}

/* Any of them, with its defaults but f; false: it has no twin. */
static bool twin_reduce(const char *rule, int n, int f, size_t dim, const double *x, double *out) {
    double weight[GOLDEN_MEMBERS];
    for (int i = 0; i < n; i++) weight[i] = 1.0 / n;
    if (strcmp(rule, "mean") == 0) {
        twin_sum(n, dim, x, weight, out);
    } else if (strcmp(rule, "median") == 0 || strcmp(rule, "trimmed") == 0 ||
               strcmp(rule, "mean-around-median") == 0 || strcmp(rule, "phocas") == 0) {
        twin_columns(rule, n, f, dim, x, out);
    } else if (strcmp(rule, "krum") == 0 || strcmp(rule, "multikrum") == 0 ||
               strcmp(rule, "bulyan") == 0) {
        twin_krums(rule, n, f, dim, x, out);
    } else if (strcmp(rule, "geomedian") == 0) {
        twin_geomedian(n, dim, x, out);
    } else if (strcmp(rule, "medoid") == 0) {
        twin_medoid(n, dim, x, out);
    } else if (strcmp(rule, "mda") == 0 && n <= 12) {
        twin_mda(n, f, dim, x, out);
    } else if (strcmp(rule, "centered-clip") == 0) {
        memset(out, 0, dim * sizeof *out);
        twin_centered_clip(n, dim, x, 10, out);
    } else {
        return false;
    }
    return true;
}

/* ---- random groups ---- */

struct group {
    int n;
    size_t dim;
    float *x;
    double *wide, *wanted;
    float *got, *again;
};

static void group_new(struct group *g, struct pl_rng *rng, int n, size_t dim) {
    double spread = pow(10, 4 * pl_rng_unit(rng) - 2);
    *g = (struct group){.n = n, .dim = dim};
    size_t all = (size_t)n * dim;
    g->x = malloc(all * sizeof *g->x);
    g->wide = malloc(all * sizeof *g->wide);
    g->wanted = malloc(dim * sizeof *g->wanted);
    g->got = malloc(dim * sizeof *g->got);
    g->again = malloc(dim * sizeof *g->again);
    assert_true(g->x && g->wide && g->wanted && g->got && g->again);
    for (size_t i = 0; i < all; i++)
        g->wide[i] = g->x[i] = (float)(spread * (pl_rng_normal(rng) + (double)(i % dim % 3)));
}

static void group_free(struct group *g) {
    free(g->x);
    free(g->wide);
    free(g->wanted);
    free(g->got);
    free(g->again);
}

static const struct pl_reduce *find(const char *name) {
    const struct pl_entry *e;
    struct pl_why why;
    if (pl_entry_find(&pl_reduce_family, name, &e, &why)) fail_msg("%s", why.text);
    return (const struct pl_reduce *)e;
}

/* A spec of the rule with an f that its condition allows for n; false: n is too small. */
static bool random_spec(const struct pl_reduce *r, struct pl_rng *rng, int n, int *f, char *spec,
                        size_t max) {
    struct pl_reduce_f none = {PL_COUNT_AUTO};
    *f = 0;
    snprintf(spec, max, "%s", r->id.name);
    if (!r->needs) return true;
    int most = r->most(&none, n);
    if (most < 0) return false;
    *f = (int)pl_rng_below(rng, (uint32_t)most + 1);
    snprintf(spec, max, "%s:f=%d", r->id.name, *f);
    return true;
}

/* Relative to the largest value of the group. */
static void compare(const char *spec, const struct group *g) {
    double size = 0;
    for (size_t i = 0; i < (size_t)g->n * g->dim; i++) size = fmax(size, fabs(g->wide[i]));
    for (size_t k = 0; k < g->dim; k++)
        if (!(fabs(g->got[k] - g->wanted[k]) <= 4e-6 * size))
            fail_msg("%s of %d x %zu: coordinate %zu is %.9g, the twin has %.9g", spec, g->n,
                     g->dim, k, (double)g->got[k], g->wanted[k]);
}

/* All rules, random K, f and d: K around the sizes where the sorting changes its way, d around
 * blocks and lanes. */
static void rules_agree_with_their_twins(void **state) {
    static const int sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,  11, 12, 13, 16, 17,
                                19, 20, 21, 23, 24, 25, 28, 31, 32, 33, 40, 47, 63};
    static const size_t dims[] = {1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200, 2050};
    struct pl_rng rng;
    (void)state;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (const struct pl_entry *const *e = pl_reduce_family.table; *e; e++) {
        const struct pl_reduce *r = (const struct pl_reduce *)*e;
        int n_compared = 0;
        for (int round = 0; round < n_rounds; round++) {
            char spec[80];
            int f, n = sizes[pl_rng_below(&rng, sizeof sizes / sizeof *sizes)];
            size_t dim = dims[pl_rng_below(&rng, sizeof dims / sizeof *dims)];
            struct group g;
            if (r == find("mda") && n > 12) n = 3 + n % 10;
            if (r->prepares || !random_spec(r, &rng, n, &f, spec, sizeof spec)) continue;
            group_new(&g, &rng, n, dim);
            if (twin_is_sure(r->id.name, n, dim) &&
                twin_reduce(r->id.name, n, f, dim, g.wide, g.wanted)) {
                assert_int_equal(golden_reduce(spec, n, dim, g.x, g.got), 0);
                compare(spec, &g);
                n_compared++;
            }
            group_free(&g);
        }
        if (!r->prepares && n_compared == 0) fail_msg("reduce '%s' has no twin", r->id.name);
    }
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
static void order_does_not_matter(void **state) {
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    struct pl_rng rng;
    (void)state;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (size_t s = 0; s < n_specs; s++)
        for (int round = 0; round < n_rounds / 40; round++) {
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
    struct pl_store_conf conf;
    struct pl_why why;
    struct pl_store *s = golden_store(&conf, reduce, g->dim, g->n);
    pl_store_free(s);
    free(conf.correct.conf);
    conf.parallel_for = team;
    conf.weight_decay = 0.01;
    assert_int_equal(pl_spec_parse(&pl_correct_family, correct, g->n, &conf.correct.entry,
                                   &conf.correct.conf, &why),
                     0);
    float *w0 = calloc(g->dim, sizeof *w0);
    assert_non_null(w0);
    assert_int_equal(pl_store_new(&conf, w0, &s, &why), 0);
    for (int k = 0; k < 3; k++) golden_commit(s, g->n, g->dim, g->x);
    memcpy(out, pl_store_newest(s)->model, g->dim * sizeof *out);
    golden_close(s, &conf);
    free(w0);
}

static void threads_do_not_matter(void **state) {
    static const char *const corrections[] = {"none", "clip:c=5", "gap", "dc"};
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    struct pl_rng rng;
    struct pl_pool *pool;
    (void)state;
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
static void huge_members_do_no_harm(void **state) {
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
    (void)state;
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
static void finite_in_finite_out(void **state) {
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    (void)state;
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
static void equal_members_stay(void **state) {
    const char *spec[64];
    size_t n_specs = all_specs(spec);
    (void)state;
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

/* ---- memory ---- */

/* Centered clipping starts from its own last result, kept and restored with the store. */
static void centered_clip_remembers(void **state) {
    struct pl_store_conf conf;
    struct pl_rng rng;
    struct group g;
    (void)state;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 5, 0);
    group_new(&g, &rng, 9, 50);
    struct pl_store *s = golden_store(&conf, "centered-clip:tau=0.5", g.dim, g.n);
    memset(g.wanted, 0, g.dim * sizeof *g.wanted);
    double model[50] = {0};
    for (int k = 0; k < 6; k++) {
        golden_commit(s, g.n, g.dim, g.x);
        twin_centered_clip(g.n, g.dim, g.wide, 0.5, g.wanted);
        for (size_t i = 0; i < g.dim; i++) {
            model[i] -= g.wanted[i];
            assert_true(fabs(pl_store_newest(s)->model[i] - model[i]) < 1e-4);
        }
    }
    golden_close(s, &conf);
    group_free(&g);
}

/* ---- f, K and who is missing ---- */

static void small_groups_get_the_median(void **state) {
    struct pl_store_conf conf;
    float x[7 * 2] = {1, 8, 2, 7, 3, 6, 4, 5, 5, 4, 6, 3, 7, 2};
    (void)state;
    struct pl_store *s = golden_store(&conf, "krum:f=2", 2, 7);
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
    golden_close(s, &conf);
}

/* What the public check says of --reduce with K of 20 workers. */
static void check_says(const char *reduce, const char *policy, const char *wanted) {
    pl_setup *s;
    assert_int_equal(pl_setup_new(&s), 0);
    int rc = pl_setup_set(s, "workers", "20") | pl_setup_set(s, "policy", policy) |
             pl_setup_set(s, "reduce", reduce) | pl_setup_set(s, "model", "quadratic");
    if (!rc) rc = pl_setup_check(s);
    if (!wanted && rc) fail_msg("%s with %s: %s", reduce, policy, pl_setup_why(s));
    if (wanted && (!rc || !strstr(pl_setup_why(s), wanted)))
        fail_msg("%s with %s: '%s', not '%s'", reduce, policy, pl_setup_why(s), wanted);
    pl_setup_free(s);
}

static void check_names_the_numbers(void **state) {
    (void)state;
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
static void check_asks_the_tuner(void **state) {
    pl_setup *s;
    (void)state;
    assert_int_equal(pl_setup_new(&s), 0);
    assert_int_equal(pl_setup_set(s, "method", "adasync-ksync"), 0);
    assert_int_equal(pl_setup_set(s, "model", "quadratic"), 0);
    assert_int_equal(pl_setup_set(s, "workers", "20"), 0);
    assert_int_equal(pl_setup_set(s, "reduce", "krum:f=1"), 0);
    assert_int_not_equal(pl_setup_check(s), 0);
    assert_non_null(strstr(pl_setup_why(s), "K=1 gradients"));
    assert_int_equal(pl_setup_set(s, "tuner", "adasync:k0=5"), 0);
    assert_int_equal(pl_setup_check(s), 0);
    pl_setup_free(s);
}

int main(void) {
    test_seed = seed_of_test(1);
    if (seed_sanitized()) n_rounds /= 8;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_values),
        cmocka_unit_test(rules_agree_with_their_twins),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(huge_members_do_no_harm),
        cmocka_unit_test(finite_in_finite_out),
        cmocka_unit_test(equal_members_stay),
        cmocka_unit_test(centered_clip_remembers),
        cmocka_unit_test(small_groups_get_the_median),
        cmocka_unit_test(check_names_the_numbers),
        cmocka_unit_test(check_asks_the_tuner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
