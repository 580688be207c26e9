/* Corrections of a stale contribution: one or two functions and one table line each. Notation as in
 * the papers: g is the gradient, w the current model, base the model that the worker computed on,
 * tau the lag. */
#include <math.h>
#include <string.h>

#include "base/isa.h"
#include "core/rule.h"

static void distance_sums(const void *conf, const struct pl_correct_block *b, double *sum) {
    (void)conf;
    sum[0] += pl_vec_distance2(b->w, b->base, b->n);
}

/* --- none -------------------------------------------------------------------------------- */

static const struct pl_correct correct_none = {
    .id = {"none", "apply it unchanged", "", pl_no_opts, 0, 0},
};

/* --- lag: the rate divided by the staleness ---------------------------------------------- */

static double lag_factor(const void *conf, struct pl_correct_at *at) {
    (void)conf;
    return at->lag > 1 ? 1.0 / (double)at->lag : 1.0;
}

static const struct pl_correct correct_lag = {
    .id = {"lag", "divide by staleness: g / max(1, tau)",
           "Zhang, Gupta, Lian, Liu, IJCAI 2016 (staleness-aware async-SGD)", pl_no_opts, 0,
           PL_NEEDS_SERVER},
    .factor = lag_factor,
};

/* --- exp: dampened by the staleness ------------------------------------------------------ */

struct exp_conf {
    double a;
};

static const struct pl_opt exp_opts[] = {
    PL_OPT_REAL(struct exp_conf, a, "0.2", 0, 1e6,
                "decay rate: a gradient of staleness t is weighted by exp(-a t)"),
    PL_OPT_END,
};

static double exp_factor(const void *conf, struct pl_correct_at *at) {
    return exp(-((const struct exp_conf *)conf)->a * (double)at->lag);
}

static const struct pl_correct correct_exp = {
    .id = {.name = "exp",
           .brief = "dampen by staleness: g exp(-a tau)",
           .paper = "Damaskinos, El Mhamdi, Guerraoui, Patra, Taziki, ICML 2018 (Kardam)",
           .opts = exp_opts,
           .conf_size = sizeof(struct exp_conf),
           .needs = PL_NEEDS_SERVER},
    .factor = exp_factor,
};

/* --- distance: Dutta et al. 2018, eq. 11-13 ---------------------------------------------- */

struct distance {
    double c, eta_max;
};

static const struct pl_opt distance_opts[] = {
    PL_OPT_REAL(struct distance, c, "0.005", 1e-300, 1e300,
                "the rate is min(eta_max, c / ||w - base||^2)"),
    PL_OPT_REAL(struct distance, eta_max, "0", 0, 1e6, "maximum rate (0: the learning rate)"),
    PL_OPT_END,
};

/* eta_j = min{ C / ||w_j - w_tau||^2, eta_max }; eta_max if the distance is 0 */
static double distance_factor(const void *conf, struct pl_correct_at *at) {
    const struct distance *c = conf;
    double eta = c->eta_max > 0 ? c->eta_max : at->lr;
    if (at->sum[0] > 0 && c->c / at->sum[0] < eta) eta = c->c / at->sum[0];
    return at->lr > 0 ? eta / at->lr : 1.0;
}

static const struct pl_correct correct_distance = {
    .id = {"distance", "rate min{c / ||w - base||^2, eta_max}",
           "Dutta et al., AISTATS 2018, eq. 11-13", distance_opts, sizeof(struct distance),
           PL_NEEDS_SERVER | PL_NEEDS_BASE},
    .n_sums = 1,
    .sums = distance_sums,
    .factor = distance_factor,
};

/* --- gap: Gap-Aware ------------------------------------------------------------------------------
 * Barkai, Hakimi, Schuster, "Gap-aware mitigation of gradient staleness", ICLR 2020. The gap is
 * the distance the model travelled since the worker read it, in units of an average update:
 *   R = G R + (1-G) v^2 (v before this update; g^2 without momentum), bias-corrected,
 *   C = eta_max (sqrt(R) + eps),   G = 1 + |w - base| / C,   g <- g / G = g C / (|w - base| + C).
 * Per parameter, as the paper recommends; form=scalar uses norms of the whole vectors. C uses
 * eta_max, not the current rate, so the penalty shrinks when the rate decays. */

enum { GAP_PARAMETER, GAP_SCALAR };

/* Bounds of C: where nothing moved there is no penalty, even if C is 0 or R overflows. */
#define GAP_LEAST 1e-37
#define GAP_MOST 1e38

struct gap {
    double decay, eps;
    int form;
};

static const struct pl_opt gap_opts[] = {
    PL_OPT_CHOICE(struct gap, form, "parameter", "parameter|scalar",
                  "one penalty per parameter, or one for the whole vector"),
    PL_OPT_REAL(struct gap, decay, "0.999", 0, 0.9999999,
                "decay of the running mean of squared updates"),
    PL_OPT_REAL(struct gap, eps, "1e-8", 0, 1, "added to the root mean square"),
    PL_OPT_END,
};

static bool gap_wants_sums(const void *conf) {
    return ((const struct gap *)conf)->form == GAP_SCALAR;
}

static void gap_sums(const void *conf, const struct pl_correct_block *b, double *sum) {
    (void)conf;
    const pl_real *v = b->velocity ? b->velocity : b->g;
    sum[0] += pl_vec_distance2(b->w, b->base, b->n);
    sum[1] += pl_vec_dot(v, v, b->n);
}

static double gap_factor(const void *conf, struct pl_correct_at *at) {
    const struct gap *c = conf;
    if (c->form != GAP_SCALAR) return 1;
    at->number[0] = c->decay * at->number[0] + (1 - c->decay) * at->sum[1];
    double r = at->number[0] / (1 - pow(c->decay, (double)at->count));
    double unit = at->lr_max * (sqrt(r) + c->eps);
    return unit > 0 ? 1 / (1 + sqrt(at->sum[0]) / unit) : 1;
}

/* C of a parameter, within its bounds. */
PL_ISA_BODY pl_real gap_unit(pl_real r, pl_real fix, pl_real eta, pl_real eps) {
    pl_real x = eta * ((pl_real)sqrt(r * fix) + eps);
    x = x > (pl_real)GAP_LEAST ? x : (pl_real)GAP_LEAST;
    return x < (pl_real)GAP_MOST ? x : (pl_real)GAP_MOST;
}

PL_ISA_BODY pl_real gap_divide(pl_real g, pl_real w, pl_real base, pl_real unit) {
    return g * (unit / ((pl_real)fabs(w - base) + unit));
}

static PL_VARIANTS(void, gap_apply,
                   (const void *conf, const struct pl_correct_at *at,
                    const struct pl_correct_block *b, pl_real *restrict out),
                   (conf, at, b, out)) {
    const struct gap *c = conf;
    const pl_real *restrict g = b->g, *restrict w = b->w, *restrict base = b->base;
    if (c->form == GAP_SCALAR) {
        memcpy(out, g, b->n * sizeof *g);
        return;
    }
    /* with momentum, all members of a group have the same v and hence one R and one C, which are
     * those after the last of them */
    const pl_real *v = b->velocity ? b->velocity : g;
    int shared = b->velocity ? at->n_members - at->member : 1;
    pl_real *restrict r = b->state[0], *restrict unit = b->room;
    bool moves = !b->velocity || at->member == 0, sets = !b->velocity || !b->room_is_set;
    double kept = shared == 1 ? c->decay : pow(c->decay, shared);
    double last = (double)at->count + shared - 1;
    pl_real decay = (pl_real)kept, rest = (pl_real)(1 - kept);
    pl_real fix = sets ? (pl_real)(1 / (1 - pow(c->decay, last))) : 1;
    pl_real eta = (pl_real)at->lr_max, eps = (pl_real)c->eps;
    if (moves && sets) { /* in one loop, roots and divisions are computed while memory is read */
        for (size_t i = 0; i < b->n; i++) {
            pl_real now = decay * r[i] + rest * v[i] * v[i], x = gap_unit(now, fix, eta, eps);
            r[i] = now;
            unit[i] = x;
            out[i] = gap_divide(g[i], w[i], base[i], x);
        }
        return;
    }
    for (size_t i = 0; moves && i < b->n; i++) r[i] = decay * r[i] + rest * v[i] * v[i];
    for (size_t i = 0; sets && i < b->n; i++) unit[i] = gap_unit(r[i], fix, eta, eps);
    for (size_t i = 0; i < b->n; i++) out[i] = gap_divide(g[i], w[i], base[i], unit[i]);
}

static const struct pl_correct correct_gap = {
    .id = {"gap",
           "divide by the gap: how far the model moved since the worker read it, in mean updates",
           "Barkai, Hakimi, Schuster, ICLR 2020 (Gap-Aware)", gap_opts, sizeof(struct gap),
           PL_NEEDS_SERVER | PL_NEEDS_BASE},
    .n_vectors = 1,
    .n_sums = 2,
    .wants_sums = gap_wants_sums,
    .sums = gap_sums,
    .factor = gap_factor,
    .apply = gap_apply,
};

/* --- dc: delay compensation ----------------------------------------------------------------------
 * Zheng et al., "Asynchronous stochastic gradient descent with delay compensation", ICML 2017:
 *   g <- g + lambda g^2 (w - base);   form=a: lambda = lambda0 / sqrt(MS + 1e-7),
 *   MS = r MS + (1-r) g^2. One MS as in the paper; the authors' code has one per worker. */

enum { DC_C, DC_A };

struct dc {
    double lambda, decay;
    int form;
};

static const struct pl_opt dc_opts[] = {
    PL_OPT_CHOICE(struct dc, form, "c", "c|a",
                  "c: constant lambda; a: adaptive, lambda / sqrt(mean square of g)"),
    PL_OPT_REAL(struct dc, lambda, "0.04", 0, 1e6,
                "strength of the correction (in the paper 0.04 for form c, 2 for form a)"),
    PL_OPT_REAL(struct dc, decay, "0.95", 0, 0.9999999, "form a: decay of the mean square"),
    PL_OPT_END,
};

static PL_VARIANTS(void, dc_apply,
                   (const void *conf, const struct pl_correct_at *at,
                    const struct pl_correct_block *b, pl_real *restrict out),
                   (conf, at, b, out)) {
    const struct dc *c = conf;
    const pl_real *restrict g = b->g, *restrict w = b->w, *restrict base = b->base;
    pl_real lambda = (pl_real)c->lambda;
    (void)at;
    if (c->form == DC_C) {
        for (size_t i = 0; i < b->n; i++) out[i] = g[i] + lambda * g[i] * g[i] * (w[i] - base[i]);
        return;
    }
    pl_real *restrict ms = b->state[0];
    pl_real decay = (pl_real)c->decay, rest = (pl_real)(1 - c->decay);
    for (size_t i = 0; i < b->n; i++) {
        ms[i] = decay * ms[i] + rest * g[i] * g[i];
        pl_real l = lambda / (pl_real)sqrt(ms[i] + (pl_real)1e-7);
        out[i] = g[i] + l * g[i] * g[i] * (w[i] - base[i]);
    }
}

static const struct pl_correct correct_dc = {
    .id = {"dc", "delay compensation: g + lambda g^2 (w - base)",
           "Zheng et al., ICML 2017 (DC-ASGD)", dc_opts, sizeof(struct dc),
           PL_NEEDS_SERVER | PL_NEEDS_BASE},
    .n_vectors = 1,
    .apply = dc_apply,
};

/* --- delay-adaptive rates ---------------------------------------------------------------- */

enum { DELAY_INVERSE, DELAY_THRESHOLD };

struct delay_adaptive {
    int rule;
};

static const struct pl_opt delay_adaptive_opts[] = {
    PL_OPT_CHOICE(struct delay_adaptive, rule, "inverse", "inverse|threshold",
                  "for n workers: n/max(n, tau) (Mishchenko), or 1/tau if tau > n (Koloskova)"),
    PL_OPT_END,
};

static double delay_adaptive_factor(const void *conf, struct pl_correct_at *at) {
    const struct delay_adaptive *c = conf;
    double lag = (double)at->lag, n = at->n_workers;
    if (lag <= n) return 1;
    return c->rule == DELAY_INVERSE ? n / lag : 1 / lag;
}

static const struct pl_correct correct_delay_adaptive = {
    .id = {"delay-adaptive", "reduce the rate only if the delay exceeds the number of workers",
           "Mishchenko et al., NeurIPS 2022; Koloskova, Stich, Jaggi, NeurIPS 2022",
           delay_adaptive_opts, sizeof(struct delay_adaptive), PL_NEEDS_SERVER},
    .factor = delay_adaptive_factor,
};

/* --- clip -------------------------------------------------------------------------------- */

struct clip {
    double c;
};

static const struct pl_opt clip_opts[] = {
    PL_OPT_REAL(struct clip, c, "1", 1e-30, 1e30, "maximum norm of a gradient"),
    PL_OPT_END,
};

static void clip_sums(const void *conf, const struct pl_correct_block *b, double *sum) {
    (void)conf;
    sum[0] += pl_vec_dot(b->g, b->g, b->n);
}

static double clip_factor(const void *conf, struct pl_correct_at *at) {
    double norm = sqrt(at->sum[0]), c = ((const struct clip *)conf)->c;
    return norm > c ? c / norm : 1;
}

static const struct pl_correct correct_clip = {
    .id = {"clip", "clip to norm c: g min(1, c/||g||)", "Erickson and Johansson, arXiv 2606.13287",
           clip_opts, sizeof(struct clip), PL_NEEDS_SERVER},
    .n_sums = 1,
    .sums = clip_sums,
    .factor = clip_factor,
};

/* --- brake: clip to a bound that comes down with the gradients ----------------------------------
 * Gradients that are too stale make the model overshoot, and gradients of a model that overshoots
 * are longer, so a bound that follows their mean length would give way. This one follows it down,
 * and up only slowly:
 *   m = decay m + (1-decay) ||g|| (at first the plain mean),   s = min(m, (1 + rise) s, …),
 *   g <- g min(1, b s/||g||).
 * s is at least a tenth of m, so a few very short gradients at the start do not stop the run. */

#define BRAKE_LEAST 0.1

struct brake {
    double b, decay, rise;
};

static const struct pl_opt brake_opts[] = {
    PL_OPT_REAL(struct brake, b, "1.25", 1e-30, 1e30,
                "maximum norm of a gradient, as a multiple of the bound s"),
    PL_OPT_REAL(struct brake, decay, "0.97", 0, 0.9999999, "decay of the running mean of norms"),
    PL_OPT_REAL(struct brake, rise, "0.0003", 0, 1, "s rises by at most this share per gradient"),
    PL_OPT_END,
};

static double brake_factor(const void *conf, struct pl_correct_at *at) {
    const struct brake *c = conf;
    double norm = sqrt(at->sum[0]), share = fmax(1 - c->decay, 1 / (double)at->count);
    double *mean = &at->number[0], *lowest = &at->number[1];
    if (norm > 0 && isfinite(norm)) {
        bool first = *mean <= 0;
        *mean = first ? norm : *mean + share * (norm - *mean);
        *lowest = first ? norm : fmin(*mean, fmax(*lowest * (1 + c->rise), BRAKE_LEAST * *mean));
    }
    double most = c->b * *lowest;
    return norm > most && most > 0 ? most / norm : 1;
}

static const struct pl_correct correct_brake = {
    .id = {"brake", "clip to b times s, which follows the mean norm down at once and up slowly", "",
           brake_opts, sizeof(struct brake), PL_NEEDS_SERVER},
    .n_sums = 1,
    .sums = clip_sums,
    .factor = brake_factor,
};

static const struct pl_entry *const correct_table[] = {&correct_none.id,
                                                       &correct_lag.id,
                                                       &correct_exp.id,
                                                       &correct_distance.id,
                                                       &correct_gap.id,
                                                       &correct_dc.id,
                                                       &correct_delay_adaptive.id,
                                                       &correct_clip.id,
                                                       &correct_brake.id,
                                                       NULL};

const struct pl_family pl_correct_family = {"correct", "how is a stale contribution corrected?",
                                            correct_table};
