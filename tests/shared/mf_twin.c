/* Sweeps written as simply as possible: what the fast ones are compared with. */
#include <math.h>

#include "mf_twin.h"

#define TWIN_POLL 4096 /* entries between two polls of `cancel` */

static void twin_plain(float *p, float *q, size_t n, float lr, float l2, float e) {
    for (size_t j = 0; j < n; j++) {
        float old = p[j];
        p[j] += lr * (e * q[j] - l2 * p[j]);
        q[j] += lr * (e * old - l2 * q[j]);
    }
}

/* LIBMF's step on n coordinates that share their G. */
static void twin_adaptive(float *p, float *q, size_t n, float lr, float l2, float e, float *g_p,
                          float *g_q) {
    float rate_p = lr / sqrtf(*g_p), rate_q = lr / sqrtf(*g_q), sum_p = 0, sum_q = 0;
    for (size_t j = 0; j < n; j++) {
        float slope_p = l2 * p[j] - e * q[j], slope_q = l2 * q[j] - e * p[j];
        p[j] -= rate_p * slope_p;
        q[j] -= rate_q * slope_q;
        sum_p += slope_p * slope_p;
        sum_q += slope_q * slope_q;
    }
    if (n) *g_p += sum_p / (float)n;
    if (n) *g_q += sum_q / (float)n;
}

static void twin_adaptive_bias(float *tail, float lr, float l2, float e) {
    float slope = l2 * tail[PL_MF_BIAS] - e;
    tail[PL_MF_BIAS] -= lr / sqrtf(tail[PL_MF_G_BIAS]) * slope;
    tail[PL_MF_G_BIAS] += slope * slope;
}

static float twin_step(const struct pl_mf *m, enum pl_mf_step step, float lr, bool first, float *p,
                       float *q, float rating) {
    float *tail_p = p + m->width, *tail_q = q + m->width, sum = 0;
    size_t n_slow = m->k < PL_MF_SLOW ? m->k : PL_MF_SLOW;
    for (size_t j = 0; j < m->k; j++) sum += p[j] * q[j];
    float e = rating - (m->mean + tail_p[PL_MF_BIAS] + tail_q[PL_MF_BIAS] + sum);
    if (step == PL_MF_PLAIN) {
        twin_plain(p, q, m->k, lr, m->l2, e);
        tail_p[PL_MF_BIAS] += lr * (e - m->l2 * tail_p[PL_MF_BIAS]);
        tail_q[PL_MF_BIAS] += lr * (e - m->l2 * tail_q[PL_MF_BIAS]);
        return e;
    }
    twin_adaptive(p, q, n_slow, lr, m->l2, e, tail_p + PL_MF_G_SLOW, tail_q + PL_MF_G_SLOW);
    if (!first)
        twin_adaptive(p + n_slow, q + n_slow, m->k - n_slow, lr, m->l2, e, tail_p + PL_MF_G_FAST,
                      tail_q + PL_MF_G_FAST);
    twin_adaptive_bias(tail_p, lr, m->l2, e);
    twin_adaptive_bias(tail_q, lr, m->l2, e);
    return e;
}

struct twin {
    const struct pl_mf *m;
    enum pl_mf_step step;
    float lr;
    bool first;
    float *p, *q;
    size_t user[2]; /* of the first half of the block, of the second */
    double sum;
};

static void twin_entry(struct twin *t, int half, const struct pl_grid_entry *e) {
    uint32_t by = e->where >> 24, item = e->where & PL_GRID_ITEM;
    t->user[half] += by == PL_GRID_FAR ? item : by;
    if (by == PL_GRID_FAR) return;
    float error = twin_step(t->m, t->step, t->lr, t->first, t->p + t->user[half] * t->m->row,
                            t->q + item * t->m->row, e->value);
    t->sum += (double)error * (double)error;
}

/* Plain steps follow the order of the entries. Adaptive ones take an entry of the first half, one
 * of the second, and so on. */
int mf_sweep_plain(const struct pl_model *base, const struct pl_grid *grid, int row, int col,
                   enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                   const struct pl_cancel *cancel) {
    struct twin t = {(const struct pl_mf *)base, step, (float)lr, first, p, q, {0, 0}, 0};
    uint32_t user;
    size_t n, size = pl_grid_size(grid, row, col), half = pl_grid_half(grid, row, col, &user);
    const struct pl_grid_entry *entry = pl_grid_block(grid, row, col, &n);
    if (step == PL_MF_PLAIN) half = n;
    t.user[1] = user;
    for (size_t i = 0; i < half || half + i < n; i++) {
        if (i % TWIN_POLL == 0 && pl_cancelled(cancel)) return PL_ECANCELLED;
        if (i < half) twin_entry(&t, 0, &entry[i]);
        if (half + i < n) twin_entry(&t, 1, &entry[half + i]);
    }
    *loss = size ? t.sum / (double)size : 0;
    return PL_OK;
}
