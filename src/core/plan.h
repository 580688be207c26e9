/* A plan: the actions that answer one event, in order. Policies write it with the functions of
 * policy.h; control checks it, and the engine carries it out. */
#ifndef PL_CORE_PLAN_H
#define PL_CORE_PLAN_H

#include "core/policy.h"

enum pl_verb {
    PL_TAKE,
    PL_DROP,
    PL_DEFER,
    PL_COMMIT,
    PL_START,
    PL_CANCEL,
    PL_STOP,
    PL_BLEND, /* from here on: only if workers have their own models */
    PL_PAIR,
    PL_PUSH,
    PL_ABSORB
};

/* Fields that a verb does not have are not written. */
struct pl_action {
    enum pl_verb verb;
    enum pl_from from; /* PL_START */
    int worker;        /* PL_ARRIVED: the worker that has just arrived; 0 if the verb has none */
    uint64_t task;     /* if it is about a task; filled in by control */
    uint64_t version;  /* PL_START: to compute on; PL_COMMIT: the new one; filled in by control */
    double factor;     /* PL_TAKE, PL_COMMIT; weight of the peer's model in an exchange; else 0 */
    double keep;       /* exchanges: weight of the worker's own model in a PL_BLEND */
    int peer;          /* exchanges: the partner */
    int row, col;      /* PL_START: its part; -1: everything */
    bool sends;        /* PL_START: the worker does not have its input yet; filled in by control */
};

struct pl_plan {
    struct pl_action *action;
    size_t n, room;
    bool overflow;     /* it has more actions than a correct plan can have */
    bool timed;        /* pl_timer was called, */
    uint64_t timer_ns; /* with this time */
    bool to_log;       /* set by control: the event and this plan are logged once carried out */
};

#define PL_ARRIVED (-1)

/* The largest correct plan: take, commit, stop, and per worker a cancel or a take of what was
 * deferred, and a start. */
static inline size_t pl_plan_room(int n_workers) {
    return 2 * (size_t)n_workers + 3;
}

/* With peers: one or two exchanges per worker as well. */
static inline size_t pl_plan_room_peers(int n_workers) {
    return 4 * (size_t)n_workers + 8;
}

#endif
