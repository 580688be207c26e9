/* The twin: a policy alone, run on resampled task times, to forecast what it would do in the run.
 *
 * It is the policy's own code under a control of its own, so that whatever the policy does about
 * waiting, cancelling and staleness is in the forecast. */
#ifndef PL_CORE_TWIN_H
#define PL_CORE_TWIN_H

#include "core/tuner.h"

struct pl_twin_conf {
    const struct pl_policy *policy;
    const void *policy_conf;
    int n_workers;
    double (*draw)(void *ctx, int worker); /* seconds that its next task takes */
    void *ctx;
};

struct pl_forecast {
    double time;       /* seconds per update */
    double lag;        /* mean of the members of a group */
    double size;       /* members of a group */
    uint64_t n_played; /* results that it took to know */
};

/* Time, lag and size are NAN if no update can be expected. 0, or an error of control. */
int pl_twin_run(const struct pl_twin_conf *conf, struct pl_forecast *out, struct pl_why *why);

#endif
