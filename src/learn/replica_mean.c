#include "learn/replica_mean.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REPLICA_MEAN_BLOCK 1024 /* elements per pass */

bool pl_job_peers(const struct pl_job *job) {
    return ((const struct pl_policy *)job->policy.entry)->peers;
}

static void replica_mean_block(const struct pl_mixture *m, size_t from, size_t n,
                               float *restrict out) {
    memset(out, 0, n * sizeof *out);
    for (int t = 0; t < m->n; t++) {
        const float *restrict v = m->v[t] + from;
        float c = (float)m->c[t];
        for (size_t i = 0; i < n; i++) out[i] += c * v[i];
    }
}

void pl_mixture_make(const struct pl_mixture *m, size_t from, size_t n, float *out) {
    if (m->n == 1 && m->c[0] == 1) {
        memcpy(out, m->v[0] + from, n * sizeof *out);
        return;
    }
    for (size_t at = 0; at < n; at += REPLICA_MEAN_BLOCK)
        replica_mean_block(m, from + at, n - at < REPLICA_MEAN_BLOCK ? n - at : REPLICA_MEAN_BLOCK,
                           out + at);
}

/* What is averaged: models first, then inboxes. Those of workers that are gone are empty. */
static double replica_mean_part(const struct pl_replicas *b, int i, struct pl_combination *sum) {
    int n = pl_replicas_n_workers(b);
    return i < n ? pl_replicas_model(b, i, sum) : pl_replicas_inbox(b, i - n, sum);
}

void pl_replica_mean_needs(const struct pl_replicas *b, void (*see)(void *ctx, int id), void *ctx) {
    struct pl_combination sum;
    double all = 0;
    for (int i = 0; i < 2 * pl_replicas_n_workers(b); i++) {
        double weight = replica_mean_part(b, i, &sum);
        all += weight;
        for (int t = 0; weight > 0 && t < sum.n; t++) see(ctx, sum.term[t].vector);
    }
    const struct pl_combination *last = pl_replicas_last_model(b);
    for (int t = 0; !(all > 0) && t < last->n; t++) see(ctx, last->term[t].vector);
}

struct replica_mean {
    struct pl_mixture *part; /* [n] models, then inboxes */
    double *weight;
    int n, n_models;
    double all;
};

static void replica_mean_set(struct pl_mixture *m, const struct pl_combination *sum,
                             const float *(*vector)(void *ctx, int id), void *ctx) {
    m->n = sum->n;
    for (int t = 0; t < sum->n; t++) {
        m->c[t] = sum->term[t].c;
        m->v[t] = vector(ctx, sum->term[t].vector);
    }
}

static bool replica_mean_gather(const struct pl_replicas *b,
                                const float *(*vector)(void *ctx, int id), void *ctx,
                                struct replica_mean *m) {
    int most = 2 * pl_replicas_n_workers(b) + 1;
    struct pl_combination sum;
    m->part = malloc((size_t)most * sizeof *m->part);
    m->weight = malloc((size_t)most * sizeof *m->weight);
    if (!m->part || !m->weight) return false;
    for (int i = 0; i < most - 1; i++) {
        double weight = replica_mean_part(b, i, &sum);
        if (i == pl_replicas_n_workers(b)) m->n_models = m->n;
        if (!(weight > 0)) continue;
        replica_mean_set(&m->part[m->n], &sum, vector, ctx);
        m->weight[m->n++] = weight;
        m->all += weight;
    }
    if (m->n > 0) return true;
    replica_mean_set(&m->part[0], pl_replicas_last_model(b), vector, ctx);
    m->weight[m->n++] = m->all = 1;
    return true;
}

/* The mean of one block. Returns the sum of the models' squared distances from it. */
static double replica_mean_block_mean(const struct replica_mean *m, size_t from, size_t n,
                                      float *mean) {
    float x[REPLICA_MEAN_BLOCK];
    double sum[REPLICA_MEAN_BLOCK] = {0}, far = 0;
    for (int i = 0; i < m->n; i++) {
        double c = m->weight[i] / m->all;
        pl_mixture_make(&m->part[i], from, n, x);
        for (size_t k = 0; k < n; k++) sum[k] += c * (double)x[k];
    }
    for (size_t k = 0; k < n; k++) mean[k] = (float)sum[k];
    for (int i = 0; i < m->n_models; i++) {
        pl_mixture_make(&m->part[i], from, n, x);
        for (size_t k = 0; k < n; k++) far += ((double)x[k] - sum[k]) * ((double)x[k] - sum[k]);
    }
    return far;
}

int pl_replica_mean(const struct pl_replicas *b, const float *(*vector)(void *ctx, int id),
                    void *ctx, size_t dim, float *mean, double *consensus) {
    struct replica_mean m = {0};
    double far = 0;
    bool ok = replica_mean_gather(b, vector, ctx, &m);
    for (size_t at = 0; ok && at < dim; at += REPLICA_MEAN_BLOCK)
        far += replica_mean_block_mean(
            &m, at, dim - at < REPLICA_MEAN_BLOCK ? dim - at : REPLICA_MEAN_BLOCK, mean + at);
    *consensus = m.n_models > 0 ? sqrt(far / m.n_models) : NAN;
    free(m.part);
    free(m.weight);
    return ok ? PL_OK : PL_ENOMEM;
}
