/* Tells a computation whether its result is still wanted.
 *
 * The code that computes checks between layers. If another thread, or a process that shares memory,
 * raises the flag, the check is one load. If the news arrives as a message, look() polls for it
 * first. */
#ifndef PL_BASE_CANCEL_H
#define PL_BASE_CANCEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct pl_cancel {
    const atomic_bool *flag;
    void (*look)(void *ctx); /* may raise the flag; takes about 1 µs. NULL: not needed */
    void *ctx;
};

/* `c` may be NULL for work that is never cancelled. */
static inline bool pl_cancelled(const struct pl_cancel *c) {
    if (!c) return false;
    if (c->look) c->look(c->ctx);
    return atomic_load_explicit(c->flag, memory_order_relaxed);
}

#endif
