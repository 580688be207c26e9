/* K-batch-sync: an update waits for K mini-batches of the same version, from any workers.
 *
 * Dutta et al., AISTATS 2018, section 2. The same algorithm is Rennala SGD with B = K (Tyurin and
 * Richtarik, "Optimal time complexities of parallel stochastic optimization methods under a fixed
 * computation model", NeurIPS 2023), where B may exceed P; cancel=no is its "ignore" form. A fast
 * worker continues on the same version at once, so no worker ever waits. */
#include "paceline_policy.h"

struct kbatchsync {
    int k;
    bool cancel;
};

static const struct pl_opt kbatchsync_opts[] = {
    PL_OPT_COUNT(struct kbatchsync, k, "all", 1, PL_MAX_WORKERS,
                 "mini-batches per update; may exceed the number of workers"),
    PL_OPT_BOOL(struct kbatchsync, cancel, "yes",
                "restart busy workers at an update (no: let them finish and drop their results)"),
    PL_OPT_END,
};

static struct pl_knobs kbatchsync_knobs(const void *conf) {
    return (struct pl_knobs){((const struct kbatchsync *)conf)->k, PL_NO_BOUND};
}

static enum pl_cancels kbatchsync_cancels(const void *conf) {
    return ((const struct kbatchsync *)conf)->cancel ? PL_CANCELS_ALL : PL_CANCELS_NONE;
}

static void kbatchsync_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                              struct pl_plan *p) {
    const struct kbatchsync *s = state;
    if (a->lag > 0) {
        pl_drop(p);
        pl_start(p, a->worker, PL_FETCH);
        return;
    }
    pl_take(p, 1);
    if (v->n_taken + 1 < v->knobs.k) {
        pl_start(p, a->worker, PL_KEEP);
        return;
    }
    pl_commit(p, 1);
    pl_start(p, a->worker, PL_FETCH);
    if (s->cancel) pl_restart_busy(p, v);
}

const struct pl_policy pl_policy_kbatchsync = {
    .id = {"kbatchsync", "wait for K mini-batches on one version; fast workers compute several",
           "Dutta et al., AISTATS 2018; Tyurin and Richtarik, NeurIPS 2023", kbatchsync_opts,
           sizeof(struct kbatchsync), 0},
    .uses = PL_USES_K,
    .by_batch = true,
    .state_size = sizeof(struct kbatchsync),
    .knobs = kbatchsync_knobs,
    .cancels = kbatchsync_cancels,
    .arrive = kbatchsync_arrive,
};
