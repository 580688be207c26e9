/* Rounds: every worker contributes once per update, and no worker waits while the update is made.
 *
 * Talyansky, Kisilev, Melamed, Peterfreund, Verner, "Asynchronous SGD without gradient delay for
 * efficient distributed training"; Algorithm 2, the cyclic form. A worker that contributes starts
 * its next round at once, on the update before: a round is merged while the next one is computed.
 * If a fast worker finishes again before the round is closed, its result waits for the next round,
 * so the numbers do not depend on which worker is fast. With an all-reduce in place of a server
 * this is CoCoD-SGD; with models that pull each other it is synchronous EASGD.
 *
 * give=any is Algorithm 1, fully asynchronous: a second contribution of a worker joins the same
 * round. An update is made as soon as every worker has contributed, and is the mean over workers of
 * the sum of their contributions. A worker that has computed `ahead` tasks on one version waits for
 * the next version.
 *
 * The paper waits for all of a fixed set of workers. Here k may be smaller, and a round closes when
 * every worker that is there has contributed. */
#include "paceline_policy.h"

enum { ROUNDS_ONCE, ROUNDS_ANY };

struct rounds {
    int k, give;
    int64_t ahead;
};

static const struct pl_opt rounds_opts[] = {
    PL_OPT_COUNT(struct rounds, k, "all", 1, PL_MAX_WORKERS, "workers an update waits for"),
    PL_OPT_CHOICE(
        struct rounds, give, "once", "once|any",
        "a worker's second result before an update waits for the next one, or joins this one"),
    PL_OPT_INT(struct rounds, ahead, "16", 1, 100,
               "give=any: maximum number of tasks per worker on one version"),
    PL_OPT_END,
};

static const char *rounds_check(const void *conf, int n_workers) {
    const struct rounds *c = conf;
    return c->k <= n_workers ? NULL : "k cannot be more than the number of workers";
}

static struct pl_knobs rounds_knobs(const void *conf) {
    return (struct pl_knobs){((const struct rounds *)conf)->k, PL_NO_BOUND};
}

/* give=any: until the K-th worker contributes, each of the others contributes one result on an old
 * version and up to `ahead` on the newest. */
static struct pl_sizes rounds_groups(const void *conf, int n_workers, int k) {
    const struct rounds *c = conf;
    int most = c->give == ROUNDS_ANY ? (k - 1) * (int)(c->ahead + 1) + 1 : k;
    (void)n_workers;
    return (struct pl_sizes){k, most};
}

static bool rounds_enough(const struct pl_view *v, int n_contributors) {
    return n_contributors >= v->knobs.k || n_contributors >= v->n_alive;
}

/* give=any: the worker continues unless it has done `ahead` tasks on the newest version. */
static void rounds_go_on(const struct rounds *s, const struct pl_view *v, int i,
                         struct pl_plan *p) {
    const struct pl_worker *w = &v->worker[i];
    bool may = w->base != v->version || w->task - w->first + 1 < (uint64_t)s->ahead;
    if (may) pl_start(p, i, PL_FETCH);
}

/* Commits n contributions: the mean over workers of the sum of their contributions. */
static void rounds_close(const struct rounds *s, int n, int n_contributors, struct pl_plan *p) {
    bool sums = s->give == ROUNDS_ANY && n_contributors > 0; /* every contributor may be gone */
    pl_commit(p, sums ? (double)n / n_contributors : 1);
}

/* Starts the workers that waited for the update; their deferred arrivals join the new round. */
static void rounds_release(const struct pl_view *v, int but, struct pl_plan *p) {
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) {
        if (i == but) continue;
        if (v->worker[i].deferred) pl_take_deferred(p, i, 1);
        pl_start(p, i, PL_FETCH);
    }
}

static void rounds_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    const struct rounds *s = state;
    bool gave = v->worker[a->worker].n_contributed > 0;
    if (gave && s->give == ROUNDS_ONCE) {
        if (!rounds_enough(v, v->n_contributors)) {
            pl_defer(p);
            return;
        }
        /* others left while this one computed: the round is over */
        rounds_close(s, v->n_taken, v->n_contributors, p);
        pl_take(p, 1);
        pl_start(p, a->worker, PL_FETCH);
        rounds_release(v, a->worker, p);
        return;
    }
    pl_take(p, 1);
    int n_contributors = v->n_contributors + !gave;
    bool closes = rounds_enough(v, n_contributors);
    if (s->give == ROUNDS_ONCE)
        pl_start(p, a->worker, PL_FETCH);
    else if (!closes)
        rounds_go_on(s, v, a->worker, p);
    else
        pl_start(p, a->worker, PL_FETCH);
    if (!closes) return;
    rounds_close(s, v->n_taken + 1, n_contributors, p);
    rounds_release(v, a->worker, p);
}

static void rounds_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    if (v->n_taken == 0 || !rounds_enough(v, v->n_contributors)) return;
    rounds_close(state, v->n_taken, v->n_contributors, p);
    rounds_release(v, -1, p);
}

const struct pl_policy pl_policy_rounds = {
    .id = {"rounds", "K workers contribute per update and continue at once on the previous version",
           "Talyansky et al., Asynchronous SGD without gradient delay", rounds_opts,
           sizeof(struct rounds), 0},
    .uses = PL_USES_K,
    .state_size = sizeof(struct rounds),
    .check = rounds_check,
    .knobs = rounds_knobs,
    .groups = rounds_groups,
    .arrive = rounds_arrive,
    .leave = rounds_leave,
};
