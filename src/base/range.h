/* A contiguous part of a vector. */
#ifndef PL_BASE_RANGE_H
#define PL_BASE_RANGE_H

#include <stddef.h>

#define PL_RANGES 2 /* the most ranges that one part of the work covers */

struct pl_range {
    size_t from, n;
};

#endif
