/* A stretch of a vector. */
#ifndef PL_BASE_RANGE_H
#define PL_BASE_RANGE_H

#include <stddef.h>

#define PL_RANGES 2 /* stretches that a part of the work has, at most */

struct pl_range {
    size_t from, n;
};

#endif
