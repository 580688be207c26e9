/* Optimizers: how the reduced vector u moves the model w at rate eta. A loop writes at most one
 * array that it has not read: the memory of the new model is fetched before it is written, and
 * stores wait in order, so a loop that also writes its state would wait for both in turn (momentum:
 * 1.5 times as long). What the next loop reads is still in the first-level cache. */
#include <math.h>
#include <string.h>

#include "base/isa.h"
#include "core/rule.h"

/* --- sgd --------------------------------------------------------------------------------- */

static PL_VARIANTS(void, sgd_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    (void)conf;
    const pl_real *restrict u = b->u, *restrict w = b->w;
    pl_real *restrict out = b->out, eta = (pl_real)at->lr;
    for (size_t i = 0; i < b->n; i++) out[i] = w[i] - eta * u[i];
}

static const struct pl_optim optim_sgd = {
    .id = {"sgd", "w - eta u", "", pl_no_opts, 0, 0},
    .lr = 0.1,
    .rests = true,
    .step = sgd_step,
};

/* --- momentum and nesterov -----------------------------------------------------------------------
 * v = beta v + (1 - dampening) u; w -= eta v. The first v is u, as in torch.optim.SGD.
 *
 * Nesterov's method evaluates the gradient at a point ahead of w, w - eta beta v. There are two
 * ways to write it:
 *   ahead: w as above; workers are sent the point ahead (NAG-ASGD if asynchronous); w is evaluated.
 *   torch: the model is the point ahead itself, for workers and for evaluation:
 *          v = beta v + u; w -= eta (u + beta v). torch.optim.SGD(nesterov=True).
 * For a constant rate, workers compute on the same points in both. */

struct momentum {
    double beta;
};

struct heavy_ball {
    struct momentum momentum;
    double dampening;
};

enum { NESTEROV_AHEAD, NESTEROV_TORCH };

struct nesterov {
    struct momentum momentum;
    int form;
};

#define OPT_BETA PL_OPT_REAL(struct momentum, beta, "0.9", 0, 0.99999, "momentum")

static const struct pl_opt momentum_opts[] = {OPT_BETA, PL_OPT_END};

static const struct pl_opt heavy_ball_opts[] = {
    OPT_BETA,
    PL_OPT_REAL(struct heavy_ball, dampening, "0", 0, 1,
                "weight 1 - dampening of a new gradient in the momentum, as in torch.optim.SGD"),
    PL_OPT_END,
};

static const struct pl_opt nesterov_opts[] = {
    OPT_BETA,
    PL_OPT_CHOICE(
        struct nesterov, form, "ahead", "ahead|torch",
        "ahead: workers compute on the look-ahead, and the model is evaluated without it; "
        "torch: the model is the look-ahead, as in torch.optim.SGD"),
    PL_OPT_END,
};

static PL_VARIANTS(void, momentum_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    const struct heavy_ball *c = conf;
    const pl_real *restrict u = b->u, *restrict w = b->w;
    pl_real *restrict out = b->out, *restrict v = b->state[0];
    pl_real eta = (pl_real)at->lr, beta = (pl_real)c->momentum.beta;
    pl_real enters = at->count > 1 ? (pl_real)(1 - c->dampening) : 1;
    for (size_t i = 0; i < b->n; i++) v[i] = beta * v[i] + enters * u[i];
    for (size_t i = 0; i < b->n; i++) out[i] = w[i] - eta * v[i];
}

static PL_VARIANTS(void, nesterov_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    const struct nesterov *c = conf;
    const pl_real *restrict u = b->u, *restrict w = b->w;
    pl_real *restrict out = b->out, *restrict v = b->state[0];
    pl_real *restrict ahead = b->ahead; /* NULL for torch's form */
    pl_real eta = (pl_real)at->lr, beta = (pl_real)c->momentum.beta;
    pl_real reach = (pl_real)(at->lr * c->momentum.beta);
    switch (c->form) {
    case NESTEROV_AHEAD:
        for (size_t i = 0; i < b->n; i++) v[i] = beta * v[i] + u[i];
        for (size_t i = 0; i < b->n; i++) out[i] = w[i] - eta * v[i];
        for (size_t i = 0; i < b->n; i++) ahead[i] = out[i] - reach * v[i];
        break;
    case NESTEROV_TORCH:
        for (size_t i = 0; i < b->n; i++) v[i] = beta * v[i] + u[i];
        for (size_t i = 0; i < b->n; i++) out[i] = w[i] - eta * (u[i] + beta * v[i]);
        break;
    }
}

static bool nesterov_looks_ahead(const void *conf) {
    return ((const struct nesterov *)conf)->form == NESTEROV_AHEAD;
}

static const struct pl_optim optim_momentum = {
    .id = {"momentum", "heavy ball: v = beta v + u, w - eta v", "Polyak 1964", heavy_ball_opts,
           sizeof(struct heavy_ball), PL_NEEDS_SERVER},
    .n_vectors = 1,
    .velocity = PL_VELOCITY_STATE,
    .lr = 0.01,
    .step = momentum_step,
};

static const struct pl_optim optim_nesterov = {
    .id = {"nesterov", "heavy ball; workers compute at the look-ahead w - eta beta v",
           "Nesterov 1983; NAG-ASGD in Hakimi et al., arXiv 1907.11612", nesterov_opts,
           sizeof(struct nesterov), PL_NEEDS_SERVER},
    .n_vectors = 1,
    .velocity = PL_VELOCITY_STATE,
    .looks_ahead = nesterov_looks_ahead,
    .lr = 0.01,
    .step = nesterov_step,
};

/* --- adagrad -------------------------------------------------------------------------------------
 * Duchi, Hazan, Singer, JMLR 2011; used by the server of Downpour SGD: one rate per coordinate,
 * eta / sqrt(sum of its squared gradients). */

struct adagrad {
    double eps;
};

static const struct pl_opt adagrad_opts[] = {
    PL_OPT_REAL(struct adagrad, eps, "1e-8", 0, 1, "added to the square root"),
    PL_OPT_END,
};

static PL_VARIANTS(void, adagrad_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    const pl_real *restrict u = b->u, *restrict w = b->w;
    pl_real *restrict out = b->out, *restrict sum = b->state[0];
    pl_real eta = (pl_real)at->lr, eps = (pl_real)((const struct adagrad *)conf)->eps;
    for (size_t i = 0; i < b->n; i++) sum[i] += u[i] * u[i];
    for (size_t i = 0; i < b->n; i++) {
        pl_real root = (pl_real)sqrt(sum[i]) + eps;
        /* 0 / 1 instead of 0 / 0, without a branch so that the loop is vectorised */
        pl_real moves = root > 0 ? 1 : 0;
        out[i] = w[i] - moves * (eta * u[i]) / (root + (1 - moves));
    }
}

static const struct pl_optim optim_adagrad = {
    .id = {"adagrad", "w - eta u / sqrt(sum of u^2), per coordinate",
           "Duchi, Hazan, Singer, JMLR 2011; Dean et al., NIPS 2012", adagrad_opts,
           sizeof(struct adagrad), PL_NEEDS_SERVER},
    .n_vectors = 1,
    .lr = 0.01,
    .normalises = true,
    .rests = true,
    .step = adagrad_step,
};

/* --- adam and adamw ------------------------------------------------------------------------------
 * Kingma and Ba, ICLR 2015, Algorithm 1. Weight decay lambda is part of the gradient, as in
 * torch.optim.Adam. adamw decouples it: Loshchilov and Hutter, "Decoupled weight decay
 * regularization", ICLR 2019, w <- w - eta lambda w - eta (Adam's direction), with the rate eta of
 * the commit, as in torch.optim.AdamW. */

struct adam {
    double beta1, beta2, eps;
};

static const struct pl_opt adam_opts[] = {
    PL_OPT_REAL(struct adam, beta1, "0.9", 0, 0.99999, "decay of the running mean"),
    PL_OPT_REAL(struct adam, beta2, "0.999", 0, 0.9999999, "decay of the running mean square"),
    PL_OPT_REAL(struct adam, eps, "1e-8", 0, 1, "added to the square root"),
    PL_OPT_END,
};

static PL_VARIANTS(void, adam_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    const struct adam *c = conf;
    const pl_real *restrict u = b->u, *restrict w = b->w;
    pl_real *restrict out = b->out, *restrict m = b->state[0], *restrict s = b->state[1];
    pl_real b1 = (pl_real)c->beta1, r1 = (pl_real)(1 - c->beta1), eps = (pl_real)c->eps;
    pl_real b2 = (pl_real)c->beta2, r2 = (pl_real)(1 - c->beta2), eta = (pl_real)at->lr;
    pl_real fix1 = (pl_real)(1 / (1 - pow(c->beta1, (double)at->count)));
    pl_real fix2 = (pl_real)(1 / (1 - pow(c->beta2, (double)at->count)));
    for (size_t i = 0; i < b->n; i++) {
        m[i] = b1 * m[i] + r1 * u[i];
        s[i] = b2 * s[i] + r2 * u[i] * u[i];
    }
    for (size_t i = 0; i < b->n; i++)
        out[i] = w[i] - eta * (fix1 * m[i] / ((pl_real)sqrt(fix2 * s[i]) + eps));
    if (!b->direction) return;
    for (size_t i = 0; i < b->n; i++)
        b->direction[i] = fix1 * m[i] / ((pl_real)sqrt(fix2 * s[i]) + eps);
}

static PL_VARIANTS(void, adamw_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    adam_step(conf, at, b);
    const pl_real *restrict w = b->w;
    pl_real *restrict out = b->out, *restrict direction = b->direction;
    pl_real decay = (pl_real)at->weight_decay, shrink = (pl_real)(at->lr * at->weight_decay);
    if (decay == 0) return;
    for (size_t i = 0; i < b->n; i++) out[i] -= shrink * w[i];
    for (size_t i = 0; direction && i < b->n; i++) direction[i] += decay * w[i];
}

static const struct pl_optim optim_adam = {
    .id = {"adam", "one rate per parameter, from running moments", "Kingma and Ba, ICLR 2015",
           adam_opts, sizeof(struct adam), PL_NEEDS_SERVER},
    .n_vectors = 2,
    .velocity = PL_VELOCITY_DIRECTION,
    .lr = 0.001,
    .normalises = true,
    .step = adam_step,
};

static const struct pl_optim optim_adamw = {
    .id = {"adamw", "adam with decoupled weight decay: w also shrinks by eta weight-decay w",
           "Loshchilov and Hutter, ICLR 2019", adam_opts, sizeof(struct adam), PL_NEEDS_SERVER},
    .n_vectors = 2,
    .decouples = true,
    .velocity = PL_VELOCITY_DIRECTION,
    .lr = 0.001,
    .normalises = true,
    .step = adamw_step,
};

/* --- dana ----------------------------------------------------------------------------------------
 * Hakimi, Barkai, Gabel, Schuster, "Taming momentum in a distributed asynchronous environment",
 * arXiv 1907.11612. A momentum v_i per worker and their sum S:
 *   zero:  v_i = beta v_i + u; w -= eta v_i; workers receive w - eta beta S
 *   slim:  the same trajectory for a constant rate: w -= eta (beta v_i + u); workers receive w.
 *          (In the paper v_i lives on the worker; the arithmetic is the same.)
 *   multi: Multi-ASGD, their baseline: zero without the look-ahead. */

enum { DANA_ZERO, DANA_SLIM, DANA_MULTI };

struct dana {
    double beta;
    int form;
};

static const struct pl_opt dana_opts[] = {
    PL_OPT_REAL(struct dana, beta, "0.9", 0, 0.99999, "momentum"),
    PL_OPT_CHOICE(struct dana, form, "zero", "zero|slim|multi",
                  "DANA-Zero, DANA-Slim, or Multi-ASGD (no look-ahead)"),
    PL_OPT_END,
};

static bool dana_looks_ahead(const void *conf) {
    return ((const struct dana *)conf)->form == DANA_ZERO;
}

static PL_VARIANTS(void, dana_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    const struct dana *c = conf;
    const pl_real *restrict u = b->u, *restrict w = b->w;
    pl_real *restrict out = b->out, *restrict v = b->own, *restrict s = b->state[0];
    pl_real *restrict ahead = b->ahead; /* NULL except for zero */
    pl_real eta = (pl_real)at->lr, beta = (pl_real)c->beta, reach = (pl_real)(at->lr * c->beta);
    switch (c->form) {
    case DANA_ZERO:
        for (size_t i = 0; i < b->n; i++) {
            pl_real old = v[i];
            v[i] = beta * old + u[i];
            s[i] += v[i] - old;
        }
        for (size_t i = 0; i < b->n; i++) out[i] = w[i] - eta * v[i];
        for (size_t i = 0; i < b->n; i++) ahead[i] = out[i] - reach * s[i];
        break;
    case DANA_SLIM:
        for (size_t i = 0; i < b->n; i++) v[i] = beta * v[i] + u[i];
        for (size_t i = 0; i < b->n; i++) out[i] = w[i] - eta * (beta * v[i] + u[i]);
        break;
    case DANA_MULTI:
        for (size_t i = 0; i < b->n; i++) v[i] = beta * v[i] + u[i];
        for (size_t i = 0; i < b->n; i++) out[i] = w[i] - eta * v[i];
        break;
    }
}

static const struct pl_optim optim_dana = {
    .id = {"dana", "one momentum per worker, and a look-ahead over all of them",
           "Hakimi, Barkai, Gabel, Schuster, arXiv 1907.11612", dana_opts, sizeof(struct dana),
           PL_NEEDS_SERVER | PL_NEEDS_ONE_AT_A_TIME},
    .n_vectors = 1,
    .per_worker = true,
    .velocity = PL_VELOCITY_OWN,
    .looks_ahead = dana_looks_ahead,
    .lr = 0.01,
    .step = dana_step,
};

/* --- ormo ----------------------------------------------------------------------------------------
 * Shi, Yang, Li, "Ordered momentum for asynchronous SGD", NeurIPS 2024 (arXiv 2407.19234).
 * RECONSTRUCTED: the formulas are derived such that a synchronous scheduler gives heavy ball.
 * Gradients belong to buckets of K (the number of workers) by the iteration at which their model
 * was sent; number[0] is the current bucket I of the momentum. b = ceil(base/K); while b > I: w -=
 * beta u, u *= beta, I += 1 e = I - b; u += beta^e eta g; w -= (1 - beta^(e+1))/(1 - beta) eta g */

static void ormo_begin(const void *conf, struct pl_optim_at *at) {
    (void)conf;
    double bucket = ceil((double)at->base / at->n_workers), jump = bucket - at->number[0];
    /* number[1]: how far this commit moves I, for step() */
    at->number[1] = jump > 0 ? jump : 0;
    if (jump > 0) at->number[0] = bucket;
}

static PL_VARIANTS(void, ormo_step,
                   (const void *conf, const struct pl_optim_at *at, const struct pl_optim_block *b),
                   (conf, at, b)) {
    double beta = ((const struct momentum *)conf)->beta, jump = at->number[1];
    double late = at->number[0] - ceil((double)at->base / at->n_workers);
    /* beta + … + beta^jump of the old momentum, then the weight of this gradient by now */
    pl_real carry = (pl_real)(beta * (1 - pow(beta, jump)) / (1 - beta));
    pl_real decay = (pl_real)pow(beta, jump), join = (pl_real)(pow(beta, late) * at->lr);
    pl_real move = (pl_real)((1 - pow(beta, late + 1)) / (1 - beta) * at->lr);
    const pl_real *restrict g = b->u, *restrict w = b->w;
    pl_real *restrict out = b->out, *restrict u = b->state[0];
    for (size_t i = 0; i < b->n; i++) out[i] = w[i] - carry * u[i] - move * g[i];
    for (size_t i = 0; i < b->n; i++) u[i] = decay * u[i] + join * g[i];
}

static const struct pl_optim optim_ormo = {
    .id = {.name = "ormo",
           .brief =
               "ordered momentum: a late gradient enters the momentum at its place in the order",
           .paper = "Shi, Yang, Li, NeurIPS 2024",
           .opts = momentum_opts,
           .conf_size = sizeof(struct momentum),
           .needs = PL_NEEDS_SERVER | PL_NEEDS_ONE_AT_A_TIME},
    .n_vectors = 1,
    .begin = ormo_begin,
    .lr = 0.01,
    .step = ormo_step,
};

static const struct pl_entry *const optim_table[] = {
    &optim_sgd.id,     &optim_momentum.id, &optim_nesterov.id,
    &optim_adagrad.id, &optim_adam.id,     &optim_adamw.id,
    &optim_dana.id,    &optim_ormo.id,     NULL};

const struct pl_family pl_optim_family = {"optim", "how does the reduced vector change the model?",
                                          optim_table};
