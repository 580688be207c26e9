/* One coordinate of an average of the model: what average.c does block by block, and a kernel of
 * another device (core/offload.h) element by element. */
#ifndef PL_CORE_AVERAGE_AT_H
#define PL_CORE_AVERAGE_AT_H

#include "core/rule.h"

/* How one more version joins an average; see average.h. */
struct pl_average_at {
    pl_real *recent;      /* NULL: nothing is averaged */
    const pl_real *older; /* NULL if `recent` alone is the average */
    pl_real *shown;       /* the average; NULL if it is not wanted now, or is `recent` */
    double step;          /* of `recent` towards the version; 1: it becomes the version */
    double share;         /* of `recent` in what is shown; 1: all of it */
};

static inline pl_real pl_average_mix(pl_real from, pl_real to, double part) {
    return part == 1 ? to : from + (pl_real)part * (to - from);
}

static inline void pl_average_element(const struct pl_average_at *a, pl_real w, size_t i) {
    a->recent[i] = pl_average_mix(a->recent[i], w, a->step);
    if (a->shown) a->shown[i] = pl_average_mix(a->older[i], a->recent[i], a->share);
}

#endif
