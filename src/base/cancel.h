/* Whether a result is still wanted: a flag, and, where news of it must be fetched, a look first.
 *
 * Whoever computes asks now and then, between layers. Where somebody else raises the flag (a
 * thread, or a process with which memory is shared) that is a load; where the news comes by
 * message, look() sees whether one has come. */
#ifndef PL_BASE_CANCEL_H
#define PL_BASE_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct pl_cancel {
    const atomic_bool *flag;
    void (*look)(void *ctx); /* may raise the flag; costs about a microsecond. NULL: not needed */
    void *ctx;
};

/* NULL: nobody will ever take it back. */
static inline bool pl_cancelled(const struct pl_cancel *c) {
    if (!c) return false;
    if (c->look) c->look(c->ctx);
    return atomic_load_explicit(c->flag, memory_order_relaxed);
}

#endif
