/* How long a thread was ready to run but had to wait for a core, as the kernel counts it
 * (/proc/thread-self/schedstat). With more workers than cores this is most of their time. */
#ifndef PL_SYS_CORE_WAIT_H
#define PL_SYS_CORE_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* The count of one thread, which opens and reads it. -1: the kernel has none. */
struct pl_core_wait {
    int fd;
};

void pl_core_wait_open(struct pl_core_wait *c);
void pl_core_wait_close(struct pl_core_wait *c);
uint64_t pl_core_wait_ns(const struct pl_core_wait *c); /* since the thread began; 0 if unknown */

/* What workers report, in memory that processes share. */
struct pl_core_waited {
    _Atomic uint64_t pull_ns;  /* of the last order, before the worker could take it */
    _Atomic uint64_t total_ns; /* of all workers that had this number */
};

struct pl_core_waited *pl_core_waited_new(int n); /* [n] zeros; NULL: out of memory */
void pl_core_waited_free(struct pl_core_waited *w, int n);

#endif
