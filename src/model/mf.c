/* mf: factorises a matrix of ratings into two thin matrices, with biases.
 *
 * Objective, as in Li et al. and earlier papers:
 *
 *     sum over ratings of e^2 + l2 (|p_u|^2 + |q_v|^2 + a_u^2 + b_v^2),   e = r - prediction
 *
 * gradient() is that of the mean over a mini-batch, so every dense method trains this model. The
 * reported loss is the squared error alone, whose root is the RMSE; like weight decay, the penalty
 * is not part of it. The classical step p += lr (e q - l2 p) omits the factor 2 of the derivative,
 * so a dense method needs half the rate for the same step.
 *
 * Sums over factors are in double precision here. The fast sweep is in mf_sweep.c. */
#include "model/mf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/needs.h"
#include "base/rng.h"
#include "model/dense.h"

struct mf_conf {
    int64_t k;
    double l2;
};

const struct pl_model_kind pl_model_mf;

const struct pl_mf *pl_mf(const struct pl_model *m) {
    return m->kind == &pl_model_mf ? (const struct pl_mf *)m : NULL;
}

static int mf_open(const void *conf, const struct pl_data *data, struct pl_model **out,
                   struct pl_why *why) {
    const struct mf_conf *c = conf;
    if (!data->ratings)
        return pl_fail(why, PL_EUSAGE,
                       "model mf needs ratings, but this data set has none; use "
                       "ratings:FILE or lowrank");
    size_t width = ((size_t)c->k + 3) / 4 * 4, row = width + PL_MF_TAIL;
    uint64_t rows = (uint64_t)data->ratings->n_users + data->ratings->n_items;
    if (rows * row > PL_MODEL_DIM_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "%llu users and items with %d factors make more than %llu parameters; use a "
                       "smaller k",
                       (unsigned long long)rows, (int)c->k, (unsigned long long)PL_MODEL_DIM_MAX);
    struct pl_mf *m = calloc(1, sizeof *m);
    if (!m) return pl_fail(why, PL_ENOMEM, "out of memory");
    m->base.dim = (size_t)rows * row;
    m->ratings = data->ratings;
    m->k = (size_t)c->k;
    m->width = width;
    m->row = row;
    m->mean = (float)data->ratings->mean;
    m->l2 = (float)c->l2;
    *out = &m->base;
    return PL_OK;
}

/* Row i of users (0) or items (1): factors from U(0, 1) / sqrt(k), zero bias, every G 1. */
static void mf_init_row(const struct pl_mf *m, uint64_t seed, uint32_t side, uint32_t i, float *w) {
    struct pl_rng rng;
    double scale = 1 / sqrt((double)m->k);
    pl_rng_init(&rng, seed, PL_STREAM_INIT, side, i);
    for (size_t j = 0; j < m->width; j++)
        w[j] = j < m->k ? (float)(scale * pl_rng_unit(&rng)) : 0.0f;
    w[m->width + PL_MF_BIAS] = 0;
    for (size_t j = PL_MF_G_SLOW; j < PL_MF_TAIL; j++) w[m->width + j] = 1;
}

static void mf_init(const struct pl_model *base, uint64_t seed, float *w) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    for (uint32_t u = 0; u < m->ratings->n_users; u++, w += m->row) mf_init_row(m, seed, 0, u, w);
    for (uint32_t v = 0; v < m->ratings->n_items; v++, w += m->row) mf_init_row(m, seed, 1, v, w);
}

static size_t mf_scratch(const struct pl_model *m, uint32_t n) {
    (void)m;
    (void)n;
    return 0;
}

/* The offsets of the user and item rows of a sample (user, item, rating). */
static void mf_rows(const struct pl_mf *m, const float *x, size_t *user, size_t *item) {
    *user = (size_t)x[0] * m->row;
    *item = ((size_t)m->ratings->n_users + (size_t)x[1]) * m->row;
}

/* r - prediction */
static double mf_error(const struct pl_mf *m, const float *p, const float *q, float rating) {
    double sum = m->ratings->mean;
    sum += (double)p[m->width + PL_MF_BIAS] + (double)q[m->width + PL_MF_BIAS];
    for (size_t j = 0; j < m->k; j++) sum += (double)p[j] * (double)q[j];
    return rating - sum;
}

static int mf_gradient(const struct pl_model *base, const float *w, const struct pl_batch *batch,
                       float *g, double *loss, float *scratch, const struct pl_cancel *cancel) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    double sum = 0, scale = 2.0 / batch->n, l2 = (double)m->l2;
    (void)scratch;
    if (pl_cancelled(cancel)) return PL_ECANCELLED;
    memset(g, 0, base->dim * sizeof *g);
    if (pl_cancelled(cancel)) return PL_ECANCELLED;
    for (uint32_t i = 0; i < batch->n; i++) {
        const float *x = batch->x + 3 * (size_t)i;
        size_t user, item, bias = m->width + PL_MF_BIAS;
        mf_rows(m, x, &user, &item);
        const float *p = w + user, *q = w + item;
        float *gp = g + user, *gq = g + item;
        double e = mf_error(m, p, q, x[2]);
        for (size_t j = 0; j < m->k; j++) {
            gp[j] += (float)(scale * (l2 * (double)p[j] - e * (double)q[j]));
            gq[j] += (float)(scale * (l2 * (double)q[j] - e * (double)p[j]));
        }
        gp[bias] += (float)(scale * (l2 * (double)p[bias] - e));
        gq[bias] += (float)(scale * (l2 * (double)q[bias] - e));
        sum += e * e;
    }
    *loss = sum / batch->n;
    return PL_OK;
}

static void mf_score(const struct pl_model *base, const float *w, const struct pl_batch *batch,
                     float *scratch, double *loss, uint32_t *n_right,
                     const struct pl_cancel *cancel) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    double sum = 0;
    (void)scratch;
    (void)n_right;
    (void)cancel;
    for (uint32_t i = 0; i < batch->n; i++) {
        const float *x = batch->x + 3 * (size_t)i;
        size_t user, item;
        mf_rows(m, x, &user, &item);
        double e = mf_error(m, w + user, w + item, x[2]);
        sum += e * e;
    }
    *loss += sum;
}

/* A user or item that is not known has no factors and no bias. */
static void mf_predict(const struct pl_model *base, const float *w, const struct pl_batch *batch,
                       float *scratch, float *out) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    size_t bias = m->width + PL_MF_BIAS;
    (void)scratch;
    for (uint32_t i = 0; i < batch->n; i++) {
        const float *x = batch->x + 3 * (size_t)i;
        bool user = x[0] < (float)m->ratings->n_users, item = x[1] < (float)m->ratings->n_items;
        const float *p = user ? w + (size_t)x[0] * m->row : NULL;
        const float *q = item ? w + (m->ratings->n_users + (size_t)x[1]) * m->row : NULL;
        if (user && item)
            out[i] = (float)-mf_error(m, p, q, 0);
        else
            out[i] = (float)(m->ratings->mean + (user ? (double)p[bias] : 0) +
                             (item ? (double)q[bias] : 0));
    }
}

static bool mf_tensor(const struct pl_model *base, int i, struct pl_model_tensor *out) {
    const struct pl_mf *m = (const struct pl_mf *)base;
    size_t users = m->ratings->n_users, items = m->ratings->n_items;
    if (i == 0)
        *out = (struct pl_model_tensor){.name = "users", .n_dims = 2, .shape = {users, m->row}};
    else if (i == 1)
        *out = (struct pl_model_tensor){
            .name = "items", .offset = users * m->row, .n_dims = 2, .shape = {items, m->row}};
    return i == 0 || i == 1;
}

static const struct pl_opt mf_opts[] = {
    PL_OPT_INT(struct mf_conf, k, "40", 1, 1024, "number of factors"),
    PL_OPT_REAL(struct mf_conf, l2, "0.05", 0, 1e3, "L2 penalty on factors and biases, per rating"),
    PL_OPT_END,
};

const struct pl_model_kind pl_model_mf = {
    .id = {"mf", "matrix factorisation with biases; learns from ratings",
           "Koren, Bell, Volinsky, Matrix factorization techniques for recommender "
           "systems, IEEE Computer 2009",
           mf_opts, sizeof(struct mf_conf), PL_NEEDS_RATINGS},
    .wants_data = true,
    .classifies = false,
    .parts = true,
    .rates = true,
    .method = "fpsgd",
    .open = mf_open,
    .init = mf_init,
    .scratch = mf_scratch,
    .gradient = mf_gradient,
    .score = mf_score,
    .predict = mf_predict,
    .tensor = mf_tensor,
};
