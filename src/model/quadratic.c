/* A noisy quadratic, for which theory can be checked exactly:
 *
 *     f(w) = 1/2 sum_i lambda_i w_i^2,     lambda from 1/cond to 1, evenly spaced in the logarithm
 *
 * so L = 1, c = 1/cond and f* = 0 at w = 0. A gradient over a mini-batch of n adds to every
 * coordinate noise * N(0, 1) / sqrt(n dim): its variance E||noise||^2 is noise^2 / n, whatever the
 * dimension (the sigma^2 / m of the bounds). The loss reported is f itself, without noise.
 *
 * Up to 10^8 parameters are allowed, for benchmarks with large vectors, so lambda is not stored:
 * lambda_(b B + i) = coarse_b * fine_i, from two short tables. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "model/model.h"

#define QUADRATIC_BLOCK 4096 /* B */

struct quadratic_conf {
    int64_t dim;
    double cond, noise, start;
};

struct quadratic {
    struct pl_model base;
    struct quadratic_conf conf;
    size_t n_blocks;
    float *coarse;               /* [n_blocks] */
    float fine[QUADRATIC_BLOCK]; /* fine[0] = 1 */
};

static int quadratic_open(const void *conf, const struct pl_data *data, struct pl_model **out,
                          struct pl_why *why) {
    struct quadratic *m = calloc(1, sizeof *m);
    (void)data;
    if (!m) return pl_fail(why, PL_ENOMEM, "out of memory");
    m->conf = *(const struct quadratic_conf *)conf;
    m->base.dim = (size_t)m->conf.dim;
    m->n_blocks = (m->base.dim + QUADRATIC_BLOCK - 1) / QUADRATIC_BLOCK;
    m->coarse = malloc(m->n_blocks * sizeof *m->coarse);
    if (!m->coarse) {
        free(m);
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    /* lambda_i = cond^(i / (dim - 1) - 1); 1 if dim is 1 */
    double low = m->base.dim > 1 ? 1.0 / m->conf.cond : 1.0;
    double step = m->base.dim > 1 ? log(m->conf.cond) / (double)(m->base.dim - 1) : 0.0;
    for (size_t b = 0; b < m->n_blocks; b++)
        m->coarse[b] = (float)(low * exp(step * (double)(b * QUADRATIC_BLOCK)));
    for (size_t i = 0; i < QUADRATIC_BLOCK; i++) m->fine[i] = (float)exp(step * (double)i);
    *out = &m->base;
    return PL_OK;
}

static void quadratic_close(struct pl_model *base) {
    struct quadratic *m = (struct quadratic *)base;
    free(m->coarse);
    free(m);
}

static void quadratic_init(const struct pl_model *base, uint64_t seed, float *w) {
    const struct quadratic *m = (const struct quadratic *)base;
    (void)seed;
    for (size_t i = 0; i < base->dim; i++) w[i] = (float)m->conf.start;
}

static size_t quadratic_scratch(const struct pl_model *base, uint32_t n) {
    (void)base;
    (void)n;
    return 0;
}

/* Twice the contribution of n coordinates to f; g [n], if not NULL, receives lambda w. */
static double quadratic_block(const float *restrict w, const float *restrict fine, float coarse,
                              size_t n, float *restrict g) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        float slope = coarse * fine[i] * w[i];
        if (g) g[i] = slope;
        sum += (double)slope * w[i];
    }
    return sum;
}

static int quadratic_gradient(const struct pl_model *base, const float *w,
                              const struct pl_batch *batch, float *g, double *loss, float *scratch,
                              const struct pl_cancel *cancel) {
    const struct quadratic *m = (const struct quadratic *)base;
    double sum = 0, scale = m->conf.noise / sqrt((double)batch->n * (double)base->dim);
    struct pl_rng rng;
    (void)scratch;
    pl_rng_init(&rng, batch->seed, PL_STREAM_NOISE, batch->worker, batch->batch_no);
    for (size_t b = 0, at = 0; b < m->n_blocks; b++, at += QUADRATIC_BLOCK) {
        size_t n = base->dim - at < QUADRATIC_BLOCK ? base->dim - at : QUADRATIC_BLOCK;
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        sum += quadratic_block(w + at, m->fine, m->coarse[b], n, g + at);
        if (scale > 0)
            for (size_t i = 0; i < n; i++) g[at + i] += (float)(scale * pl_rng_normal(&rng));
    }
    *loss = sum / 2;
    return PL_OK;
}

static void quadratic_score(const struct pl_model *base, const float *w,
                            const struct pl_batch *batch, float *scratch, double *loss,
                            uint32_t *n_right, const struct pl_cancel *cancel) {
    const struct quadratic *m = (const struct quadratic *)base;
    double sum = 0;
    (void)scratch;
    (void)n_right;
    for (size_t b = 0, at = 0; b < m->n_blocks; b++, at += QUADRATIC_BLOCK) {
        size_t n = base->dim - at < QUADRATIC_BLOCK ? base->dim - at : QUADRATIC_BLOCK;
        if (pl_cancelled(cancel)) return;
        sum += quadratic_block(w + at, m->fine, m->coarse[b], n, NULL);
    }
    *loss += sum / 2 * batch->n;
}

static const struct pl_opt quadratic_opts[] = {
    PL_OPT_INT(struct quadratic_conf, dim, "100", 1, 1e8, "number of parameters"),
    PL_OPT_REAL(struct quadratic_conf, cond, "10", 1, 1e12,
                "condition number; the largest curvature is 1"),
    PL_OPT_REAL(struct quadratic_conf, noise, "1", 0, 1e12,
                "standard deviation of one sample's gradient, over all coordinates"),
    PL_OPT_REAL(struct quadratic_conf, start, "1", -1e12, 1e12, "initial value of every parameter"),
    PL_OPT_END,
};

const struct pl_model_kind pl_model_quadratic = {
    .id = {"quadratic", "a quadratic bowl with gaussian noise; needs no data", "", quadratic_opts,
           sizeof(struct quadratic_conf), 0},
    .wants_data = false,
    .classifies = false,
    .open = quadratic_open,
    .close = quadratic_close,
    .init = quadratic_init,
    .scratch = quadratic_scratch,
    .gradient = quadratic_gradient,
    .score = quadratic_score,
};
