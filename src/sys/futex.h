/* Sleeping on a word of memory, shared between threads or between processes. */
#ifndef PL_SYS_FUTEX_H
#define PL_SYS_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PL_FOREVER UINT64_MAX

/* Sleeps while *word == seen, until woken or until `ns` have passed. May return early. False if
 * that was because a signal handler has run. */
bool pl_futex_wait(atomic_uint *word, unsigned seen, uint64_t ns);

/* Adds one to *word and wakes every thread that sleeps on it. */
void pl_futex_ring(atomic_uint *word);

#endif
