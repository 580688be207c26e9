/* One event and what follows from it. Carrying plans out is here: the one place where an action of
 * a policy takes effect. */
#include <math.h>

#include "engine/engine_state.h"

static inline int carry_start(struct pl_engine *e, const struct pl_action *a, struct pl_why *why) {
    struct pl_start *start = &e->start;
    start->worker = a->worker;
    start->task = a->task;
    start->version = a->version;
    start->sends = a->sends;
    start->part = (struct pl_part){a->row, a->col};
    if (!e->models->start) return e->conf.host.start(e->conf.host.ctx, start);
    struct engine_worker *w = &e->worker[a->worker];
    w->part = start->part;
    start->acked = w->acked;
    start->applied = w->applied;
    start->checks = !e->judges || e->spoiled;
    int rc = e->models->start(e, a, start);
    if (rc == PL_EPOLICY)
        return pl_control_broke(e->control, why,
                                "it keeps a version, but declares that it always fetches");
    return rc == PL_ENOMEM ? pl_engine_memory(e, "a task", why) : rc;
}

void pl_engine_upcoming(const struct pl_engine *e, const struct pl_action *commit,
                        const struct pl_action *end) {
    const struct pl_host_ops *h = &e->conf.host;
    if (!h->upcoming) return;
    for (const struct pl_action *a = commit + 1; a < end; a++)
        if (a->verb == PL_START && a->from == PL_FETCH) h->upcoming(h->ctx, a->worker);
}

static inline int carry_commit(struct pl_engine *e, const struct pl_action *a,
                               const struct pl_action *end, struct pl_measure *measure,
                               struct pl_why *why) {
    e->last_update_ns = e->view->now_ns;
    if (e->conf.host.update) e->conf.host.update(e->conf.host.ctx);
    pl_engine_upcoming(e, a, end);
    int rc = e->models->commit ? e->models->commit(e, a, measure, why) : PL_OK;
    if (a->version >= e->last_version || (e->job->limits.epochs > 0 && pl_engine_reached(e)))
        pl_engine_over(e);
    return rc;
}

/* The result of a finished task is not used. */
static void carry_unused(struct pl_engine *e, int worker) {
    if (e->conf.host.unused) e->conf.host.unused(e->conf.host.ctx, worker);
}

/* *committed: the plan made an update, and *measure has its measurements. */
static inline int carry_plan(struct pl_engine *e, const struct pl_plan *plan, bool *committed,
                             struct pl_measure *measure, struct pl_why *why) {
    const struct pl_action *end = plan->action + plan->n;
    for (const struct pl_action *a = plan->action; a < end; a++) {
        int rc = PL_OK;
        if (a->verb == PL_START) { /* first, because it is the most frequent verb */
            rc = carry_start(e, a, why);
            if (rc) return rc;
            continue;
        }
        switch (a->verb) {
        case PL_TAKE:
            if (!e->models->take) continue;
            rc = e->models->take(e, a, why);
            break;
        case PL_DROP: carry_unused(e, a->worker); continue;
        case PL_COMMIT:
            *committed = true;
            rc = carry_commit(e, a, end, measure, why);
            break;
        case PL_CANCEL: e->conf.host.cancel(e->conf.host.ctx, a->worker); continue;
        case PL_STOP: pl_engine_over(e); continue;
        default: continue; /* a deferred result stays where it is; the replicas do exchanges */
        }
        if (rc) return rc;
    }
    return PL_OK;
}

/* What a commit measured comes as an event of its own. A plan has at most one commit and this event
 * leads to none, so it nests once. */
static int carry_measured(struct pl_engine *e, const struct pl_event *event,
                          const struct pl_measure *measure, struct pl_why *why) {
    struct pl_event measured = {.kind = PL_MEASURED, .now_ns = event->now_ns, .measure = *measure};
    return pl_engine_step(e, &measured, why);
}

int pl_engine_step(struct pl_engine *e, const struct pl_event *event, struct pl_why *why) {
    const struct pl_plan *plan;
    struct pl_measure measure = {.dot = NAN};
    bool committed = false;
    int rc = pl_control_step(e->control, event, &plan, why);
    if (!rc) rc = carry_plan(e, plan, &committed, &measure, why);
    if (rc || !committed || !e->measures) return rc;
    return carry_measured(e, event, &measure, why);
}
