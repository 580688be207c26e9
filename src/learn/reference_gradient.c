#include "learn/reference_gradient.h"

#include <stdlib.h>

#include "core/filter.h"

#define REFERENCE_SEED 1 /* the same samples in every run */

struct pl_reference {
    const struct pl_job *job;
    uint32_t n;
    float *x;
    uint16_t *label;
    float *target; /* NULL: the data has none */
    uint32_t *row;
    float *scratch;
};

/* The first n of a shuffle of [0, n_all). */
static uint32_t *reference_draw(uint32_t n_all, uint32_t n) {
    uint32_t *row = malloc(((size_t)n_all + 1) * sizeof *row);
    struct pl_rng rng;
    if (!row) return NULL;
    pl_rng_init(&rng, REFERENCE_SEED, PL_STREAM_TRUST, 0, 0);
    for (uint32_t i = 0; i < n_all; i++) row[i] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = i + pl_rng_below(&rng, n_all - i), other = row[j];
        row[j] = row[i];
        row[i] = other;
    }
    return row;
}

int pl_reference_new(const struct pl_job *job, struct pl_reference **out) {
    uint32_t n = pl_filter_trusts(&job->filter);
    *out = NULL;
    if (n == 0 || job->model->kind->by_clients) return PL_OK;
    struct pl_reference *t = calloc(1, sizeof *t);
    if (!t) return PL_ENOMEM;
    t->job = job;
    t->n = n < job->data->n_train ? n : job->data->n_train;
    t->x = malloc(((size_t)t->n * job->data->dim + 1) * sizeof *t->x);
    t->label = malloc(((size_t)t->n + 1) * sizeof *t->label);
    t->scratch = malloc((job->model->kind->scratch(job->model, t->n) + 1) * sizeof *t->scratch);
    uint32_t *row = reference_draw(job->data->n_train, t->n);
    if (job->data->has_targets) t->target = malloc(((size_t)t->n + 1) * sizeof *t->target);
    bool ok = t->x && t->label && t->scratch && row && (t->target || !job->data->has_targets);
    if (ok) pl_data_rows(job->data, false, row, t->n, t->x, t->label);
    if (ok && t->target) pl_data_targets(job->data, false, row, t->n, t->target);
    t->row = row;
    if (!ok) {
        pl_reference_free(t);
        return PL_ENOMEM;
    }
    *out = t;
    return PL_OK;
}

void pl_reference_free(struct pl_reference *t) {
    if (!t) return;
    free(t->x);
    free(t->label);
    free(t->target);
    free(t->row);
    free(t->scratch);
    free(t);
}

int pl_reference_gradient(void *reference, const float *w, float *out) {
    struct pl_reference *t = reference;
    struct pl_batch b = {.n = t->n,
                         .x = t->x,
                         .label = t->label,
                         .target = t->target,
                         .row = t->row,
                         .seed = REFERENCE_SEED};
    double loss;
    return t->job->model->kind->gradient(t->job->model, w, &b, out, &loss, t->scratch, NULL);
}
