/* Robust rules based on the distances between whole vectors. They read only the matrix of inner
 * products and return weights.
 *
 * A distance that is not finite counts as infinite: vectors too long for a pl_real are far from all
 * others. If no finite distance is left, the coordinate median is used instead. Ties go to the
 * lower index. */
#include <math.h>
#include <string.h>

#include "rule/reduce.h"

static double geometry_gram(const struct pl_reduce_at *at, int i, int j) {
    return at->gram[(size_t)i * ((size_t)at->n + 1) + (size_t)j];
}

static double geometry_squared(double x) {
    return !isfinite(x) ? INFINITY : x > 0 ? x : 0;
}

/* ||x_i - x_j||^2; index n is the previous result. */
static double geometry_distance2(const struct pl_reduce_at *at, int i, int j) {
    if (i == j) return 0;
    return geometry_squared(geometry_gram(at, i, i) + geometry_gram(at, j, j) -
                            2 * geometry_gram(at, i, j));
}

/* Writes all squared distances, [n][n]. */
static void geometry_distances(const struct pl_reduce_at *at, double *d) {
    for (int i = 0; i < at->n; i++)
        for (int j = 0; j < at->n; j++) *d++ = geometry_distance2(at, i, j);
}

/* Sorts indices 0 … n-1 by value, ties by index. Shell's sort with Ciura's gaps. */
static void geometry_order(const double *value, int n, int *order) {
    static const int gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (int i = 0; i < n; i++) order[i] = i;
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (int i = gaps[g]; i < n; i++) {
            int mine = order[i], j = i;
            for (; j >= gaps[g]; j -= gaps[g]) {
                int other = order[j - gaps[g]];
                double a = value[other], b = value[mine];
                if (a < b || (a == b && other < mine)) break;
                order[j] = other;
            }
            order[j] = mine;
        }
}

/* --- geomedian: smoothed Weiszfeld ------------------------------------------------------- */

struct geomedian {
    struct pl_reduce_f f; /* not read; only its condition is checked */
    double nu;
    int64_t steps;
};

static const struct pl_opt geomedian_opts[] = {
    PL_REDUCE_F,
    PL_OPT_REAL(struct geomedian, nu, "0.1", 1e-300, 1e300, "lower bound on distances"),
    PL_OPT_INT(struct geomedian, steps, "3", 1, 100000, "Weiszfeld iterations, starting at 0"),
    PL_OPT_END,
};

/* ||z - x_i||^2 for z = sum a_j x_j over the first n, from G a and a' G a */
static double geometry_from(const struct pl_reduce_at *at, int i, const double *ga, double aga) {
    return geometry_squared(aga - 2 * ga[i] + geometry_gram(at, i, i));
}

/* ga = G a over n vectors, where 0 in a gives 0 even times infinity; returns a' G a. */
static double geometry_product(const struct pl_reduce_at *at, const double *a, int n, double *ga) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        ga[i] = 0;
        for (int j = 0; j < n; j++)
            if (a[j] != 0) ga[i] += a[j] * geometry_gram(at, i, j);
    }
    for (int i = 0; i < n; i++)
        if (a[i] != 0) sum += a[i] * ga[i];
    return sum;
}

static int geomedian_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    const struct geomedian *c = conf;
    for (int64_t t = 0; t < c->steps; t++) {
        double aga = geometry_product(at, row, at->n, at->room), total = 0;
        for (int i = 0; i < at->n; i++) {
            double d = sqrt(geometry_from(at, i, at->room, aga));
            row[i] = isfinite(d) ? 1 / (d > c->nu ? d : c->nu) : 0;
            total += row[i];
        }
        if (!(total > 0)) return 0;
        for (int i = 0; i < at->n; i++) row[i] /= total;
    }
    return 1;
}

const struct pl_reduce pl_reduce_geomedian = {
    .id = {"geomedian",
           "the point with the smallest sum of distances, by smoothed Weiszfeld iterations",
           "Chen, Su, Xu, arXiv 1705.05491; Pillutla, Kakade, Harchaoui, arXiv 1912.13445",
           geomedian_opts, sizeof(struct geomedian), PL_NEEDS_SERVER},
    .geometry = true,
    .needs = "2f < K",
    .most = pl_reduce_minority,
    .mix = geomedian_mix,
};

/* --- medoid ------------------------------------------------------------------------------ */

static int medoid_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    int best = -1, fewest = 0;
    double least = 0;
    (void)conf;
    for (int i = 0; i < at->n; i++) {
        int n_far = 0;
        double sum = 0;
        for (int j = 0; j < at->n; j++) {
            double d = sqrt(geometry_distance2(at, i, j));
            if (isfinite(d))
                sum += d;
            else
                n_far++;
        }
        if (best >= 0 && (n_far > fewest || (n_far == fewest && sum >= least))) continue;
        best = i;
        fewest = n_far;
        least = sum;
    }
    row[best] = 1;
    return 1;
}

const struct pl_reduce pl_reduce_medoid = {
    .id = {"medoid", "the gradient with the smallest sum of distances to the others",
           "El Mhamdi, Guerraoui, Rouault, ICML 2018", pl_no_opts, 0, PL_NEEDS_SERVER},
    .geometry = true,
    .mix = medoid_mix,
};

/* --- krum and what is made of it ----------------------------------------------------------------
 * Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries", NIPS 2017: the
 * score of a vector is the sum of its squared distances to the n-f-2 nearest others. */

/* The neighbours of every vector, nearest first, without itself: [n][n]; d [n][n] are the
 * distances. Both are in room, followed by three arrays [n+1] of doubles. */
struct krum {
    double *d, *score, *more;
    int *near;
};

static struct krum krum_new(const struct pl_reduce_at *at) {
    size_t n = (size_t)at->n;
    struct krum k = {.d = at->room, .near = (int *)(at->room + n * n)};
    k.score = at->room + n * n + (n * n + 1) / 2 + 1;
    k.more = k.score + n + 1;
    geometry_distances(at, k.d);
    for (size_t i = 0; i < n; i++) geometry_order(k.d + i * n, at->n, k.near + i * n);
    return k;
}

/* The sum over the `m` nearest others with more[j] == 0. */
static double krum_score(const struct krum *k, int n, int i, int m) {
    double sum = 0;
    for (int j = 0; j < n && m > 0; j++) {
        int other = k->near[i * n + j];
        if (other == i || k->more[other] != 0) continue;
        sum += k->d[i * n + other];
        m--;
    }
    return sum;
}

/* The remaining vector with the lowest score; -1 if all are infinite. When few are left, one
 * neighbour is still used. Two vectors that are each other's nearest then tie, and the one that is
 * closer to all others comes first. */
static int krum_best(const struct krum *k, int n, int n_left, int f) {
    int best = -1, m = n_left - f - 2 > 1 ? n_left - f - 2 : 1;
    for (int i = 0; i < n; i++) {
        if (k->more[i] != 0) continue;
        k->score[i] = krum_score(k, n, i, m);
        if (!isfinite(k->score[i])) continue;
        bool tie = n_left < n && best >= 0 && k->score[i] == k->score[best];
        if (best < 0 || k->score[i] < k->score[best] ||
            (tie && krum_score(k, n, i, n) < krum_score(k, n, best, n)))
            best = i;
    }
    return best;
}

/* The largest f with 2f+2 < n. */
static int krum_most(const void *conf, int n) {
    (void)conf;
    return n >= 3 ? (n - 3) / 2 : -1;
}

static int krum_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    struct krum k = krum_new(at);
    (void)conf;
    memset(k.more, 0, (size_t)at->n * sizeof *k.more);
    int best = krum_best(&k, at->n, at->n, at->f);
    if (best < 0) return 0;
    row[best] = 1;
    return 1;
}

const struct pl_reduce pl_reduce_krum = {
    .id = {"krum", "the gradient with the smallest sum of squared distances to its K-f-2 nearest",
           "Blanchard, El Mhamdi, Guerraoui, Stainer, NIPS 2017", pl_reduce_f_opts,
           sizeof(struct pl_reduce_f), PL_NEEDS_SERVER},
    .geometry = true,
    .needs = "2f+2 < K",
    .most = krum_most,
    .mix = krum_mix,
};

struct multikrum {
    struct pl_reduce_f f;
    int64_t m;
};

static const struct pl_opt multikrum_opts[] = {
    PL_REDUCE_F,
    PL_OPT_INT(struct multikrum, m, "0", 0, 1000000,
               "gradients to average, at most K-f (0: K-f-2)"),
    PL_OPT_END,
};

static int multikrum_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    struct krum k = krum_new(at);
    int64_t m = ((const struct multikrum *)conf)->m;
    if (m == 0) m = at->n - at->f - 2;
    if (m > at->n - at->f) m = at->n - at->f;
    if (m < 1) m = 1;
    memset(k.more, 0, (size_t)at->n * sizeof *k.more);
    if (krum_best(&k, at->n, at->n, at->f) < 0) return 0;
    geometry_order(k.score, at->n, k.near);
    int n = 0;
    while (n < m && isfinite(k.score[k.near[n]])) n++;
    for (int i = 0; i < n; i++) row[k.near[i]] = 1.0 / n;
    return 1;
}

const struct pl_reduce pl_reduce_multikrum = {
    .id = {"multikrum", "the mean of the m gradients with the best Krum scores",
           "Blanchard, El Mhamdi, Guerraoui, Stainer, NIPS 2017", multikrum_opts,
           sizeof(struct multikrum), PL_NEEDS_SERVER},
    .geometry = true,
    .needs = "2f+2 < K",
    .most = krum_most,
    .mix = multikrum_mix,
};

/* --- bulyan --------------------------------------------------------------------------------------
 * El Mhamdi, Guerraoui, Rouault, "The hidden vulnerability of distributed learning in Byzantium",
 * ICML 2018: chooses theta vectors by repeated Krum, then takes per coordinate the mean of the
 * theta-2f values closest to their median. With theta = n-2f the last choices see fewer vectors
 * than Krum requires and may be hostile; the coordinates are still bounded. */

enum { BULYAN_PAPER, BULYAN_CODE };

struct bulyan {
    struct pl_reduce_f f;
    int theta;
};

static const struct pl_opt bulyan_opts[] = {
    PL_REDUCE_F,
    PL_OPT_CHOICE(struct bulyan, theta, "paper", "paper|code",
                  "gradients selected by Krum: K-2f as in the paper, or K-2f-2 as in its code"),
    PL_OPT_END,
};

static int bulyan_most(const void *conf, int n) {
    (void)conf;
    return n >= 3 ? (n - 3) / 4 : -1;
}

static int bulyan_rows(const void *conf, int n) {
    (void)conf;
    return n;
}

static int bulyan_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    struct krum k = krum_new(at);
    int theta = at->n - 2 * at->f - (((const struct bulyan *)conf)->theta == BULYAN_CODE ? 2 : 0);
    if (theta < 1) theta = 1;
    memset(k.more, 0, (size_t)at->n * sizeof *k.more);
    for (int i = 0; i < theta; i++) {
        int best = krum_best(&k, at->n, at->n - i, at->f);
        if (best < 0 && i < theta - 1) return 0;
        for (int j = 0; best < 0; j++) /* the last remaining vector has no neighbour */
            if (k.more[j] == 0) best = j;
        k.more[best] = 1;
        row[(size_t)i * ((size_t)at->n + 1) + (size_t)best] = 1;
    }
    return theta;
}

static void bulyan_apply(const void *conf, const struct pl_reduce_at *at,
                         const pl_real *const *member, size_t n, pl_real *room, pl_real *out) {
    (void)conf;
    int drop = 2 * at->f < at->n ? 2 * at->f : at->n - 1;
    pl_column_around_median(at->n, drop, member, n, room, out);
}

const struct pl_reduce pl_reduce_bulyan = {
    .id = {"bulyan", "gradients selected one by one with Krum, then the mean around their median",
           "El Mhamdi, Guerraoui, Rouault, ICML 2018", bulyan_opts, sizeof(struct bulyan),
           PL_NEEDS_SERVER},
    .geometry = true,
    .needs = "4f+3 <= K",
    .most = bulyan_most,
    .rows = bulyan_rows,
    .mix = bulyan_mix,
    .apply = bulyan_apply,
};

/* --- centered clipping --------------------------------------------------------------------------
 * Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021:
 *   v += (1/n) sum (x_i - v) min(1, tau/||x_i - v||), a few rounds, from the last result. */

struct centered_clip {
    double tau;
    int64_t rounds;
};

static const struct pl_opt centered_clip_opts[] = {
    PL_OPT_REAL(struct centered_clip, tau, "10", 1e-300, 1e300, "clipping radius"),
    PL_OPT_INT(struct centered_clip, rounds, "1", 1, 100000, "clipping iterations per update"),
    PL_OPT_END,
};

static int centered_clip_mix(const void *conf, const struct pl_reduce_at *at, double *row) {
    const struct centered_clip *c = conf;
    row[at->n] = 1;
    for (int64_t t = 0; t < c->rounds; t++) {
        double aga = geometry_product(at, row, at->n + 1, at->room), left = 1;
        double *share = at->room + at->n + 1;
        for (int i = 0; i < at->n; i++) {
            double d = sqrt(geometry_from(at, i, at->room, aga));
            share[i] = (d > c->tau ? c->tau / d : 1) / at->n;
            left -= share[i];
        }
        for (int i = 0; i <= at->n; i++) row[i] = left * row[i] + (i < at->n ? share[i] : 0);
    }
    return 1;
}

const struct pl_reduce pl_reduce_centered_clip = {
    .id = {"centered-clip", "the previous result, moved towards each gradient by at most tau",
           "Karimireddy, He, Jaggi, ICML 2021", centered_clip_opts, sizeof(struct centered_clip),
           PL_NEEDS_SERVER},
    .geometry = true,
    .remembers = true,
    .mix = centered_clip_mix,
};
