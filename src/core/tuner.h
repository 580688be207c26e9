/* The tuner contract: how do the policy's K and staleness bound change during the run?
 *
 * A tuner is pure, like a policy. It watches arrivals, finished tasks and commits, and sets the
 * knobs; the policy reads them in its view, beginning with its next decision.
 *
 * A tuner with arms() may also replace the policy. An arm is a policy of the table with a K.
 * Control forecasts the time and the staleness of every arm (core/arms.h) and calls choose() after
 * every commit. If the answer is another arm, the engine makes the event PL_SWITCH, from which on
 * the new policy decides. */
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
    bool by_batch;            /* of the policy */
    int k;                    /* the policy's own, at the start */
    const struct pl_arm *arm; /* [n_arms] if the tuner has arms, */
    int n_arms;
    int current; /* the arm in force; -1: the policy that the run began with is none of them */
};

/* A policy that a tuner may switch to, and what is expected of it with the workers that are there:
 * NAN until enough tasks have been measured. */
struct pl_arm {
    const struct pl_policy *policy;
    const void *conf;
    struct pl_knobs knobs;
    double time; /* seconds per update */
    double lag;  /* mean of the members of a group */
    double size; /* members of a group */
};

/* What choose() answers. */
struct pl_switch {
    int arm;      /* to continue with; -1: the one in force */
    bool returns; /* the model becomes the best one evaluated so far, and all tasks start again */
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

    /* Names of the policies that it may switch to, with + between them: policies that use K and
     * have no state but their options, so that they can take over between two events. NULL if the
     * tuner keeps the policy; then choose is NULL as well. */
    const char *(*arms)(const void *conf);
    /* Called after a commit. */
    struct pl_switch (*choose)(void *state, const struct pl_run_info *, const struct pl_view *);
    /* The model was evaluated: its training loss. May be NULL. */
    void (*score)(void *state, const struct pl_run_info *, const struct pl_view *, double loss);
};

extern const struct pl_family pl_tuner_family;

#endif
