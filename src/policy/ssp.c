/* SSP, stale synchronous parallel: every gradient is applied at once, but a worker may not run
 * more than s steps ahead of the slowest.
 *
 * Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server",
 * NIPS 2013. The predicate is the one of the Owl papers (Wang, Catterall, Mortier, 2017): with
 * clocks counting completed steps, worker i may start its next step iff no worker j has
 * c_j < c_i - s. s = 0 is bulk-synchronous progress (each gradient still an update of its own),
 * s = inf is asynchronous SGD. */
#include "core/policy.h"

struct ssp {
    uint64_t s;
};

static const struct pl_opt ssp_opts[] = {
    {.name = "s",
     .type = PL_OPT_BOUND,
     .def = "4",
     .min = 0,
     .max = 1e15,
     .help = "steps a worker may be ahead of the slowest",
     .offset = offsetof(struct ssp, s)},
    {.name = NULL},
};

static struct pl_knobs ssp_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){1, PL_NO_BOUND};
}

/* Starts every idle worker that is not too far ahead. */
static void ssp_release(const struct ssp *s, const struct pl_view *v, struct pl_plan *p) {
    uint64_t slowest = UINT64_MAX;
    if (s->s != PL_NO_BOUND) {
        for (int i = 0; i < v->n_workers; i++)
            if (v->worker[i].state != PL_GONE && v->worker[i].clock < slowest)
                slowest = v->worker[i].clock;
    }
    for (int i = v->idle; i >= 0; i = pl_next(v, i))
        if (s->s == PL_NO_BOUND || v->worker[i].clock - slowest <= s->s) pl_start(p, i, PL_FETCH);
}

static void ssp_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                       struct pl_plan *p) {
    (void)a;
    pl_take(p, 1);
    pl_commit(p, 1);
    ssp_release(state, v, p);
}

static void ssp_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    ssp_release(state, v, p);
}

const struct pl_policy pl_policy_ssp = {
    .id = {.name = "ssp",
           .brief = "apply every gradient; nobody runs more than s steps ahead of the slowest",
           .paper = "Ho et al., NIPS 2013",
           .opts = ssp_opts,
           .conf_size = sizeof(struct ssp)},
    .state_size = sizeof(struct ssp),
    .knobs = ssp_knobs,
    .arrive = ssp_arrive,
    .leave = ssp_leave,
};
