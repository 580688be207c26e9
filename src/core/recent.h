/* The median of the last PL_RECENT values: how long tasks take of late. A value costs a search and
 * a move of at most 2 KB.
 *
 * Pure. Threads: one. */
#ifndef PL_CORE_RECENT_H
#define PL_CORE_RECENT_H

#include <stdint.h>

#define PL_RECENT 256

struct pl_recent {
    uint64_t n;                 /* ever added */
    uint64_t value[PL_RECENT];  /* the last ones, in a ring, */
    uint64_t sorted[PL_RECENT]; /* and in ascending order */
};

void pl_recent_add(struct pl_recent *r, uint64_t value);

/* The lower of two middle values; 0 if there are none. */
uint64_t pl_recent_median(const struct pl_recent *r);

#endif
