/* AdaSync's K: the three rules, and the bookkeeping that two tuners share.
 *
 * F(w_start) is the mean loss of the mini-batches that arrived in the last interval, F(w_0) the
 * mean over those computed on version 0. A server sees both without evaluating anything.
 *
 * The measured rule needs d_K = E[X_{K+1:P}] - E[X_{K:P}] of an unknown law. It keeps the last
 * PL_GROWK_TIMES task times. Under K-sync only the fastest K of P tasks finish; the others are
 * cancelled and count as censored. The survival curve is that of Kaplan and Meier (1958), continued
 * beyond the last completed task by an exponential. Its rate counts completions after the first, so
 * a constant delay (a shift) does not count as slowness. The expected order statistic is read from
 * the curve at Blom's position (K - 3/8)/(P + 1/4).
 *
 * Prefix: growk_ */
#include <math.h>
#include <string.h>

#include "tuner/adasync_rules.h"

double pl_adasync_quadratic(double k0, double f0, double f, double n_workers) {
    double c = k0 * k0 / (n_workers - k0) * (f0 / f);
    return (-c + sqrt(c * c + 4 * c * n_workers)) / 2;
}

double pl_adasync_sqrt(double k0, double f0, double f) {
    return k0 * sqrt(f0 / f);
}

int pl_adasync_discrete(int k0, double f0, double f, int k_max,
                        double (*step)(const void *ctx, int k), const void *ctx) {
    double goal = (double)k0 * (k0 + 1) * step(ctx, k0) * (f0 / f);
    for (int k = 1; k < k_max; k++)
        if ((double)k * (k + 1) * step(ctx, k) >= goal * (1 - 1e-12)) return k;
    return k_max;
}

/* A survival curve in time order: n points, share[i] still running just after time[i]. */
struct growk_curve {
    double time[PL_GROWK_TIMES], share[PL_GROWK_TIMES];
    int n;
    double rate; /* completions per second of work, from the first completion on */
    int n_workers;
};

static void growk_curve_of(const struct pl_growk *g, int n_workers, struct growk_curve *c) {
    float t[PL_GROWK_TIMES];
    int n = g->n_times < PL_GROWK_TIMES ? (int)g->n_times : PL_GROWK_TIMES;
    double exposure = 0;
    memcpy(t, g->time, sizeof t);
    for (int i = 1; i < n; i++) { /* insertion sort by length; completions before cancels */
        float x = t[i];
        int j = i;
        for (; j > 0 && (fabsf(t[j - 1]) > fabsf(x) || (t[j - 1] == -x && x > 0)); j--)
            t[j] = t[j - 1];
        t[j] = x;
    }
    *c = (struct growk_curve){.n_workers = n_workers};
    double share = 1;
    for (int i = 0; i < n; i++) {
        if (c->n > 0) exposure += fabs((double)t[i]) - c->time[0];
        if (t[i] < 0) continue;
        share *= 1.0 - 1.0 / (n - i);
        c->time[c->n] = (double)t[i];
        c->share[c->n++] = share;
    }
    c->rate = exposure > 0 ? (c->n - 1) / exposure : INFINITY;
}

/* The time at which the curve falls to `share`, linear between its points. */
static double growk_when(const struct growk_curve *c, double share) {
    double t = 0, s = 1;
    for (int i = 0; i < c->n && c->share[i] > 0; i++) {
        if (c->share[i] <= share) return t + (c->time[i] - t) * (s - share) / (s - c->share[i]);
        t = c->time[i];
        s = c->share[i];
    }
    return t + log(s / share) / c->rate;
}

static double growk_position(const struct growk_curve *c, int k) {
    return growk_when(c, 1 - (k - 0.375) / (c->n_workers + 0.25));
}

static double growk_step(const void *ctx, int k) {
    double d = growk_position(ctx, k + 1) - growk_position(ctx, k);
    return d > 1e-12 ? d : 1e-12;
}

static double growk_constant(const void *ctx, int k) {
    (void)ctx;
    (void)k;
    return 1;
}

static int growk_measured(const struct pl_growk *g, const struct pl_run_info *info, double f0,
                          double f) {
    /* K mini-batches take K E[X]/P under any law, so every step costs the same */
    if (info->by_batch)
        return pl_adasync_discrete(g->k0, f0, f, info->n_workers, growk_constant, NULL);
    struct growk_curve curve;
    growk_curve_of(g, info->n_workers, &curve);
    if (curve.n < 2 || !(curve.rate > 0)) return g->k0;
    return pl_adasync_discrete(g->k0, f0, f, info->n_workers, growk_step, &curve);
}

const char *pl_growk_check(const struct pl_growk_conf *c, const struct pl_run_info *info) {
    int64_t k0 = c->k0 > 0 ? c->k0 : info->k;
    return k0 < info->n_workers || k0 == 1
               ? NULL
               : "K cannot grow because it starts at the number of workers; set a smaller k0 or k";
}

void pl_growk_init(struct pl_growk *g, const struct pl_growk_conf *c, struct pl_knobs *knobs) {
    if (c->k0 > 0) knobs->k = (int)c->k0;
    g->k0 = knobs->k;
}

void pl_growk_task(struct pl_growk *g, double seconds, bool done) {
    float s = seconds > 0 ? (float)seconds : 1e-9f;
    g->seconds += seconds;
    g->n_ended++;
    g->time[g->n_times++ % PL_GROWK_TIMES] = done ? s : -s;
}

static double growk_choose(const struct pl_growk *g, int rule, const struct pl_run_info *info,
                           double f0, double f) {
    switch (rule) {
    case PL_GROWK_QUADRATIC: return pl_adasync_quadratic(g->k0, f0, f, info->n_workers);
    case PL_GROWK_SQRT: return pl_adasync_sqrt(g->k0, f0, f);
    default: return growk_measured(g, info, f0, f);
    }
}

void pl_growk_arrive(struct pl_growk *g, const struct pl_growk_conf *c,
                     const struct pl_run_info *info, const struct pl_view *v,
                     const struct pl_arrival *a, struct pl_knobs *knobs) {
    if (isfinite(a->loss) && v->worker[a->worker].base == 0) {
        g->f0_sum += a->loss;
        g->f0_n++;
    }
    double tasks = g->n_ended > 0 ? (double)g->n_ended : 1;
    double every = c->every > 0 ? c->every : PL_GROWK_EVERY * g->seconds / tasks;
    if ((double)(v->now_ns - g->began_ns) >= every * 1e9) {
        if (g->n > 0 && g->f0_n > 0 && g->k0 < info->n_workers) {
            int rule = c->rule != PL_GROWK_AUTO ? c->rule
                       : info->by_batch         ? PL_GROWK_SQRT
                                                : PL_GROWK_QUADRATIC;
            double f = g->sum / (double)g->n, f0 = g->f0_sum / (double)g->f0_n;
            double k = f > 0 && f0 > 0 ? round(growk_choose(g, rule, info, f0, f)) : 0;
            if (k > info->n_workers) k = info->n_workers;
            if (k > knobs->k) knobs->k = (int)k; /* K never falls */
        }
        g->began_ns = v->now_ns;
        g->sum = 0;
        g->n = 0;
    }
    if (isfinite(a->loss)) {
        g->sum += a->loss;
        g->n++;
    }
}
