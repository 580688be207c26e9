/* How far apart the models are that workers compute on. Measured at every evaluation. */
#ifndef PL_LEARN_DRIFT_H
#define PL_LEARN_DRIFT_H

#include <stdbool.h>
#include <stddef.h>

struct pl_drift {
    int n_looks;       /* measurements; 0: none */
    double from_mean;  /* mean distance of a model from the mean of all, summed over measurements */
    double from_model; /* … from the newest version */
    double pair;       /* the largest distance between two models */
    double move;       /* the length of the longest vector that was taken */
};

#define PL_DRIFT_MAX 256 /* with more workers it is not measured */

/* Measures n models [dim]; `mean` [dim] is scratch memory. */
void pl_drift_measure(struct pl_drift *s, const float *const *model, int n, const float *newest,
                      float *mean, size_t dim);

/* Counts a vector that was taken. */
void pl_drift_took(struct pl_drift *s, const float *vector, size_t dim);

#endif
