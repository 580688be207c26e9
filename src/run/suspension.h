/* Workers that have left the run and are still there: quarantined, because their results could not
 * be used, or frozen, because no result came. For the engine they have left. Their order stands: a
 * worker that is suspended joins again once it has answered it and its quarantine is over. A
 * process that is evicted, or frozen while --respawn is set, is ended, and a guest is hung up on if
 * the transport can do that; then it is gone like any other.
 *
 * Threads: the server's executes everything here. */
#ifndef PL_RUN_SUSPENSION_H
#define PL_RUN_SUSPENSION_H

#include <stdbool.h>
#include <stdint.h>

struct server;

struct pl_suspension {
    bool away, evicted;
    bool answered;     /* its last order; from then on it waits for another one */
    uint64_t task;     /* of that order */
    uint64_t until_ns; /* end of its quarantine */
};

/* After every event: carries out what the engine decided about workers. */
int pl_suspension_verdicts(struct server *s);

/* A result came. Returns whether its worker is suspended, so that the result has its fate. */
bool pl_suspension_result(struct server *s, int worker, uint64_t task);

/* Lets workers join again that may, and finds those that are frozen. */
int pl_suspension_look(struct server *s, uint64_t now);
int pl_suspension_frozen(struct server *s, uint64_t now);

void pl_suspension_gone(struct server *s, int worker);

#endif
