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
    if (e->conf.beat_ns > 0) pl_life_started(e, a->worker);
    if (!e->models.start) return e->conf.host.start(e->conf.host.ctx, start);
    struct engine_worker *w = &e->worker[a->worker];
    w->part = start->part;
    w->n_absent = 0;
    start->acked = w->acked;
    start->applied = w->applied;
    start->checks = e->workers_check;
    const struct pl_host_ops *h = &e->conf.host;
    bool writable = h->sharing && h->sharing->writable(h->ctx, a->worker);
    w->finite = writable ? PL_FINITE_WRITABLE : PL_FINITE_UNKNOWN;
    int rc = e->models.start(e, a, start);
    if (rc == PL_EPOLICY)
        return pl_control_broke(e->control, why,
                                "it keeps a version, but declares that it always fetches");
    return rc == PL_ENOMEM ? pl_engine_memory(e, "a task", why) : rc;
}

static inline int carry_commit(struct pl_engine *e, const struct pl_action *a,
                               const struct pl_action *end, struct pl_measure *measure,
                               struct pl_why *why) {
    e->last_update_ns = e->view->now_ns;
    e->out->present = e->view->n_alive;
    const struct pl_host_ops *h = &e->conf.host;
    if (h->update) h->update(h->ctx, a + 1, (size_t)(end - a - 1));
    int rc = e->models.commit ? e->models.commit(e, a, measure, why) : PL_OK;
    if (!rc && pl_switch_return(e)) rc = pl_engine_memory(e, "an earlier model", why);
    if (a->version >= e->last_version || (e->job->limits.epochs > 0 && pl_engine_reached(e)))
        pl_engine_limit_reached(e);
    return rc;
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
            if (!e->models.take) continue;
            rc = e->models.take(e, a, why);
            break;
        case PL_DROP: pl_engine_result_used(e, a->worker, false); continue;
        case PL_COMMIT:
            *committed = true;
            rc = carry_commit(e, a, end, measure, why);
            break;
        case PL_CANCEL: e->conf.host.cancel(e->conf.host.ctx, a->worker); continue;
        case PL_STOP: pl_engine_limit_reached(e); continue;
        default: continue; /* a deferred result stays where it is; the replicas do exchanges */
        }
        if (rc) return rc;
    }
    return PL_OK;
}

void pl_engine_judged(struct pl_engine *e, size_t i, bool finite) {
    size_t n;
    const struct pl_member *m = pl_control_group(e->control, &n) + i;
    if (finite) {
        pl_standing_good(e, m->worker);
        return;
    }
    struct pl_event event = {.now_ns = e->view->now_ns, .worker = m->worker, .task = m->task};
    e->workers_check = true; /* what they find is rejected before the policy decides */
    pl_control_leave_out(e->control, i);
    if (e->view->worker[m->worker].state != PL_GONE)
        pl_standing_failed(e, &event, "sent a gradient that is not finite");
}

/* What a commit measured comes as an event of its own, and so does a switch that the tuner chose at
 * it. A plan has at most one commit and these events lead to none, so they nest once. */
static int carry_measured(struct pl_engine *e, const struct pl_event *event,
                          const struct pl_measure *measure, struct pl_why *why) {
    struct pl_event measured = {.kind = PL_MEASURED, .now_ns = event->now_ns, .measure = *measure};
    return pl_engine_step(e, &measured, why);
}

int pl_engine_step(struct pl_engine *e, const struct pl_event *event, struct pl_why *why) {
    const struct pl_plan *plan;
    struct pl_measure measure = {.dot = NAN};
    bool committed = false;
    int rc = pl_control_decide(e->control, event, &plan, why);
    if (!rc) rc = carry_plan(e, plan, &committed, &measure, why);
    if (!rc) pl_control_carried_out(e->control, event, plan);
    if (!rc && event->kind == PL_SCORED && pl_switch_scored(e, event->loss))
        rc = pl_engine_memory(e, "the best model", why);
    if (!rc && committed && e->measures) rc = carry_measured(e, event, &measure, why);
    if (!rc && committed) rc = pl_switch_event(e, event->now_ns, why);
    return rc;
}
