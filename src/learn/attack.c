#include "learn/attack.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/needs.h"
#include "base/rng.h"
#include "base/special.h"
#include "base/status.h"

/* Attacks are on whole gradients, and are made where one server has them. */
#define ATTACK_NEEDS (PL_NEEDS_MODEL | PL_NEEDS_SERVER | PL_NEEDS_ONE_SERVER)

/* … in the open group, after their arrival. */
#define ATTACK_TOGETHER (ATTACK_NEEDS | PL_NEEDS_NO_FILTER)

#define ATTACK_BLOCK 1024

#define OPT_F(help) PL_OPT_COUNT(struct pl_attack_who, f, "1", 0, 1e6, help)
#define OPT_WORKERS OPT_F("hostile workers: a number, or a share of all (25%)")

#define PAPER_XIE "Xie, Koyejo, Gupta, arXiv 1802.10116 (Generalized Byzantine-tolerant SGD)"

static float attack_finite(double x) {
    return (float)fmax(-FLT_MAX, fmin(FLT_MAX, x));
}

/* --- alone ------------------------------------------------------------------------------- */

struct gaussian {
    struct pl_attack_who who;
    double sigma;
};

static const struct pl_opt gaussian_opts[] = {
    OPT_WORKERS,
    PL_OPT_REAL(struct gaussian, sigma, "200", 0, 1e30, "standard deviation of each coordinate"),
    PL_OPT_END,
};

static void gaussian_alone(const void *conf, const struct pl_attack_at *at, float *v, size_t n) {
    const struct gaussian *c = conf;
    struct pl_rng rng;
    pl_rng_init(&rng, at->seed, PL_STREAM_ATTACK, at->worker, at->task);
    for (size_t i = 0; i < n; i++) v[i] = attack_finite(c->sigma * pl_rng_normal(&rng));
}

static const struct pl_attack attack_gaussian = {
    .id = {"gaussian", "noise in place of a gradient", PAPER_XIE, gaussian_opts,
           sizeof(struct gaussian), ATTACK_NEEDS},
    .alone = gaussian_alone,
};

/* Bits 22, 29, 30 and 31 of single precision, in the first coordinates. Each coordinate is attacked
 * at f workers, the next one at others, so that no coordinate has more than f bad values and all
 * workers have some. */
struct bitflip {
    struct pl_attack_who who;
    int64_t coordinates;
};

static const struct pl_opt bitflip_opts[] = {
    OPT_F("workers attacked per coordinate, different ones for the next"),
    PL_OPT_INT(struct bitflip, coordinates, "1000", 1, 1e12,
               "number of leading coordinates attacked"),
    PL_OPT_END,
};

static void bitflip_alone(const void *conf, const struct pl_attack_at *at, float *v, size_t n) {
    const struct bitflip *c = conf;
    size_t p = (size_t)at->n_workers,
           most = n < (size_t)c->coordinates ? n : (size_t)c->coordinates;
    for (size_t i = 0; i < most; i++) {
        if ((at->worker + p - i % p) % p >= (size_t)c->who.f) continue;
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        bits ^= UINT32_C(1) << 22 | UINT32_C(1) << 29 | UINT32_C(1) << 30 | UINT32_C(1) << 31;
        memcpy(&v[i], &bits, sizeof bits);
        if (!isfinite(v[i])) v[i] = copysignf(FLT_MAX, v[i]);
    }
}

static const struct pl_attack attack_bitflip = {
    .id = {"bitflip", "flips four bits of the first coordinates, for a few workers in each",
           PAPER_XIE, bitflip_opts, sizeof(struct bitflip), ATTACK_NEEDS},
    .anybody = true,
    .alone = bitflip_alone,
};

/* The vector is divided among `servers`; f of them corrupt values at random, from any worker. */
struct gambler {
    struct pl_attack_who who;
    int64_t servers;
    double p, scale;
};

static const struct pl_opt gambler_opts[] = {
    OPT_F("number of corrupting servers"),
    PL_OPT_INT(struct gambler, servers, "20", 1, 1e6, "number of servers that share the vector"),
    PL_OPT_REAL(struct gambler, p, "0.0005", 0, 1, "probability that a value is corrupted"),
    PL_OPT_REAL(struct gambler, scale, "-1e20", -1e30, 1e30, "factor applied to a corrupted value"),
    PL_OPT_END,
};

static void gambler_alone(const void *conf, const struct pl_attack_at *at, float *v, size_t n) {
    const struct gambler *c = conf;
    struct pl_rng rng;
    size_t most = n * (size_t)c->who.f / (size_t)c->servers;
    if (!(c->p > 0)) return;
    pl_rng_init(&rng, at->seed, PL_STREAM_ATTACK, at->worker, at->task);
    /* the distance to the next corrupted value is geometric */
    double log_not = log1p(-c->p);
    for (size_t i = 0; i < (most < n ? most : n); i++) {
        double skip = c->p < 1 ? floor(-pl_rng_exp(&rng) / log_not) : 0;
        if (skip >= (double)(n - i)) return;
        i += (size_t)skip;
        if (i >= most || i >= n) return;
        v[i] = attack_finite(c->scale * v[i]);
    }
}

static const struct pl_attack attack_gambler = {
    .id = {"gambler", "one of many servers corrupts a value now and then, from any worker",
           PAPER_XIE, gambler_opts, sizeof(struct gambler), ATTACK_NEEDS},
    .anybody = true,
    .alone = gambler_alone,
};

struct signflip {
    struct pl_attack_who who;
    double scale;
};

static const struct pl_opt signflip_opts[] = {
    OPT_WORKERS,
    PL_OPT_REAL(struct signflip, scale, "-1", -1e30, 1e30,
                "factor applied to the gradient (-10 in the Kardam and Zeno++ papers)"),
    PL_OPT_END,
};

static void signflip_alone(const void *conf, const struct pl_attack_at *at, float *v, size_t n) {
    double scale = ((const struct signflip *)conf)->scale;
    (void)at;
    for (size_t i = 0; i < n; i++) v[i] = attack_finite(scale * v[i]);
}

static const struct pl_attack attack_signflip = {
    .id = {"signflip", "the gradient, negated",
           "Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, ICML 2018 (Kardam); Xie, Koyejo, "
           "Gupta, ICML 2020 (Zeno++)",
           signflip_opts, sizeof(struct signflip), ATTACK_NEEDS},
    .alone = signflip_alone,
};

struct plain {
    struct pl_attack_who who;
};

static const struct pl_opt plain_opts[] = {OPT_WORKERS, PL_OPT_END};

static const struct pl_attack attack_labelflip = {
    .id = {"labelflip", "an honest gradient on reversed labels (class c becomes the last minus c)",
           "Yin et al., ICML 2018", plain_opts, sizeof(struct plain),
           ATTACK_NEEDS | PL_NEEDS_LABELS},
    .labels = true,
};

static void inf_alone(const void *conf, const struct pl_attack_at *at, float *v, size_t n) {
    (void)conf;
    (void)at;
    for (size_t i = 0; i < n; i++) v[i] = INFINITY;
}

static const struct pl_attack attack_inf = {
    .id = {"inf", "infinity in every coordinate", "", plain_opts, sizeof(struct plain),
           ATTACK_NEEDS},
    .alone = inf_alone,
};

static void nan_alone(const void *conf, const struct pl_attack_at *at, float *v, size_t n) {
    (void)conf;
    (void)at;
    for (size_t i = 0; i < n; i++) v[i] = NAN;
}

static const struct pl_attack attack_nan = {
    .id = {"nan", "NaN in every coordinate", "", plain_opts, sizeof(struct plain), ATTACK_NEEDS},
    .alone = nan_alone,
};

/* --- together ---------------------------------------------------------------------------- */

/* Sums over the honest members, in double. */
static void attack_sum(const float *const *honest, int n_honest, size_t from, size_t n,
                       double *sum) {
    memset(sum, 0, n * sizeof *sum);
    for (int h = 0; h < n_honest; h++)
        for (size_t i = 0; i < n; i++) sum[i] += honest[h][from + i];
}

struct omniscient {
    struct pl_attack_who who;
    double scale;
};

static const struct pl_opt omniscient_opts[] = {
    OPT_WORKERS,
    PL_OPT_REAL(struct omniscient, scale, "-1e20", -1e30, 1e30,
                "factor applied to the sum of the honest gradients"),
    PL_OPT_END,
};

static void omniscient_together(const void *conf, const float *const *honest, int n_honest,
                                int n_group, size_t from, size_t n, float *out) {
    double sum[ATTACK_BLOCK], scale = ((const struct omniscient *)conf)->scale;
    (void)n_group;
    attack_sum(honest, n_honest, from, n, sum);
    for (size_t i = 0; i < n; i++) out[i] = attack_finite(scale * sum[i]);
}

static const struct pl_attack attack_omniscient = {
    .id = {"omniscient", "the sum of the honest gradients, negated and enormous", PAPER_XIE,
           omniscient_opts, sizeof(struct omniscient), ATTACK_TOGETHER},
    .together = omniscient_together,
};

struct ipm {
    struct pl_attack_who who;
    double eps;
};

static const struct pl_opt ipm_opts[] = {
    OPT_WORKERS,
    PL_OPT_REAL(
        struct ipm, eps, "0.1", 0, 1e30,
        "factor applied to the negative mean: 0.1 against medians and Krum, 10 against the mean"),
    PL_OPT_END,
};

static void ipm_together(const void *conf, const float *const *honest, int n_honest, int n_group,
                         size_t from, size_t n, float *out) {
    double sum[ATTACK_BLOCK], scale = -((const struct ipm *)conf)->eps / n_honest;
    (void)n_group;
    attack_sum(honest, n_honest, from, n, sum);
    for (size_t i = 0; i < n; i++) out[i] = attack_finite(scale * sum[i]);
}

static const struct pl_attack attack_ipm = {
    .id = {"ipm", "inner-product manipulation: the honest mean, negated and scaled",
           "Xie, Koyejo, Gupta, UAI 2019 (Fall of Empires)", ipm_opts, sizeof(struct ipm),
           ATTACK_TOGETHER},
    .together = ipm_together,
};

struct alie {
    struct pl_attack_who who;
    double z;
};

static const struct pl_opt alie_opts[] = {
    OPT_WORKERS,
    PL_OPT_REAL(struct alie, z, "0", 0, 100,
                "standard deviations below the mean (0: the most that stays hidden)"),
    PL_OPT_END,
};

/* The largest z with n/2 + 1 - f honest members further out. */
static double alie_z(int n, int n_honest) {
    int f = n - n_honest, s = n / 2 + 1 - f;
    double share = (double)(n_honest - s) / n_honest;
    return pl_normal_quantile(fmin(fmax(share, 1e-3), 1 - 1e-3));
}

static void alie_together(const void *conf, const float *const *honest, int n_honest, int n_group,
                          size_t from, size_t n, float *out) {
    double sum[ATTACK_BLOCK], square[ATTACK_BLOCK] = {0}, z = ((const struct alie *)conf)->z;
    if (!(z > 0)) z = alie_z(n_group, n_honest);
    attack_sum(honest, n_honest, from, n, sum);
    for (int h = 0; h < n_honest; h++) {
        for (size_t i = 0; i < n; i++) {
            double d = honest[h][from + i] - sum[i] / n_honest;
            square[i] += d * d;
        }
    }
    for (size_t i = 0; i < n; i++)
        out[i] = attack_finite(sum[i] / n_honest - z * sqrt(square[i] / n_honest));
}

static const struct pl_attack attack_alie = {
    .id = {"alie", "'a little is enough': a shift just within the spread of the honest gradients",
           "Baruch, Baruch, Goldberg, NeurIPS 2019", alie_opts, sizeof(struct alie),
           ATTACK_TOGETHER},
    .together = alie_together,
};

static void mimic_together(const void *conf, const float *const *honest, int n_honest, int n_group,
                           size_t from, size_t n, float *out) {
    (void)conf;
    (void)n_honest;
    (void)n_group;
    memcpy(out, honest[0] + from, n * sizeof *out);
}

static const struct pl_attack attack_mimic = {
    .id = {"mimic", "all copy the first honest gradient of the group",
           "Karimireddy, He, Jaggi, ICLR 2022", plain_opts, sizeof(struct plain), ATTACK_TOGETHER},
    .together = mimic_together,
};

/* --- the family -------------------------------------------------------------------------- */

static const struct pl_entry *const attack_table[] = {
    &attack_gaussian.id, &attack_omniscient.id, &attack_bitflip.id, &attack_gambler.id,
    &attack_signflip.id, &attack_labelflip.id,  &attack_alie.id,    &attack_ipm.id,
    &attack_mimic.id,    &attack_inf.id,        &attack_nan.id,     NULL};

const struct pl_family pl_attack_family = {"attack", "what do hostile workers send?", attack_table};

bool pl_attack_hostile(const struct pl_attack *a, const void *conf, int worker, int n_workers) {
    if (!a) return false;
    int f = ((const struct pl_attack_who *)conf)->f;
    return a->anybody ? f > 0 : worker >= n_workers - f;
}

static int attack_forge(const struct pl_attack *a, const void *conf, const float *const *honest,
                        int n_honest, const struct pl_group_vector *member, int n, int n_workers,
                        size_t dim) {
    float out[ATTACK_BLOCK];
    for (size_t from = 0; from < dim; from += ATTACK_BLOCK) {
        size_t length = dim - from < ATTACK_BLOCK ? dim - from : ATTACK_BLOCK;
        a->together(conf, honest, n_honest, n, from, length, out);
        for (int m = 0; m < n; m++)
            if (pl_attack_hostile(a, conf, member[m].worker, n_workers))
                memcpy(member[m].vector + from, out, length * sizeof *out);
    }
    return PL_OK;
}

int pl_attack_group(const struct pl_attack *a, const void *conf, int n_workers,
                    const struct pl_group_vector *member, int n, size_t dim) {
    if (!a || !a->together) return PL_OK;
    const float **honest = malloc((size_t)n * sizeof *honest);
    if (!honest) return PL_ENOMEM;
    int n_honest = 0;
    for (int m = 0; m < n; m++)
        if (!pl_attack_hostile(a, conf, member[m].worker, n_workers))
            honest[n_honest++] = member[m].vector;
    /* without an honest member there is nothing to imitate, and they send their own results */
    int rc = PL_OK;
    if (n_honest > 0 && n_honest < n)
        rc = attack_forge(a, conf, honest, n_honest, member, n, n_workers, dim);
    free(honest);
    return rc;
}
