/* K-async: an update waits for K distinct workers, each on whatever version it computed on.
 *
 * Dutta et al., AISTATS 2018, section 2. K = 1 is asynchronous SGD, K = P is synchronous SGD.
 *
 * max_lag = R adds a bound: a gradient whose lag is R or more is dropped, and its worker starts
 * again on the newest version. With K = 1 that is Ringmaster ASGD (Maranjyan, Tyurin, Richtarik,
 * ICML 2025; Algorithm 4, strict "delay < R"). stop=yes is its Algorithm 5: after an update, every
 * worker whose lag would reach R is cancelled and restarted on the new version. ABS (Tan, Zhu,
 * Zhang, arXiv 2301.08895) restarts stale workers the same way, with a bound that a tuner moves.
 *
 * early=yes starts the workers of a group before its update: each gets the version that its own
 * contribution is applied to, as in EASGD, where both ends must see the same difference. With
 * fetch = N a worker keeps its version for N contributions, as in Downpour SGD. */
#include "paceline_policy.h"

struct kasync {
    int k;
    uint64_t max_lag;
    bool stop, early;
    int64_t fetch;
};

static const struct pl_opt kasync_opts[] = {
    PL_OPT_COUNT(struct kasync, k, "1", 1, PL_MAX_WORKERS, "workers an update waits for"),
    PL_OPT_BOUND(struct kasync, max_lag, "inf", 1, 1e15,
                 "drop gradients with this staleness or more (1: accept only fresh ones)"),
    PL_OPT_BOOL(struct kasync, stop, "no",
                "restart a worker as soon as its gradient would be too stale"),
    PL_OPT_BOOL(struct kasync, early, "no",
                "start a worker before its update is applied: it computes on the previous version"),
    PL_OPT_INT(struct kasync, fetch, "1", 1, 1e6,
               "contributions per worker between fetches of the model"),
    PL_OPT_END,
};

static const char *kasync_check(const void *conf, int n_workers) {
    const struct kasync *c = conf;
    if (c->k > n_workers) return "k cannot be more than the number of workers";
    if (c->stop && c->fetch > 1)
        return "stop=yes needs fetch=1: it would cancel workers that keep an old version on "
               "purpose";
    if (c->stop && c->early)
        return "stop=yes and early=yes exclude each other: stop would cancel the workers that "
               "early "
               "has just started on an old version";
    return NULL;
}

static struct pl_knobs kasync_knobs(const void *conf) {
    const struct kasync *c = conf;
    return (struct pl_knobs){c->k, c->max_lag};
}

static enum pl_cancels kasync_cancels(const void *conf) {
    return ((const struct kasync *)conf)->stop ? PL_CANCELS_STALE : PL_CANCELS_NONE;
}

static bool kasync_fetches(const void *conf) {
    return ((const struct kasync *)conf)->fetch == 1;
}

static void kasync_start(const struct kasync *s, const struct pl_view *v, struct pl_plan *p) {
    if (s->fetch == 1) {
        pl_start_idle(p, v);
        return;
    }
    for (int i = v->idle; i >= 0; i = pl_next(v, i))
        pl_start(p, i, v->worker[i].task % (uint64_t)s->fetch == 0 ? PL_FETCH : PL_KEEP);
}

static inline void kasync_close(const struct kasync *s, const struct pl_view *v,
                                struct pl_plan *p) {
    if (s->early) kasync_start(s, v, p);
    pl_commit(p, 1);
    if (!s->early) kasync_start(s, v, p);
    if (!s->stop) return;
    for (int i = v->busy; i >= 0; i = pl_next(v, i)) {
        if (v->version + 1 - v->worker[i].base < v->knobs.bound) break; /* the others are fresher */
        pl_cancel(p, i);
        pl_start(p, i, PL_FETCH);
    }
}

static void kasync_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    if (a->lag >= v->knobs.bound) {
        pl_drop(p);
        pl_start(p, a->worker, PL_FETCH);
        return;
    }
    pl_take(p, 1);
    if (v->n_taken + 1 >= v->knobs.k || pl_n_busy(v) == 0) kasync_close(state, v, p);
}

static void kasync_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    if (v->n_taken > 0 && pl_n_busy(v) == 0) kasync_close(state, v, p);
}

const struct pl_policy pl_policy_kasync = {
    .id = {"kasync", "wait for K workers on any version, optionally only below a staleness bound",
           "Dutta et al., AISTATS 2018; Maranjyan et al., ICML 2025 (max_lag, stop)", kasync_opts,
           sizeof(struct kasync), 0},
    .uses = PL_USES_K | PL_USES_BOUND,
    .state_size = sizeof(struct kasync),
    .check = kasync_check,
    .knobs = kasync_knobs,
    .cancels = kasync_cancels,
    .arrive = kasync_arrive,
    .leave = kasync_leave,
    .fetches = kasync_fetches,
};
