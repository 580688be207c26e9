/* The workers as control sees them: idle or busy, in the order in which they became so. The public
 * half of this is struct pl_view, which every function here changes. */
#ifndef PL_CORE_CREW_H
#define PL_CORE_CREW_H

#include "core/grid_locks.h"
#include "core/timeline.h"

struct pl_crew {
    struct pl_worker *worker;
    int idle_last, busy_last;        /* ends of the lists that begin in the view; -1: empty */
    struct pl_grid_locks grid_locks; /* if the policy has a grid */
    uint64_t max_clock;
};

/* A worker leaves a list anywhere and joins one at its end. */
static inline void pl_crew_unlink(struct pl_crew *c, const struct pl_worker *w, int *first,
                                  int *last) {
    *(w->prev >= 0 ? &c->worker[w->prev].next : first) = w->next;
    *(w->next >= 0 ? &c->worker[w->next].prev : last) = w->prev;
}

static inline void pl_crew_link(struct pl_crew *c, int i, int *first, int *last) {
    c->worker[i].prev = *last;
    c->worker[i].next = -1;
    *(*last >= 0 ? &c->worker[*last].next : first) = i;
    *last = i;
}

/* Changes of state. */
static inline void pl_crew_end_idle(struct pl_crew *c, struct pl_view *v, struct pl_timeline *l,
                                    int i, uint64_t now_ns) {
    pl_timeline_idle(l, i, c->worker[i].since_ns, now_ns);
    v->n_idle--;
    pl_crew_unlink(c, &c->worker[i], &v->idle, &c->idle_last);
}

static inline void pl_crew_end_busy(struct pl_crew *c, struct pl_view *v,
                                    const struct pl_worker *w) {
    if (c->grid_locks.side > 0) pl_grid_locks_leave(&c->grid_locks, w->row, w->col);
    pl_crew_unlink(c, w, &v->busy, &c->busy_last);
}

static inline void pl_crew_set_idle(struct pl_crew *c, struct pl_view *v, int i, uint64_t now_ns) {
    c->worker[i].state = PL_IDLE;
    c->worker[i].since_ns = now_ns;
    v->n_idle++;
    pl_crew_link(c, i, &v->idle, &c->idle_last);
}

static inline void pl_crew_set_busy(struct pl_crew *c, struct pl_view *v, int i, uint64_t now_ns) {
    c->worker[i].state = PL_BUSY;
    c->worker[i].since_ns = now_ns;
    pl_crew_link(c, i, &v->busy, &c->busy_last);
}

/* The end of a task after which its worker is idle. */
static inline void pl_crew_done(struct pl_crew *c, struct pl_view *v, int i, uint64_t now_ns) {
    pl_crew_end_busy(c, v, &c->worker[i]);
    pl_crew_set_idle(c, v, i, now_ns);
}

#endif
