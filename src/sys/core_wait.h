/* How long a thread was ready to run but had to wait for a core, as the kernel counts it
 * (/proc/thread-self/schedstat). On a busy machine, and with more workers than cores, this is most
 * of their time. */
#ifndef PL_SYS_CORE_WAIT_H
#define PL_SYS_CORE_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

#define PL_CORE_WAIT_PAUSE 100000u /* ns between two readings: one takes about a microsecond */

/* The count of one thread, which opens and reads it. */
struct pl_core_wait {
    int fd;            /* -1: the kernel has none */
    uint64_t read_ns;  /* when it was read, */
    uint64_t count_ns; /* and what it was */
};

void pl_core_wait_open(struct pl_core_wait *c);
void pl_core_wait_close(struct pl_core_wait *c);

/* The wait since the last reading, in ns. If that was less than PL_CORE_WAIT_PAUSE ago, the count
 * is not read: 0, and the wait is part of what a later call returns. */
uint64_t pl_core_wait_ns(struct pl_core_wait *c);

/* What workers report, in memory that processes share. */
struct pl_core_waited {
    _Atomic uint64_t pull_ns;  /* of the last order, before the worker could take it */
    _Atomic uint64_t total_ns; /* of all workers that had this number */
    _Atomic uint64_t count_ns; /* what the kernel had counted at the last report, */
    atomic_int thread;         /* for this thread; 0: no worker yet */
};

struct pl_core_waited *pl_core_waited_new(int n); /* [n] zeros; NULL: out of memory */
/* A worker begins, and reports what it has waited since then or since the last report. */
void pl_core_waited_begin(struct pl_core_waited *w, const struct pl_core_wait *c);
uint64_t pl_core_waited_report(struct pl_core_waited *w, struct pl_core_wait *c);

/* The total with what was not reported yet; any process of this user may ask. */
uint64_t pl_core_waited_now(struct pl_core_waited *w);

void pl_core_waited_free(struct pl_core_waited *w, int n);

#endif
