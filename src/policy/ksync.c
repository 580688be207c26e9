/* K-sync: an update waits for the first K of P workers, all computing on the same version.
 *
 * Dutta, Joshi, Ghosh, Dube, Nagpurkar, "Slow and stale gradients can win the race: error-runtime
 * trade-offs in distributed SGD", AISTATS 2018; section 2. With cancel=no it is the backup-worker
 * scheme of Chen, Pan, Monga, Bengio, Jozefowicz, "Revisiting distributed synchronous SGD", 2016:
 * late workers finish, and their results are dropped because their version is old. K = P is fully
 * synchronous SGD.
 *
 * The papers have a fixed set of workers. Here workers come and go: when every worker that is there
 * has contributed, the group closes even if it is smaller than K. */
#include "paceline_policy.h"

struct ksync {
    int k;
    bool cancel;
};

static const struct pl_opt ksync_opts[] = {
    PL_OPT_COUNT(struct ksync, k, "all", 1, PL_MAX_WORKERS, "workers an update waits for"),
    PL_OPT_BOOL(
        struct ksync, cancel, "yes",
        "restart the other workers at an update (no: let them finish and drop their results)"),
    PL_OPT_END,
};

static const char *ksync_check(const void *conf, int n_workers) {
    const struct ksync *c = conf;
    return c->k <= n_workers ? NULL : "k cannot be more than the number of workers";
}

static struct pl_knobs ksync_knobs(const void *conf) {
    return (struct pl_knobs){((const struct ksync *)conf)->k, PL_NO_BOUND};
}

static enum pl_cancels ksync_cancels(const void *conf) {
    return ((const struct ksync *)conf)->cancel ? PL_CANCELS_ALL : PL_CANCELS_NONE;
}

static void ksync_close(const struct ksync *s, const struct pl_view *v, struct pl_plan *p) {
    pl_commit(p, 1);
    pl_start_idle(p, v);
    if (s->cancel) pl_restart_busy(p, v);
}

static void ksync_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                         struct pl_plan *p) {
    if (a->lag > 0) {
        pl_drop(p);
        pl_start(p, a->worker, PL_FETCH);
        return;
    }
    pl_take(p, 1);
    if (v->n_taken + 1 >= v->knobs.k || pl_n_busy(v) == 0) ksync_close(state, v, p);
}

static void ksync_leave(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)worker;
    if (v->n_taken > 0 && pl_n_busy(v) == 0) ksync_close(state, v, p);
}

const struct pl_policy pl_policy_ksync = {
    .id = {"ksync", "wait for the first K workers on one version; cancel or drop the rest",
           "Dutta et al., AISTATS 2018; Chen et al., arXiv 1604.00981", ksync_opts,
           sizeof(struct ksync), 0},
    .uses = PL_USES_K,
    .state_size = sizeof(struct ksync),
    .check = ksync_check,
    .knobs = ksync_knobs,
    .cancels = ksync_cancels,
    .arrive = ksync_arrive,
    .leave = ksync_leave,
};
