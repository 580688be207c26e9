/* Every robust reduction against its definition, computed naively in double precision. */
#include "base/rng.h"
#include "golden_reduce.h"
#include "groups.h"

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
        double *chosen = own_room((size_t)theta * dim, sizeof *chosen);
        for (int i = 0; i < theta; i++) {
            int best = twin_krum(n, f, dim, x, alive, score);
            memcpy(chosen + (size_t)i * dim, x + (size_t)best * dim, dim * sizeof *x);
            alive[best] = false;
        }
        twin_columns("bulyan", theta, f, dim, chosen, out);
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

/* All rules, random K, f and d: K around the sizes where the sorting changes its way, d around
 * blocks and lanes. */
TEST(rules_agree_with_their_twins) {
    static const int sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,  11, 12, 13, 16, 17,
                                19, 20, 21, 23, 24, 25, 28, 31, 32, 33, 40, 47, 63};
    static const size_t dims[] = {1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200, 2050};
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (const struct pl_entry *const *e = pl_reduce_family.table; *e; e++) {
        const struct pl_reduce *r = (const struct pl_reduce *)*e;
        int n_compared = 0;
        for (int round = 0; round < N_ROUNDS; round++) {
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

/* ---- memory ---- */

/* Centered clipping starts from its own last result, kept and restored with the store. */
TEST(centered_clip_remembers) {
    struct pl_store_conf conf;
    struct pl_rng rng;
    struct group g;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 5, 0);
    group_new(&g, &rng, 9, 50);
    conf = golden_rules("centered-clip:tau=0.5", g.dim, g.n);
    struct pl_store *s = store_of(&conf, NULL);
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
    group_free(&g);
}
