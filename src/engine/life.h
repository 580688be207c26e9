/* The life of a worker: one state, which the engine owns. Hosts report what they see, and the
 * engine decides what follows; control hears of it as PL_JOIN and PL_LEAVE, so that a recording has
 * it. */
#ifndef PL_ENGINE_LIFE_H
#define PL_ENGINE_LIFE_H

enum pl_life {
    PL_ABSENT,       /* there is none */
    PL_STARTING,     /* one is expected: its process was started, or will be */
    PL_PRESENT,      /* it takes part in the run */
    PL_DISCONNECTED, /* it takes part, and its connection is lost; it may return until a deadline */
    PL_SUSPENDED,    /* it has left the run and is still there: quarantined or frozen */
    PL_EVICTED       /* it has left the run for good and may still be there */
};
#define PL_LIVES 6

enum pl_life_event {
    /* reports of the host */
    PL_LIFE_STARTS,      /* one is expected */
    PL_LIFE_CONNECTS,    /* it is there, for the first time or again */
    PL_LIFE_DISCONNECTS, /* its connection is lost, and it may return */
    PL_LIFE_ANSWERS,     /* it sent the result of its last order */
    PL_LIFE_GOES,        /* it is gone for certain, and touches nothing any more */
    /* decisions of the engine */
    PL_LIFE_EXPIRES,     /* it did not return before its deadline */
    PL_LIFE_FREEZES,     /* its task is overdue */
    PL_LIFE_QUARANTINES, /* its results could not be used, too often in a row */
    PL_LIFE_EVICTS,      /* the same, after several quarantines */
    PL_LIFE_RETURNS      /* it has answered its last order, and its quarantine is over */
};
#define PL_LIFE_EVENTS 10

/* What control is told. */
enum pl_life_move { PL_LIFE_NO_MOVE, PL_LIFE_JOINS, PL_LIFE_LEAVES };

struct pl_life_step {
    enum pl_life to;
    enum pl_life_move move;
};
struct pl_life_step pl_life_next(enum pl_life from, enum pl_life_event event);

#endif
