/* A strip: consecutive values of a model that a task reads in one place, and whose new values it
 * writes in another. */
#ifndef PL_BASE_STRIP_H
#define PL_BASE_STRIP_H

#include <stddef.h>

#define PL_STRIPS 2 /* the most strips of one task */

struct pl_strip {
    const float *in; /* [n] */
    float *out;      /* [n] */
    size_t n;
};

#endif
