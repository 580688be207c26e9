/* Results that are on their way to the server, and the update that is drafted meanwhile.
 *
 * If the transport announces results before their vectors are complete, the server asks the engine
 * whether the next ones lead to an update, and drafts that update while they arrive: receiving,
 * computing and sending overlap. Nothing is decided on what is not complete: the results become
 * events when they are, in the order in which they were announced. A draft is given up if a result
 * stalls, if other news waits, or if it takes too long.
 *
 * Threads: the thread that decides. */
#ifndef PL_RUN_ARRIVALS_H
#define PL_RUN_ARRIVALS_H

#include "core/control.h"
#include "transport/transport.h"

struct server;

struct pl_arrivals {
    struct pl_coming {
        int worker;
        struct pl_result result;
        bool stalled; /* a draft has waited for it in vain */
        bool over;    /* it has become an event; the news that it is complete is still to be read */
    } * coming;       /* [n] in the order in which they were announced */
    int n;
    struct pl_event *event; /* [n_workers] what they will be */
    int *worker;            /* [n_workers] whose they are */
    int n_skip, n_skipped;  /* after drafts that were of no use: occasions to let pass */
};

/* 0 or PL_ENOMEM. Without news of this kind nothing is allocated, and nothing happens below. */
int pl_arrivals_new(struct pl_arrivals *a, const struct pl_port_ops *ops, int n_workers);
void pl_arrivals_free(struct pl_arrivals *a);

void pl_arrivals_announced(struct server *s, int worker, const struct pl_result *r);
void pl_arrivals_over(struct server *s, int worker); /* it is complete, or its worker is gone */

/* After an event: drafts the next update, if it can be foreseen, and carries it out when its
 * results are complete. */
int pl_arrivals_draft(struct server *s);

#endif
