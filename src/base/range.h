/* A contiguous part of a vector. */
#ifndef PL_BASE_RANGE_H
#define PL_BASE_RANGE_H

#include <stddef.h>

#define PL_RANGES 2 /* the most ranges that one part of the work covers */

struct pl_range {
    size_t from, n;
};

/* The length of all ranges together. A result on ranges has them one after the other. */
static inline size_t pl_range_total(const struct pl_range *range, int n) {
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += range[i].n;
    return sum;
}

#endif
