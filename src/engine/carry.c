/* Carrying plans out: the one place where an action of a policy takes effect. */
#include "engine/engine_state.h"

static inline int carry_start(struct pl_engine *e, const struct pl_action *a, struct pl_why *why) {
    struct pl_start start = {.worker = a->worker,
                             .task = a->task,
                             .version = a->version,
                             .base = PL_NO_VECTOR,
                             .output = PL_NO_VECTOR,
                             .sends = a->sends,
                             .part = {a->row, a->col}};
    if (!e->models->start) return e->conf.host.start(e->conf.host.ctx, &start);
    struct engine_worker *w = &e->worker[a->worker];
    w->part = start.part;
    start.acked = w->acked;
    start.applied = w->applied;
    start.checks = !e->judges || e->spoiled;
    int rc = e->models->start(e, a, &start);
    if (rc == PL_EPOLICY)
        return pl_control_broke(e->control, why,
                                "it keeps a version, but declares that it always fetches");
    return rc == PL_ENOMEM ? pl_engine_memory(e, "a task", why) : rc;
}

void pl_engine_upcoming(const struct pl_engine *e, const struct pl_plan *plan, size_t commit) {
    const struct pl_host_ops *h = &e->conf.host;
    for (size_t i = commit + 1; h->upcoming && i < plan->n; i++)
        if (plan->action[i].verb == PL_START && plan->action[i].from == PL_FETCH)
            h->upcoming(h->ctx, plan->action[i].worker);
}

static int carry_commit(struct pl_engine *e, const struct pl_plan *plan, size_t i,
                        struct pl_measure *measure, struct pl_why *why) {
    const struct pl_action *a = &plan->action[i];
    const struct pl_limits *l = &e->job->limits;
    e->last_update_ns = e->view->now_ns;
    if (e->conf.host.update) e->conf.host.update(e->conf.host.ctx);
    pl_engine_upcoming(e, plan, i);
    int rc = e->models->commit ? e->models->commit(e, a, measure, why) : PL_OK;
    if ((l->updates > 0 && a->version >= l->updates) || (l->epochs > 0 && pl_engine_reached(e)))
        pl_engine_over(e);
    return rc;
}

/* The result of a finished task is not used. */
static void carry_unused(struct pl_engine *e, int worker) {
    if (e->conf.host.unused) e->conf.host.unused(e->conf.host.ctx, worker);
}

int pl_engine_carry(struct pl_engine *e, const struct pl_plan *plan, bool *committed,
                    struct pl_measure *measure, struct pl_why *why) {
    *committed = false;
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        int rc = PL_OK;
        switch (a->verb) {
        case PL_TAKE:
            if (e->models->take) rc = e->models->take(e, a, why);
            break;
        case PL_DROP: carry_unused(e, a->worker); break;
        case PL_COMMIT:
            *committed = true;
            rc = carry_commit(e, plan, i, measure, why);
            break;
        case PL_START: rc = carry_start(e, a, why); break;
        case PL_CANCEL: e->conf.host.cancel(e->conf.host.ctx, a->worker); break;
        case PL_STOP: pl_engine_over(e); break;
        default: break; /* a deferred result stays where it is; the replicas do exchanges */
        }
        if (rc) return rc;
    }
    return PL_OK;
}
