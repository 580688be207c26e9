/* How far apart the models are that workers compute on: what is left of "all on one model" when
 * nobody waits. Looked at whenever the run is evaluated. */
#ifndef PL_LEARN_DRIFT_H
#define PL_LEARN_DRIFT_H

#include <stdbool.h>
#include <stddef.h>

struct pl_drift {
    int n_looks; /* 0: nobody looked */
    double
        from_mean; /* mean distance of a worker's model from the mean of all, summed over looks */
    double from_model; /* … from the newest version */
    double pair;       /* the largest distance of two of them, ever */
    double move;       /* the longest vector that was taken, ever */
};

#define PL_DRIFT_MAX 256 /* workers; more are not looked at */

/* One look at n models [dim]; `mean` [dim] is to work in. */
void pl_drift_look(struct pl_drift *s, const float *const *model, int n, const float *newest,
                   float *mean, size_t dim);

/* One vector that was taken. */
void pl_drift_took(struct pl_drift *s, const float *vector, size_t dim);

#endif
