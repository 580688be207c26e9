/* Local rules: what a worker does between two contacts. Whatever that is, what it sends is a
 * pseudo-gradient, so that every reducer and every optimizer works with every local rule. */
#include <string.h>

#include "core/rule.h"

/* --- gradient ---------------------------------------------------------------------------- */

struct gradient {
    double beta;
};

static const struct pl_opt gradient_opts[] = {
    {.name = "beta",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 0.9999999,
     .help = "momentum at the worker: it sends m = beta m + (1-beta) g",
     .offset = offsetof(struct gradient, beta)},
    {.name = NULL},
};

static bool gradient_remembers(const void *conf) {
    return ((const struct gradient *)conf)->beta > 0;
}

static void gradient_send(const void *conf, size_t dim, float *restrict m, float *restrict g) {
    float beta = (float)((const struct gradient *)conf)->beta, rest = 1 - beta;
    for (size_t i = 0; i < dim; i++) g[i] = m[i] = beta * m[i] + rest * g[i];
}

static uint32_t gradient_steps(const void *conf) {
    (void)conf;
    return 1;
}

static int gradient_run(const void *conf, const struct pl_local_task *t, double *loss) {
    (void)conf;
    return t->gradient(t->ctx, t->w, 0, t->out, loss);
}

static const struct pl_local local_gradient = {
    .id = {.name = "gradient",
           .brief = "one gradient of one mini-batch, or the worker's own momentum of them",
           .paper = "Karimireddy, He, Jaggi, ICML 2021; Farhadkhani et al., ICML 2022 (beta)",
           .opts = gradient_opts,
           .conf_size = sizeof(struct gradient)},
    .steps = gradient_steps,
    .run = gradient_run,
    .remembers = gradient_remembers,
    .send = gradient_send,
};

/* --- steps ---------------------------------------------------------------------------------------
 * Local SGD: u plain SGD steps from the version it fetched (Stich, "Local SGD converges fast and
 * communicates little", ICLR 2019). The move w - w_local is sent as the sum of the u gradients:
 * the same in exact arithmetic, and free of the cancellation of subtracting two close vectors. */

struct steps {
    int64_t u;
    double lr;
};

static const struct pl_opt steps_opts[] = {
    {.name = "u",
     .type = PL_OPT_INT,
     .def = "10",
     .min = 1,
     .max = 1000000,
     .help = "local steps between two contacts",
     .offset = offsetof(struct steps, u)},
    {.name = "lr",
     .type = PL_OPT_REAL,
     .def = "0",
     .min = 0,
     .max = 1e6,
     .help = "rate of the local steps; 0: the run's own",
     .offset = offsetof(struct steps, lr)},
    {.name = NULL},
};

static uint32_t steps_steps(const void *conf) {
    return (uint32_t)((const struct steps *)conf)->u;
}

static int steps_run(const void *conf, const struct pl_local_task *t, double *loss) {
    const struct steps *c = conf;
    float eta = (float)(c->lr > 0 ? c->lr : t->lr), decay = (float)t->weight_decay;
    float *restrict model = t->model, *restrict g = t->g, *restrict out = t->out;
    double sum = 0;
    if (c->u == 1) { /* a plain gradient; there is no scratch for it */
        int rc = t->gradient(t->ctx, t->w, 0, out, loss);
        for (size_t i = 0; !rc && i < t->dim; i++) out[i] += decay * t->w[i];
        return rc;
    }
    memcpy(model, t->w, t->dim * sizeof *model);
    memset(out, 0, t->dim * sizeof *out);
    for (uint32_t u = 0; u < (uint32_t)c->u; u++) {
        double one;
        int rc = t->gradient(t->ctx, model, u, g, &one);
        if (rc) return rc;
        sum += one;
        for (size_t i = 0; i < t->dim; i++) {
            float d = g[i] + decay * model[i];
            out[i] += d;
            model[i] -= eta * d;
        }
    }
    *loss = sum / (double)c->u;
    return PL_OK;
}

static const struct pl_local local_steps = {
    .id = {.name = "steps",
           .brief = "local SGD: u steps of its own, then the sum of the moves",
           .paper = "Stich, ICLR 2019",
           .opts = steps_opts,
           .conf_size = sizeof(struct steps)},
    .decays = true,
    .steps = steps_steps,
    .run = steps_run,
};

static const struct pl_entry *const local_table[] = {&local_gradient.id, &local_steps.id, NULL};

const struct pl_family pl_local_family = {"local", "what does a worker do between two contacts?",
                                          local_table};
