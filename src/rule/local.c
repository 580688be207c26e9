/* Local rules: what a worker does between two contacts, and what it then sends: a gradient, a delta
 * or a model. The store treats all three alike, so every reduction and every optimizer works with
 * every local rule. */
#include <string.h>

#include "core/rule.h"

#define OPT_U(def, help) PL_OPT_INT(struct pace, u, def, 1, 1000000, help)

/* The options common to all rules with local steps. */
struct pace {
    int64_t u;
};

static uint32_t local_n_steps(const void *conf) {
    return (uint32_t)((const struct pace *)conf)->u;
}

static int local_keeps_one(const void *conf) {
    (void)conf;
    return 1;
}

static int local_keeps_two(const void *conf) {
    (void)conf;
    return 2;
}

static void local_copy(pl_real *to, const pl_real *from, size_t n) {
    if (to != from) memcpy(to, from, n * sizeof *to);
}

/* The steps start at `from` and move x; their gradients are computed there. */
static void local_start(struct pl_local_task *t, pl_real *x, const pl_real *from) {
    local_copy(x, from, t->dim);
    t->x = x;
    t->at = x;
}

/* One step along g, range by range: x -= eta (g + decay x). The terms in parentheses are added to
 * `total` if it is not NULL. Buffers take their new values, which g has. */
static void local_descend(const struct pl_local_task *t, pl_real *restrict total) {
    const pl_real *restrict g = t->g;
    pl_real *restrict x = t->x;
    for (size_t i = 0; i < t->dim;) {
        struct pl_piece p = pl_ranges_piece(&t->ranges, i, t->dim);
        pl_real eta = (pl_real)(t->lr * p.lr_factor);
        pl_real decay = (pl_real)(t->weight_decay * p.decay_factor);
        size_t end = i + p.n;
        if (p.buffers) {
            local_copy(x + i, g + i, p.n);
            if (total) local_copy(total + i, g + i, p.n);
            i = end;
        }
        for (; i < end; i++) {
            pl_real d = g[i] + decay * x[i];
            if (total) total[i] += d;
            x[i] -= eta * d;
        }
    }
}

/* Steps of plain SGD, with and without the sum of the gradients in `out`. */
static void local_step(const void *conf, struct pl_local_task *t, uint32_t step) {
    (void)conf;
    (void)step;
    local_descend(t, NULL);
}

static void local_step_sum(const void *conf, struct pl_local_task *t, uint32_t step) {
    (void)conf;
    if (step == 0) memset(t->out, 0, t->dim * sizeof *t->out);
    local_descend(t, t->out);
}

static bool local_plain(const void *conf) {
    (void)conf;
    return true;
}

/* The result is the change: the sum of the gradients times the rate, range by range. In exact
 * arithmetic this equals the difference of two models, but it has no cancellation. If an optimizer
 * of the caller took the steps, it is that difference. */
static void local_end_delta(const void *conf, struct pl_local_task *t) {
    pl_real *restrict out = t->out;
    (void)conf;
    for (size_t i = 0; i < t->dim;) {
        struct pl_piece p = pl_ranges_piece(&t->ranges, i, t->dim);
        pl_real eta = p.buffers ? 1 : (pl_real)(t->lr * p.lr_factor);
        size_t end = i + p.n;
        if (t->moved && p.buffers) local_copy(out + i, t->x + i, p.n);
        for (; t->moved && !p.buffers && i < end; i++) out[i] = t->start[i] - t->x[i];
        for (; !t->moved && i < end; i++) out[i] *= eta;
        i = end;
    }
}

/* The result is the model. */
static void local_end_model(const void *conf, struct pl_local_task *t) {
    (void)conf;
    local_copy(t->out, t->x, t->dim);
}

/* --- gradient ---------------------------------------------------------------------------- */

struct gradient {
    double beta;
};

static const struct pl_opt gradient_opts[] = {
    PL_OPT_REAL(struct gradient, beta, "0", 0, 0.9999999,
                "worker momentum: the worker sends m = beta m + (1-beta) g"),
    PL_OPT_END,
};

static int gradient_keeps(const void *conf) {
    return ((const struct gradient *)conf)->beta > 0;
}

static uint32_t local_one_step(const void *conf) {
    (void)conf;
    return 1;
}

static void gradient_begin(const void *conf, struct pl_local_task *t) {
    (void)conf;
    t->at = t->w;
    t->g = t->out;
}

static void gradient_step(const void *conf, struct pl_local_task *t, uint32_t step) {
    pl_real beta = (pl_real)((const struct gradient *)conf)->beta, rest = 1 - beta;
    pl_real *restrict out = t->out;
    (void)step;
    if (beta == 0) return;
    const pl_real *restrict m = t->prev ? t->prev[0] : NULL;
    size_t n = pl_ranges_parameters(&t->ranges, t->dim);
    for (size_t i = 0; i < n; i++) out[i] = (m ? beta * m[i] : 0) + rest * out[i];
    local_copy(t->next[0], out, t->dim);
}

static const struct pl_local local_gradient = {
    .id = {"gradient", "the gradient of one mini-batch, optionally with worker momentum",
           "Karimireddy, He, Jaggi, ICML 2021; Farhadkhani et al., ICML 2022 (beta)", gradient_opts,
           sizeof(struct gradient), PL_NEEDS_WHOLE_VECTORS},
    .steps = local_one_step,
    .n_vectors = gradient_keeps,
    .begin = gradient_begin,
    .step = gradient_step,
};

/* --- steps ---------------------------------------------------------------------------------------
 * Local SGD: u plain SGD steps from the fetched version (Stich, "Local SGD converges fast and
 * communicates little", ICLR 2019). With an outer rate below 1 and momentum at the server it is
 * DiLoCo's outer step (Douillard et al., arXiv 2311.08105), with SGD instead of AdamW as the inner
 * optimizer, unless a program brings its own. */

struct steps {
    struct pace pace;
    double lr, outer;
};

static const struct pl_opt steps_opts[] = {
    OPT_U("10", "local steps between contacts"),
    PL_OPT_REAL(struct steps, lr, "0", 0, 1e6, "learning rate of the local steps (0: the run's)"),
    PL_OPT_REAL(struct steps, outer, "1", 0, 1e6,
                "learning rate of the server's step along the mean of the local changes"),
    PL_OPT_END,
};

static double steps_outer(const void *conf, int n_workers) {
    (void)n_workers;
    return ((const struct steps *)conf)->outer;
}

static void steps_begin(const void *conf, struct pl_local_task *t) {
    const struct steps *c = conf;
    if (c->lr > 0) t->lr = c->lr;
    local_start(t, t->model, t->w);
    t->start = t->w;
}

static const struct pl_local local_local_steps = {
    .id = {"steps", "local SGD: u local steps; sends the change they made",
           "Stich, ICLR 2019; Douillard et al., arXiv 2311.08105 (outer)", steps_opts,
           sizeof(struct steps), PL_NEEDS_WHOLE_VECTORS},
    .sends = PL_SENDS_DELTA,
    .applies_weight_decay = true,
    .steps = local_n_steps,
    .outer = steps_outer,
    .plain = local_plain,
    .begin = steps_begin,
    .step = local_step_sum,
    .end = local_end_delta,
};

/* --- downpour ------------------------------------------------------------------------------------
 * Dean et al., "Large scale distributed deep networks", NIPS 2012: every `push` steps the worker
 * sends the sum of its gradients since the last push. The policy fetches: kasync:fetch=N sends a
 * new version after N pushes; in between the worker continues from its own model. */

static const struct pl_opt downpour_opts[] = {
    PL_OPT("push", INT, struct pace, u, "1", 1, 1000000, NULL,
           "local steps between pushes; the policy's fetch counts pushes", 0),
    PL_OPT_END,
};

static void downpour_begin(const void *conf, struct pl_local_task *t) {
    (void)conf;
    local_start(t, t->next[0], t->again ? t->prev[0] : t->w);
}

static const struct pl_local local_downpour = {
    .id = {"downpour", "local steps; sends the sum of their gradients every `push` steps",
           "Dean et al., NIPS 2012", downpour_opts, sizeof(struct pace), PL_NEEDS_SERVER},
    .applies_weight_decay = true,
    .steps = local_n_steps,
    .n_vectors = local_keeps_one,
    .model_slot = 1,
    .begin = downpour_begin,
    .step = local_step_sum,
};

/* --- elastic -------------------------------------------------------------------------------------
 * EASGD and EAMSGD: Zhang, Choromanska, LeCun, "Deep learning with elastic averaging SGD", NIPS
 * 2015, Algorithms 1 and 2. The worker's model and the centre pull each other: x -= alpha (x - c)
 * at the worker, c += alpha (x - c) at the server, which receives x. Both see the same c if the
 * policy starts the worker before its update (kasync:early=yes, rounds). The first gradient of a
 * task is computed at the worker's position before the pull. */

struct elastic {
    struct pace pace;
    double alpha, delta;
};

static const struct pl_opt elastic_opts[] = {
    OPT_U("10", "local steps between contacts (the paper's tau)"),
    PL_OPT_REAL(struct elastic, alpha, "0", 0, 10,
                "moving rate of worker and centre (0: 0.9 / workers, as in the paper)"),
    PL_OPT_REAL(struct elastic, delta, "0", 0, 0.99999,
                "Nesterov momentum of the local steps (EAMSGD)"),
    PL_OPT_END,
};

static double elastic_alpha(const void *conf, int n_workers) {
    double alpha = ((const struct elastic *)conf)->alpha;
    return alpha > 0 ? alpha : 0.9 / n_workers;
}

static int elastic_keeps(const void *conf) {
    return ((const struct elastic *)conf)->delta > 0 ? 2 : 1;
}

/* Where the next gradient of v = delta v - eta grad(x + delta v), x += v is computed. */
static void elastic_aim(struct pl_local_task *t, double delta, const pl_real *v) {
    pl_real d = (pl_real)delta;
    pl_real *restrict ahead = t->model;
    size_t n = pl_ranges_parameters(&t->ranges, t->dim);
    for (size_t i = 0; i < n; i++) ahead[i] = t->x[i] + (v ? d * v[i] : 0);
    local_copy(ahead + n, t->x + n, t->dim - n);
    t->at = ahead;
}

static void elastic_begin(const void *conf, struct pl_local_task *t) {
    double delta = ((const struct elastic *)conf)->delta;
    local_start(t, t->next[0], t->prev ? t->prev[0] : t->w);
    if (delta > 0) elastic_aim(t, delta, t->prev ? t->prev[1] : NULL);
}

static void elastic_step(const void *conf, struct pl_local_task *t, uint32_t step) {
    double delta = ((const struct elastic *)conf)->delta;
    if (delta == 0) {
        local_descend(t, NULL);
        return;
    }
    pl_real d = (pl_real)delta, *restrict x = t->x, *v = t->next[1];
    const pl_real *restrict g = t->g, *restrict ahead = t->at;
    const pl_real *v0 = step > 0 ? v : t->prev ? t->prev[1] : NULL; /* the previous velocity */
    size_t n = pl_ranges_parameters(&t->ranges, t->dim);
    for (size_t i = 0; i < n;) {
        struct pl_piece p = pl_ranges_piece(&t->ranges, i, n);
        pl_real eta = (pl_real)(t->lr * p.lr_factor);
        pl_real decay = (pl_real)(t->weight_decay * p.decay_factor);
        for (size_t end = i + p.n; i < end; i++) {
            v[i] = (v0 ? d * v0[i] : 0) - eta * (g[i] + decay * ahead[i]);
            x[i] += v[i];
        }
    }
    local_copy(x + n, g + n, t->dim - n);
    if (step > 0) elastic_aim(t, delta, v);
}

static void elastic_pull(const void *conf, struct pl_local_task *t) {
    double delta = ((const struct elastic *)conf)->delta;
    const pl_real *before = t->prev ? t->prev[0] : t->w, *w = t->w;
    pl_real alpha = (pl_real)elastic_alpha(conf, t->n_workers), *x = t->x;
    size_t n = pl_ranges_parameters(&t->ranges, t->dim);
    for (size_t i = 0; i < n; i++) x[i] -= alpha * (before[i] - w[i]);
    if (delta > 0) elastic_aim(t, delta, t->next[1]);
}

static bool elastic_plain(const void *conf) {
    return ((const struct elastic *)conf)->delta == 0;
}

static const struct pl_local local_elastic = {
    .id = {"elastic", "a model of its own; it and the centre attract each other",
           "Zhang, Choromanska, LeCun, NIPS 2015 (EASGD, EAMSGD)", elastic_opts,
           sizeof(struct elastic), PL_NEEDS_SERVER},
    .sends = PL_SENDS_MODEL,
    .applies_weight_decay = true,
    .steps = local_n_steps,
    .n_vectors = elastic_keeps,
    .model_slot = 1,
    .outer = elastic_alpha,
    .sum_members = true,
    .plain = elastic_plain,
    .begin = elastic_begin,
    .step = elastic_step,
    .pull = elastic_pull,
    .end = local_end_model,
};

/* --- overlap -------------------------------------------------------------------------------------
 * Asynchronous SGD without gradient delay (Talyansky et al.): the worker sends its delta and
 * continues. When the merged model arrives, the worker adds its movement since then. The merged
 * model already contains the delta it sent. If it does not yet, as in the cyclic form with rounds,
 * the worker adds that as well: x = w + D. */

static const struct pl_opt overlap_opts[] = {
    OPT_U("8", "local steps between contacts (the paper's beta = tau/2)"), PL_OPT_END};

static void overlap_begin(const void *conf, struct pl_local_task *t) {
    pl_real *x = t->next[0], *start = t->next[1];
    size_t n = pl_ranges_parameters(&t->ranges, t->dim);
    (void)conf;
    local_start(t, x, t->again ? t->prev[0] : t->w);
    if (t->prev && !t->again && !t->merged)
        for (size_t i = 0; i < n; i++) x[i] += t->prev[0][i] - t->prev[1][i];
    local_copy(start, x, t->dim);
    t->start = start;
}

static const struct pl_local local_overlap = {
    .id = {"overlap", "local steps continue while the previous change is merged",
           "Talyansky et al., Asynchronous SGD without gradient delay; "
           "Shen et al., IJCAI 2019 (CoCoD-SGD)",
           overlap_opts, sizeof(struct pace), PL_NEEDS_SERVER},
    .sends = PL_SENDS_DELTA,
    .applies_weight_decay = true,
    .steps = local_n_steps,
    .n_vectors = local_keeps_two,
    .model_slot = 2,
    .plain = local_plain,
    .begin = overlap_begin,
    .step = local_step_sum,
    .end = local_end_delta,
};

/* --- overlap-local -------------------------------------------------------------------------------
 * Overlap-Local-SGD: Wang, Liang, Joshi, ICASSP 2020. After u steps the worker is pulled to the
 * anchor z, x = (1-a) x + a z, and continues. Meanwhile the anchor moves towards the mean of the
 * pulled models with momentum (optim momentum). z - x after the pull is (1-a) times z - x before
 * it, so (1-a) is the server's rate on models sent before the pull. */

struct overlap_local {
    struct pace pace;
    double a;
};

static const struct pl_opt overlap_local_opts[] = {
    OPT_U("2", "local steps between contacts (the paper's tau)"),
    PL_OPT_REAL(struct overlap_local, a, "0.6", 0, 1,
                "how far the worker is pulled towards the anchor"),
    PL_OPT_END,
};

static double overlap_local_outer(const void *conf, int n_workers) {
    (void)n_workers;
    return 1 - ((const struct overlap_local *)conf)->a;
}

static void overlap_local_begin(const void *conf, struct pl_local_task *t) {
    pl_real *x = t->next[0], a = (pl_real)((const struct overlap_local *)conf)->a;
    size_t n = pl_ranges_parameters(&t->ranges, t->dim);
    local_start(t, x, t->prev ? t->prev[0] : t->w);
    for (size_t i = 0; t->prev && i < n; i++) x[i] -= a * (x[i] - t->w[i]);
}

static const struct pl_local local_overlap_local = {
    .id = {"overlap-local", "local steps pulled towards an anchor that is updated meanwhile",
           "Wang, Liang, Joshi, ICASSP 2020 (Overlap-Local-SGD)", overlap_local_opts,
           sizeof(struct overlap_local), PL_NEEDS_SERVER},
    .sends = PL_SENDS_MODEL,
    .applies_weight_decay = true,
    .steps = local_n_steps,
    .n_vectors = local_keeps_one,
    .model_slot = 1,
    .outer = overlap_local_outer,
    .plain = local_plain,
    .begin = overlap_local_begin,
    .step = local_step,
    .end = local_end_model,
};

/* --- own -----------------------------------------------------------------------------------------
 * Steps from the given model, which is then sent whole: for workers that keep models of their own,
 * as in gossip. */

struct own {
    struct pace pace;
    double beta;
};

static const struct pl_opt own_opts[] = {
    OPT_U("1", "local steps between contacts"),
    PL_OPT_REAL(struct own, beta, "0", 0, 0.99999, "momentum of the local steps"),
    PL_OPT_END,
};

static int own_keeps(const void *conf) {
    return ((const struct own *)conf)->beta > 0;
}

static void own_begin(const void *conf, struct pl_local_task *t) {
    (void)conf;
    local_start(t, t->out, t->w);
}

/* One step of v = beta v + g, x -= eta v, range by range. */
static void own_step(const void *conf, struct pl_local_task *t, uint32_t step) {
    double momentum = ((const struct own *)conf)->beta;
    if (momentum == 0) {
        local_descend(t, NULL);
        return;
    }
    const pl_real *restrict g = t->g;
    pl_real beta = (pl_real)momentum, *restrict x = t->x, *v = t->next[0];
    const pl_real *v0 = step > 0 ? v : t->prev ? t->prev[0] : NULL; /* the previous velocity */
    size_t n = pl_ranges_parameters(&t->ranges, t->dim);
    for (size_t i = 0; i < n;) {
        struct pl_piece p = pl_ranges_piece(&t->ranges, i, n);
        pl_real eta = (pl_real)(t->lr * p.lr_factor);
        pl_real decay = (pl_real)(t->weight_decay * p.decay_factor);
        for (size_t end = i + p.n; i < end; i++) {
            v[i] = (v0 ? beta * v0[i] : 0) + g[i] + decay * x[i];
            x[i] -= eta * v[i];
        }
    }
    local_copy(x + n, g + n, t->dim - n);
}

static bool own_plain(const void *conf) {
    return ((const struct own *)conf)->beta == 0;
}

static const struct pl_local local_own = {
    .id = {"own", "local steps on a model of its own, which it sends whole", "", own_opts,
           sizeof(struct own), PL_NEEDS_WHOLE_VECTORS},
    .sends = PL_SENDS_MODEL,
    .applies_weight_decay = true,
    .steps = local_n_steps,
    .n_vectors = own_keeps,
    .plain = own_plain,
    .begin = own_begin,
    .step = own_step,
    .end = local_end_model,
};

/* --- sweep ---------------------------------------------------------------------------------------
 * One pass over the ratings in a block of a matrix, with a step after each: Gemulla et al., KDD
 * 2011 (DSGD). adaptive=yes divides the rate of each row by the root of its mean squared slopes so
 * far: Chin, Zhuang, Juan, Lin, PAKDD 2015 (LIBMF). The sums of squares are part of the model. */

static const struct pl_opt sweep_opts[] = {
    PL_OPT_BOOL(struct pl_local_sweep, adaptive, "no",
                "give each row of the matrix a rate of its own, as LIBMF does"),
    PL_OPT_END,
};

static const struct pl_local local_sweep = {
    .id = {"sweep", "one pass over the ratings in a block of a matrix",
           "Gemulla et al., KDD 2011; Chin, Zhuang, Juan, Lin, PAKDD 2015 (adaptive)", sweep_opts,
           sizeof(struct pl_local_sweep), PL_NEEDS_PARTS | PL_NEEDS_OUR_WORKERS},
    .sends = PL_SENDS_RANGES,
    .steps = local_one_step,
};

static const struct pl_entry *const local_table[] = {
    &local_gradient.id, &local_local_steps.id, &local_downpour.id,
    &local_elastic.id,  &local_overlap.id,     &local_overlap_local.id,
    &local_own.id,      &local_sweep.id,       NULL};

const struct pl_family pl_local_family = {"local", "what does a worker do between contacts?",
                                          local_table};
