/* The referee: checks a plan, action by action, and applies it to the worker table, the open group
 * and the fates. */
#include <math.h>

#include "base/grow.h"
#include "base/seconds.h"
#include "core/control_state.h"

int pl_control_broke(const struct pl_control *c, struct pl_why *why, const char *how) {
    return pl_fail(why, PL_EPOLICY, "policy '%s' broke its contract: %s", c->method.policy->id.name,
                   how);
}

/* Adds an arrival of a->worker to the open group. */
static inline int referee_join_group(struct pl_control *c, struct pl_action *a,
                                     const struct control_arrival *b, struct pl_why *why) {
    size_t n = pl_control_n_members(c);
    if (!PL_GROW(c->groups.member, c->groups.room, n + 1))
        return pl_fail(why, PL_ENOMEM, "out of memory for a group of %zu", n + 1);
    struct pl_worker *w = &c->crew.worker[a->worker];
    a->task = w->task;
    if (c->replicas) pl_replicas_take(c->replicas, a->worker, a->factor);
    c->groups.member[n] = (struct pl_member){.worker = a->worker,
                                             .task = w->task,
                                             .base = w->base,
                                             .lag = c->view.version - w->base,
                                             .samples = b->samples,
                                             .factor = a->factor,
                                             .loss = b->loss,
                                             .took_ns = b->took_ns,
                                             .comm_ns = b->comm_ns};
    c->view.n_taken++;
    if (w->n_contributed++ == 0) c->view.n_contributors++;
    return PL_OK;
}

static int referee_take_deferred(struct pl_control *c, struct pl_action *a, struct pl_why *why) {
    if (!pl_control_knows(c, a->worker) || !c->crew.worker[a->worker].deferred)
        return pl_control_broke(c, why, "it took or dropped a result that did not arrive");
    c->crew.worker[a->worker].deferred = false;
    c->groups.n_deferred--;
    return referee_join_group(c, a, &c->groups.arrival[a->worker], why);
}

/* The open group is closed. It is the first of the event, so it begins where the members do. */
static void referee_commit(struct pl_control *c, struct pl_action *a) {
    const struct pl_member *end = c->groups.member + c->view.n_taken;
    struct pl_timeline *l = &c->timeline;
    c->groups.lag_max = l->lag_max;
    for (const struct pl_member *m = c->groups.member; m < end; m++) {
        l->lag_sum += m->lag;
        l->n_fresh += m->lag == 0;
        if (m->lag > l->lag_max) l->lag_max = m->lag;
        c->crew.worker[m->worker].n_contributed = 0;
    }
    c->groups.n_closed = (size_t)c->view.n_taken;
    l->fates.applied += c->groups.n_closed;
    c->view.n_taken = c->view.n_contributors = 0;
    a->version = ++c->view.version;
}

static int referee_start(struct pl_control *c, struct pl_action *a, uint64_t now_ns,
                         struct pl_why *why) {
    if (!pl_control_knows(c, a->worker) || c->crew.worker[a->worker].state != PL_IDLE)
        return pl_control_broke(c, why, "it started a worker that is not idle");
    struct pl_worker *w = &c->crew.worker[a->worker];
    if (a->from == PL_KEEP && (c->replicas || w->base == CONTROL_NO_VERSION))
        return pl_control_broke(c, why, "it let a worker keep a version it never had");
    if (w->deferred)
        return pl_control_broke(c, why, "it started a worker whose result is still deferred");
    if (c->replicas && pl_replicas_start(c->replicas, a->worker))
        return pl_fail(why, PL_ENOMEM, "out of memory for the models of %d workers",
                       c->view.n_workers);
    bool on_part = (a->row & a->col) >= 0; /* one of them is not negative */
    if (c->crew.grid_locks.side > 0 || on_part) {
        char room[128];
        const char *no = pl_grid_locks_enter(&c->crew.grid_locks, a, c->view.n_taken, room);
        if (no) return pl_control_broke(c, why, no);
    }
    w->row = a->row;
    w->col = a->col;
    pl_crew_end_idle(&c->crew, &c->view, &c->timeline, a->worker, now_ns);
    pl_crew_set_busy(&c->crew, &c->view, a->worker, now_ns);
    a->task = ++w->task;
    bool moved = a->from == PL_FETCH && w->base != c->view.version;
    if (moved) {
        w->base = c->view.version;
        w->first = a->task;
    }
    /* blocks change without a version, and the terms of a combination are read from peers */
    a->sends = moved || c->replicas || c->crew.grid_locks.side > 0;
    a->version = w->base;
    c->timeline.fates.started++;
    return PL_OK;
}

static int referee_cancel(struct pl_control *c, struct pl_action *a, uint64_t now_ns,
                          struct pl_why *why) {
    if (!pl_control_knows(c, a->worker) || c->crew.worker[a->worker].state != PL_BUSY)
        return pl_control_broke(c, why, "it cancelled a worker that is not busy");
    if (c->replicas)
        return pl_control_broke(c, why, "it cancelled a task of a worker with a model of its own");
    a->task = c->crew.worker[a->worker].task;
    double seconds = pl_seconds(now_ns - c->crew.worker[a->worker].since_ns);
    if (c->method.tuner->task) c->method.tuner->task(c->method.tuner_state, seconds, false);
    if (c->method.arms) pl_arms_task(c->method.arms, a->worker, seconds, false);
    pl_timeline_wasted(&c->timeline, a->worker, &c->crew.worker[a->worker], now_ns, "cancelled");
    pl_crew_done(&c->crew, &c->view, a->worker, now_ns);
    c->timeline.fates.cancelled++;
    return PL_OK;
}

/* The fate of the task that arrived is known. */
static inline void referee_count(struct pl_control *c, const struct pl_event *e, bool dropped) {
    struct pl_timeline *l = &c->timeline;
    double took = pl_timeline_ns(c->took_ns), sent = 0;
    if (l->watched)
        pl_timeline_row_arrived(l, e, c->took_ns, c->crew.worker[e->worker].base, dropped);
    if (dropped) {
        l->time.wasted += took;
        return;
    }
    if (e->comm_ns > 0) {
        sent = pl_timeline_ns(e->comm_ns < c->took_ns ? e->comm_ns : c->took_ns);
        l->time.communication += sent;
    }
    l->time.compute += took - sent;
}

/* A take, drop or defer of the arrival, or a take of a deferred result. */
static inline int referee_decide(struct pl_control *c, const struct pl_event *e,
                                 struct pl_action *a, bool *undecided, struct pl_why *why) {
    if (a->worker != PL_ARRIVED) return referee_take_deferred(c, a, why);
    if (!*undecided)
        return pl_control_broke(c, why,
                                e->kind == PL_ARRIVE
                                    ? "it took or dropped more than the one arrival"
                                    : "it took or dropped a result that did not arrive");
    const struct control_arrival arrival = {e->samples, e->loss, c->took_ns, e->comm_ns};
    *undecided = false;
    a->worker = e->worker;
    referee_count(c, e, a->verb == PL_DROP);
    if (a->verb == PL_TAKE) return referee_join_group(c, a, &arrival, why);
    a->task = c->crew.worker[e->worker].task;
    if (a->verb == PL_DROP) {
        c->timeline.fates.dropped++;
        pl_replicas_drop(c->replicas, e->worker);
        return PL_OK;
    }
    if (c->replicas)
        return pl_control_broke(c, why, "it deferred a result of a worker with a model of its own");
    c->groups.arrival[e->worker] = arrival;
    c->crew.worker[e->worker].deferred = true;
    c->groups.n_deferred++;
    return PL_OK;
}

static int referee_timer(struct pl_control *c, struct pl_why *why) {
    if (!c->plan.timed) return PL_OK;
    if (c->plan.timer_ns < c->view.now_ns)
        return pl_control_broke(c, why, "it set a timer to a time in the past");
    if (!c->method.policy->timer && c->plan.timer_ns != PL_NO_TIMER)
        return pl_control_broke(c, why, "it set a timer but has no timer function");
    c->view.timer_ns = c->plan.timer_ns;
    return PL_OK;
}

int pl_referee(struct pl_control *c, const struct pl_event *e, struct pl_why *why) {
    if (c->plan.overflow)
        return pl_control_broke(c, why, "its plan is longer than any correct plan");
    bool undecided = e->kind == PL_ARRIVE;
    struct pl_action *end = c->plan.action + c->plan.n;
    for (struct pl_action *a = c->plan.action; a < end; a++) {
        int rc = PL_OK;
        const char *no = NULL;
        if (a->verb == PL_START) { /* first, because it is the most frequent verb */
            rc = referee_start(c, a, e->now_ns, why);
            if (rc) return rc;
            continue;
        }
        if (!isfinite(a->factor))
            return pl_control_broke(c, why, "it used a factor that is not finite");
        switch (a->verb) {
        case PL_TAKE:
        case PL_DROP:
        case PL_DEFER: rc = referee_decide(c, e, a, &undecided, why); break;
        case PL_COMMIT:
            if (c->groups.n_closed > 0)
                return pl_control_broke(c, why, "it committed twice for one event");
            if (c->view.n_taken == 0)
                return pl_control_broke(c, why, "it committed an empty group");
            referee_commit(c, a);
            break;
        case PL_CANCEL: rc = referee_cancel(c, a, e->now_ns, why); break;
        case PL_STOP: c->stopped = true; break;
        default: no = pl_replicas_exchange(c->replicas, a); break;
        }
        if (no) return pl_control_broke(c, why, no);
        if (rc) return rc;
    }
    if (undecided)
        return pl_control_broke(c, why, "it neither took, dropped nor deferred an arrival");
    int rc = referee_timer(c, why);
    if (rc) return rc;
    if (pl_n_busy(&c->view) > 0) return PL_OK;
    if (c->view.n_alive == 0)
        c->view.timer_ns = PL_NO_TIMER; /* no worker is left to wait for it */
    else if (c->view.timer_ns == PL_NO_TIMER && !c->stopped)
        return pl_control_broke(c, why, "it stalled: no worker is busy");
    return PL_OK;
}
