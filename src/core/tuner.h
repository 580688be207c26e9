/* The tuner contract: how do the policy's K and staleness bound change during the run?
 *
 * A tuner is pure, like a policy. It watches arrivals, finished tasks and commits, and sets the
 * knobs; the policy reads them in its view, beginning with its next decision. */
#ifndef PL_CORE_TUNER_H
#define PL_CORE_TUNER_H

#include "core/policy.h"

/* What is measured at a commit; NAN if unknown. */
struct pl_measure {
    double dot; /* inner product of the reduced vector with the one before */
};

/* What a tuner knows about the run it tunes. */
struct pl_run_info {
    int n_workers;
    bool by_batch; /* of the policy */
    int k;         /* the policy's own, at the start */
};

struct pl_tuner {
    struct pl_entry id;
    unsigned moves;    /* PL_USES_…: the knobs it changes */
    size_t state_size; /* as in struct pl_policy: zeroed, begins with the conf, no pointers */

    /* Returns NULL if the tuner suits the run, otherwise a phrase for the error message. */
    const char *(*check)(const void *conf, const struct pl_run_info *);
    void (*init)(void *state, const struct pl_run_info *, struct pl_knobs *);
    /* Called before the policy sees the arrival. */
    void (*arrive)(void *state, const struct pl_run_info *, const struct pl_view *,
                   const struct pl_arrival *, struct pl_knobs *);
    /* A task ran for `seconds` until it arrived (done) or was cancelled. */
    void (*task)(void *state, double seconds, bool done);
    /* Called after a commit. If it is NULL, hosts do not measure. */
    void (*measure)(void *state, const struct pl_run_info *, const struct pl_view *,
                    const struct pl_measure *, struct pl_knobs *);
};

extern const struct pl_family pl_tuner_family;

#endif
