/* The outcome of a run, whatever its host. */
#ifndef PL_LEARN_OUTCOME_H
#define PL_LEARN_OUTCOME_H

#include "base/log.h"
#include "core/control.h"
#include "learn/task.h"

/* Steps of the workers that are present: tasks completed; a newcomer begins with those of the
 * slowest. The median is the lower of the two in the middle. NAN if no worker is present. */
struct pl_steps {
    double min, median, max;
};

struct pl_outcome {
    double time;        /* seconds at the end */
    uint64_t time_ns;   /* the same, exactly */
    double last_update; /* seconds at the last commit */
    uint64_t updates;
    double epochs; /* NAN: it is not known how many samples one has */
    struct pl_fates fates;
    struct pl_staleness staleness;
    struct pl_worker_time worker_time; /* shares; they sum to 1 */
    struct pl_score score;             /* at the end; NAN if unknown */
    double core_wait;      /* seconds that workers waited for a core; NAN: not measured */
    double scored;         /* seconds at that evaluation; NAN: none yet */
    double time_to_target; /* NAN: no target, or not reached */
    double target_within;  /* it was reached at most so much earlier or later */
    int present;           /* workers at the last update */
    int k_final;           /* as pl_control_k gives it for them */
    char policy_final[64]; /* as pl_control_policy gives it */
    double consensus;      /* of the workers' own models, at the last evaluation; NAN: none */
    struct pl_steps steps;
    uint64_t filtered;      /* rejected results that a filter did not believe */
    uint64_t n_quarantines; /* times that a worker left because its results could not be used, */
    uint64_t n_evicted;     /* … for good; */
    uint64_t n_frozen;      /* … because no result came for too long */
    int n_disconnected;     /* workers whose connection is lost now, and that may return */
    struct pl_why trouble;  /* why it ended early, or what could not be written; or "" */
    bool left_alone;        /* it ended because no worker was left */
    bool diverged;          /* it ended because no gradient was finite any more */
    /* What clients reported: the loss of the first result that had one, the first finite test loss,
     * and the last test loss, which may be infinite. NAN: none. */
    double first_loss, first_test_loss, last_test_loss;
    uint64_t computed; /* gradients computed, also those that were cancelled afterwards */
    float *weights;    /* [dim], malloc()ed; NULL without a model */
};

/* How a host reports on a run. Either function may be NULL. */
struct pl_watch {
    void (*point)(void *ctx, const struct pl_point *p); /* after every evaluation */
    /* Often, without losses; a result other than 0 ends the run. */
    int (*tick)(void *ctx, const struct pl_point *p);
    void *ctx;
};

/* The current state of a run, without losses; `progress` is NULL without a model. */
struct pl_point pl_point_now(const struct pl_control *control, const struct pl_progress *progress,
                             uint64_t now_ns);

/* An outcome in which everything is unknown. */
struct pl_outcome pl_outcome_none(void);

/* If the run is interrupted, an evaluation that takes longer than this is given up. */
#define PL_LAST_SCORE_NS 1000000000u

/* Says that the model at the end was not evaluated, and of when the losses are. */
void pl_outcome_unscored(const struct pl_outcome *out, const struct pl_log *log);

/* Whether a score meets a target. */
bool pl_score_meets(const struct pl_score *score, const struct pl_limits *limits);

/* Enters an evaluation at `p`, and fills in its losses. Returns whether a target is reached. The
 * first time that happened in the middle between this evaluation and the one before it, or half of
 * the time between them earlier or later. */
bool pl_outcome_score(struct pl_outcome *out, const struct pl_limits *limits,
                      const struct pl_score *score, struct pl_point *p);

/* Fills in what is known at the end. w [dim] is the final model; w is NULL if this process does not
 * have it, and `progress` as well without a model. 0 or PL_ENOMEM. */
int pl_outcome_end(struct pl_outcome *out, const struct pl_control *control,
                   const struct pl_progress *progress, const float *w, size_t dim, uint64_t now_ns);

#endif
