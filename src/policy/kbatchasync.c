/* K-batch-async: every K-th mini-batch to arrive, of any version, makes an update.
 *
 * Dutta et al., AISTATS 2018, section 2. A worker that sends a result gets the current model at
 * once: the first K-1 workers of a group get the version of that moment, the K-th the one it
 * completed. No worker waits and none is cancelled; K = P is not fully synchronous. */
#include "paceline_policy.h"

struct kbatchasync {
    int k;
};

static const struct pl_opt kbatchasync_opts[] = {
    PL_OPT_COUNT(struct kbatchasync, k, "1", 1, PL_MAX_WORKERS,
                 "mini-batches per update; may exceed the number of workers"),
    PL_OPT_END,
};

static struct pl_knobs kbatchasync_knobs(const void *conf) {
    return (struct pl_knobs){((const struct kbatchasync *)conf)->k, PL_NO_BOUND};
}

static void kbatchasync_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                               struct pl_plan *p) {
    (void)state;
    pl_take(p, 1);
    if (v->n_taken + 1 >= v->knobs.k) pl_commit(p, 1);
    pl_start(p, a->worker, PL_FETCH);
}

const struct pl_policy pl_policy_kbatchasync = {
    .id = {"kbatchasync", "update at every K-th mini-batch, on any version; no worker waits",
           "Dutta et al., AISTATS 2018", kbatchasync_opts, sizeof(struct kbatchasync), 0},
    .uses = PL_USES_K,
    .by_batch = true,
    .state_size = sizeof(struct kbatchasync),
    .knobs = kbatchasync_knobs,
    .arrive = kbatchasync_arrive,
    .fetches = pl_always_fetches,
};
