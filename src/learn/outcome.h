/* What a run came to, whoever ran it. */
#ifndef PL_LEARN_OUTCOME_H
#define PL_LEARN_OUTCOME_H

#include "core/control.h"
#include "learn/drift.h"
#include "learn/task.h"

/* Steps of the workers that are there: tasks completed, where a newcomer begins with those of the
 * slowest. The median is the lower of two in the middle; NAN where nobody is there. */
struct pl_steps {
    double min, median, max;
};

struct pl_outcome {
    double time;        /* seconds at the end */
    uint64_t time_ns;   /* the same, exactly */
    double last_update; /* seconds at the last commit */
    uint64_t updates;
    double epochs;
    struct pl_fates fates;
    struct pl_staleness staleness;
    struct pl_worker_time worker_time; /* shares; they sum to 1 */
    struct pl_score score;             /* at the end; NAN where unknown */
    double time_to_target;             /* NAN: no target, or not reached */
    int k_final;
    double consensus; /* of the workers' own models, at the last evaluation; NAN: none */
    struct pl_steps steps;
    uint64_t filtered;     /* of the rejected, those that a filter did not believe */
    struct pl_why trouble; /* why it ended before its time, or what could not be kept; or "" */
    bool diverged;         /* ended because no finite gradient came any more */
    uint64_t
        computed; /* gradients computed; more than arrived where some were computed ahead in vain */
    struct pl_drift drift; /* of the models that workers compute on */
    float *weights;         /* [dim], malloc()ed; NULL for timing alone */
};

/* How a host tells about a run while it goes on. Either may be NULL. */
struct pl_watch {
    void (*point)(void *ctx, const struct pl_point *p); /* after every evaluation */
    int (*tick)(void *ctx,
                const struct pl_point *p); /* often; loss is not evaluated; non-zero: stop */
    void *ctx;
};

/* Seconds of each kind to shares of their sum. */
struct pl_worker_time pl_worker_shares(struct pl_worker_time t);

/* The state of a run now, its losses unknown; `progress` is NULL for timing alone. */
struct pl_point pl_point_now(const struct pl_control *control, const struct pl_progress *progress,
                             uint64_t now_ns);

/* An outcome before anything has come of it. */
struct pl_outcome pl_outcome_none(void);

/* Notes an evaluation made at `p`, which gets its losses; true where a target is reached. */
bool pl_outcome_score(struct pl_outcome *out, const struct pl_limits *limits,
                      const struct pl_score *score, struct pl_point *p);

/* Fills in what is known at the end; w [dim] is the model then, and both it and `progress` are NULL
 * for timing alone. 0 or PL_ENOMEM. */
int pl_outcome_end(struct pl_outcome *out, const struct pl_control *control,
                   const struct pl_progress *progress, const float *w, size_t dim, uint64_t now_ns);

#endif
