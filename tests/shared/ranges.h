/* Runs whose model has ranges, also that of a function, which has no tensors that a layout could
 * name. A program that includes this is linked with --wrap=pl_weights_build. */
#ifndef PL_TESTS_RANGES_H
#define PL_TESTS_RANGES_H

#include "api/weights.h"
#include "test.h"

static struct pl_ranges run_ranges; /* of every run that is built while it is set */

static void ranges_forget(void *unused) {
    run_ranges = (struct pl_ranges){NULL, 0};
}

/* Sets the ranges of all runs, until the next call or the end of the test. */
static void set_ranges(const struct pl_model_range *range, int n) {
    run_ranges = (struct pl_ranges){range, n};
    own(&run_ranges, ranges_forget);
}

int __real_pl_weights_build(struct pl_setup *s, struct pl_built *b);
int __wrap_pl_weights_build(struct pl_setup *s, struct pl_built *b);
int __wrap_pl_weights_build(struct pl_setup *s, struct pl_built *b) {
    int rc = __real_pl_weights_build(s, b);
    if (rc || run_ranges.n == 0) return rc;
    b->job.ranges = run_ranges;
    return pl_ranges_check(&run_ranges, b->job.model->dim, &s->why);
}

#endif
