/* A contiguous part of a vector. */
#ifndef PL_BASE_RANGE_H
#define PL_BASE_RANGE_H

#include <stddef.h>

struct pl_range {
    size_t from, n;
};

#endif
