/* The inside of control, which control.c, referee.c and control_archive.c share. */
#ifndef PL_CORE_CONTROL_STATE_H
#define PL_CORE_CONTROL_STATE_H

#include "core/arms.h"
#include "core/control.h"
#include "core/grid_locks.h"
#include "core/replicas.h"

#define CONTROL_NO_VERSION UINT64_MAX    /* base of a worker that has not fetched since it joined */
#define CONTROL_MANY (UINT64_C(1) << 62) /* no run counts this far or lasts this many ns */

struct pl_control {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    void *policy_state, *tuner_state;
    size_t policy_size;
    struct pl_run_info info;
    struct pl_arms *arms;    /* NULL: the policy stays */
    struct pl_switch chosen; /* at the last commit */

    struct pl_view view; /* view.worker points at `worker`, view.rng at `rng` */
    struct pl_worker *worker;
    struct pl_rng rng;
    int idle_last, busy_last;
    struct pl_grid_locks grid_locks; /* if the policy has a grid */

    /* the group that the last event committed, and behind it the open one, of view.n_taken */
    struct pl_member *member;
    size_t n_closed, room;
    struct control_arrival {
        uint32_t samples;
        double loss;
        uint64_t took_ns, comm_ns;
    } * arrival; /* [n_workers] their deferred arrivals */
    int n_deferred;
    bool leaves_out;  /* its commit left a member out */
    uint64_t lag_max; /* of all groups before the one that was committed last */
    uint64_t took_ns; /* the task that has just arrived */

    struct pl_plan plan;
    bool stopped;
    struct pl_replicas *replicas; /* NULL if there is one model at the server */

    struct pl_timeline timeline;
    uint64_t max_clock;

    struct control_listener {
        pl_control_log *log;
        void *ctx;
    } decided, *listener; /* [n_listeners] */
    size_t n_listeners;
};

/* Lists of idle and busy workers: a worker leaves one anywhere and joins one at its end. */
static inline void pl_control_unlink(struct pl_control *c, const struct pl_worker *w, int *first,
                                     int *last) {
    *(w->prev >= 0 ? &c->worker[w->prev].next : first) = w->next;
    *(w->next >= 0 ? &c->worker[w->next].prev : last) = w->prev;
}

static inline void pl_control_link(struct pl_control *c, int i, int *first, int *last) {
    c->worker[i].prev = *last;
    c->worker[i].next = -1;
    *(*last >= 0 ? &c->worker[*last].next : first) = i;
    *last = i;
}

/* Changes of state. */
static inline void pl_control_end_idle(struct pl_control *c, int i, uint64_t now_ns) {
    struct pl_worker *w = &c->worker[i];
    pl_timeline_idle(&c->timeline, i, w->since_ns, now_ns);
    c->view.n_idle--;
    pl_control_unlink(c, w, &c->view.idle, &c->idle_last);
}

static inline void pl_control_end_busy(struct pl_control *c, struct pl_worker *w) {
    if (c->grid_locks.side > 0) pl_grid_locks_leave(&c->grid_locks, w->row, w->col);
    pl_control_unlink(c, w, &c->view.busy, &c->busy_last);
}

static inline void pl_control_set_idle(struct pl_control *c, int i, uint64_t now_ns) {
    c->worker[i].state = PL_IDLE;
    c->worker[i].since_ns = now_ns;
    c->view.n_idle++;
    pl_control_link(c, i, &c->view.idle, &c->idle_last);
}

static inline void pl_control_set_busy(struct pl_control *c, int i, uint64_t now_ns) {
    c->worker[i].state = PL_BUSY;
    c->worker[i].since_ns = now_ns;
    pl_control_link(c, i, &c->view.busy, &c->busy_last);
}

/* Whether there is such a worker; a negative number becomes a large one. */
static inline bool pl_control_knows(const struct pl_control *c, int worker) {
    return (unsigned)worker < (unsigned)c->view.n_workers;
}

/* Members of the closed and of the open group. */
static inline size_t pl_control_n_members(const struct pl_control *c) {
    return c->n_closed + (size_t)c->view.n_taken;
}

/* Makes the policy of an arm the one in force. 0 or PL_ENOMEM. */
int pl_control_use_arm(struct pl_control *c, int arm);

/* Checks the plan and carries it out in order. */
int pl_referee(struct pl_control *c, const struct pl_event *e, struct pl_why *why);

#endif
