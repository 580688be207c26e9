/* When a thread waited for a core, for as long as it matters: so that of a period that began in
 * another thread, such as the way of a result, that part can be told.
 *
 * Pure. Threads: one. */
#ifndef PL_RUN_WAITS_H
#define PL_RUN_WAITS_H

#include <stdint.h>

#define PL_WAITS 256 /* the last waits; what is older counts as no wait */

struct pl_waits {
    struct {
        uint64_t from_ns, to_ns;
    } last[PL_WAITS];
    uint64_t n; /* ever noted */
};

/* The thread has waited `waited_ns` since the last call. When is not known: all of it counts as the
 * time until now. So a period that ends now or later has at least the wait that was in it. */
void pl_waits_note(struct pl_waits *w, uint64_t now_ns, uint64_t waited_ns);

/* How much of this period the thread waited. */
uint64_t pl_waits_between(const struct pl_waits *w, uint64_t from_ns, uint64_t to_ns);

#endif
