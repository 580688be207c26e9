#include "model/callback.h"

#include <stdlib.h>
#include <string.h>

struct callback {
    struct pl_model model;
    struct pl_model_kind kind; /* describes this function alone */
    struct pl_function f;
    uint32_t data_dim;
};

static int callback_cancelled(const void *token) {
    return pl_cancelled(token);
}

static struct pl_samples callback_samples(const struct callback *c, const struct pl_batch *b,
                                          const struct pl_cancel *cancel) {
    return (struct pl_samples){.n = b->n,
                               .dim = c->data_dim,
                               .x = b->x,
                               .label = b->label,
                               .target = b->target,
                               .seed = b->seed,
                               .batch_no = b->batch_no,
                               .worker = b->worker,
                               .row = b->row,
                               .test = b->test,
                               .cancelled = callback_cancelled,
                               .token = cancel};
}

static void callback_init(const struct pl_model *m, uint64_t seed, float *w) {
    const struct callback *c = (const struct callback *)m;
    memset(w, 0, m->dim * sizeof *w);
    if (c->f.init) c->f.init(c->f.ctx, seed, w);
}

/* without a score function, score() computes a gradient and needs room for it */
static size_t callback_scratch(const struct pl_model *m, uint32_t n) {
    (void)n;
    return ((const struct callback *)m)->f.score ? 0 : m->dim;
}

static int callback_gradient(const struct pl_model *m, const float *w, const struct pl_batch *b,
                             float *g, double *loss, float *scratch,
                             const struct pl_cancel *cancel) {
    const struct callback *c = (const struct callback *)m;
    struct pl_samples s = callback_samples(c, b, cancel);
    (void)scratch;
    return c->f.gradient(c->f.ctx, w, &s, g, loss);
}

static void callback_score(const struct pl_model *m, const float *w, const struct pl_batch *b,
                           float *scratch, double *loss, uint32_t *n_right,
                           const struct pl_cancel *cancel) {
    const struct callback *c = (const struct callback *)m;
    struct pl_samples s = callback_samples(c, b, cancel);
    if (c->f.score) {
        uint32_t right = 0;
        double sum = 0;
        c->f.score(c->f.ctx, w, &s, &sum, &right);
        *loss += sum;
        *n_right += right;
        return;
    }
    double mean = 0;
    c->f.gradient(c->f.ctx, w, &s, scratch, &mean);
    *loss += mean * b->n;
}

int pl_callback_open(const struct pl_function *f, const struct pl_data *data, struct pl_model **out,
                     struct pl_why *why) {
    if (f->dim == 0 || !f->gradient)
        return pl_fail(why, PL_EUSAGE, "pl_function needs dim >= 1 and a gradient function");
    struct callback *c = calloc(1, sizeof *c);
    if (!c) return pl_fail(why, PL_ENOMEM, "out of memory");
    c->f = *f;
    c->data_dim = data ? data->dim : 0;
    c->kind = (struct pl_model_kind){
        .id = {"function", "a function of the embedding program", "", pl_no_opts, 0, 0},
        .wants_data = f->wants_data != 0,
        .classifies = f->score != NULL && f->classifies,
        .init = callback_init,
        .scratch = callback_scratch,
        .gradient = callback_gradient,
        .score = callback_score};
    c->model = (struct pl_model){.kind = &c->kind, .dim = f->dim, .classifies = c->kind.classifies};
    *out = &c->model;
    return PL_OK;
}
