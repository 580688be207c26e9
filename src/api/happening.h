/* Events and decisions for the program that runs: pl_setup_events. */
#ifndef PL_API_HAPPENING_H
#define PL_API_HAPPENING_H

#include "api/setup.h"
#include "core/control.h"

struct pl_happenings {
    void (*event)(void *ctx, const struct pl_happening *happening); /* NULL: nobody listens */
    void *ctx;
    struct pl_decision *decision; /* [room] of the last event */
    size_t room;
    char policy[64];
};

/* Tells the program about an event and its plan. 0 or PL_ENOMEM. */
int pl_happenings_event(struct pl_happenings *h, const struct pl_control *c,
                        const struct pl_event *e, const struct pl_plan *plan);

#endif
