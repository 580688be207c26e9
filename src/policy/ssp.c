/* SSP, stale synchronous parallel: every gradient is applied at once, but a worker may not run
 * more than s steps ahead of the slowest.
 *
 * Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server",
 * NIPS 2013. The condition is that of the Owl papers (Wang, Catterall, Mortier, 2017): with clocks
 * that count completed steps, worker i may start its next step iff no worker j has c_j < c_i - s.
 * s = 0 is bulk-synchronous progress (each gradient is still an update of its own), s = inf is
 * asynchronous SGD. */
#include "paceline_policy.h"

struct ssp {
    uint64_t s;
};

struct ssp_state {
    struct ssp conf;
    uint64_t slowest; /* clock of the slowest worker */
    int n_slowest;    /* workers at that clock, or fewer; 0: ssp_look must find it again */
};

static const struct pl_opt ssp_opts[] = {
    PL_OPT_BOUND(struct ssp, s, "4", 0, 1e15, "steps a worker may be ahead of the slowest one"),
    PL_OPT_END,
};

static struct pl_knobs ssp_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

/* Finds the slowest clock. Every worker at it must move on before the next search, so an event is
 * cheap on average, however many workers there are. */
static void ssp_look(struct ssp_state *s, const struct pl_view *v) {
    s->slowest = UINT64_MAX;
    for (int i = 0; i < v->n_workers; i++) {
        const struct pl_worker *w = &v->worker[i];
        if (w->state == PL_GONE || w->clock > s->slowest) continue;
        if (w->clock < s->slowest) s->n_slowest = 0;
        s->slowest = w->clock;
        s->n_slowest++;
    }
}

static bool ssp_may(const struct ssp_state *s, const struct pl_view *v, int i) {
    return s->conf.s == PL_NO_BOUND || v->worker[i].clock - s->slowest <= s->conf.s;
}

/* Starts every idle worker that is not too far ahead. */
static void ssp_release(const struct ssp_state *s, const struct pl_view *v, struct pl_plan *p) {
    for (int i = v->idle; i >= 0; i = pl_next(v, i))
        if (ssp_may(s, v, i)) pl_start(p, i, PL_FETCH);
}

static void ssp_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                       struct pl_plan *p) {
    struct ssp_state *s = state;
    pl_take(p, 1);
    pl_commit(p, 1);
    if (s->n_slowest > 0 && v->worker[a->worker].clock == s->slowest + 1) s->n_slowest--;
    if (s->conf.s != PL_NO_BOUND && s->n_slowest == 0) {
        ssp_look(s, v);
        ssp_release(s, v, p);
    } else if (ssp_may(s, v, a->worker)) {
        pl_start(p, a->worker,
                 PL_FETCH); /* the slowest clock is unchanged: no other worker may start */
    }
}

/* A worker that joins has the clock of the slowest, or its own if it is alone. */
static void ssp_join(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)v;
    ((struct ssp_state *)state)->n_slowest = 0;
    pl_start(p, worker, PL_FETCH);
}

static void ssp_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    ssp_look(state, v);
    ssp_release(state, v, p);
}

const struct pl_policy pl_policy_ssp = {
    .id = {"ssp", "apply every gradient; no worker runs more than s steps ahead of the slowest",
           "Ho et al., NIPS 2013", ssp_opts, sizeof(struct ssp), 0},
    .state_size = sizeof(struct ssp_state),
    .knobs = ssp_knobs,
    .arrive = ssp_arrive,
    .fetches = pl_always_fetches,
    .join = ssp_join,
    .leave = ssp_leave,
};
