/* A model that clients compute: all the server knows is the length of its vector, and the
 * names and shapes in it if weights were given. Losses and sample counts come from the workers, and
 * test numbers from an evaluator. Without given weights every parameter begins with zero. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

struct external_conf {
    int64_t dim;
};

static int external_open(const void *conf, const struct pl_data *data, struct pl_model **out,
                         struct pl_why *why) {
    (void)data;
    *out = calloc(1, sizeof **out);
    if (!*out) return pl_fail(why, PL_ENOMEM, "out of memory");
    (*out)->dim = (size_t)((const struct external_conf *)conf)->dim;
    return PL_OK;
}

static void external_init(const struct pl_model *m, uint64_t seed, float *w) {
    (void)seed;
    memset(w, 0, m->dim * sizeof *w);
}

static size_t external_scratch(const struct pl_model *m, uint32_t n) {
    (void)m;
    (void)n;
    return 0;
}

/* Nothing calls these: a run with such a model has neither workers of ours nor a scorer. */
static int external_gradient(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                             float *g, double *loss, float *scratch,
                             const struct pl_cancel *cancel) {
    (void)m;
    (void)w;
    (void)batch;
    (void)g;
    (void)scratch;
    (void)cancel;
    *loss = NAN;
    return PL_ECANCELLED;
}

static void external_score(const struct pl_model *m, const float *w, const struct pl_batch *batch,
                           float *scratch, double *loss, uint32_t *n_right,
                           const struct pl_cancel *cancel) {
    (void)m;
    (void)w;
    (void)batch;
    (void)scratch;
    (void)n_right;
    (void)cancel;
    *loss = NAN;
}

static const struct pl_opt external_opts[] = {
    PL_OPT_INT(struct external_conf, dim, "0", 0, 1e12,
               "number of parameters (0: as many as the file of --init has)"),
    PL_OPT_END,
};

const struct pl_model_kind pl_model_external = {
    .id = {"external", "a model that clients compute, which join through --listen", "",
           external_opts, sizeof(struct external_conf), 0},
    .by_clients = true,
    .open = external_open,
    .init = external_init,
    .scratch = external_scratch,
    .gradient = external_gradient,
    .score = external_score,
};
