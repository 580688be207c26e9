/* What a worker computes: one task, from the version it was handed to the vector it sends. */
#ifndef PL_LEARN_TASK_H
#define PL_LEARN_TASK_H

#include "learn/part.h"

/* Memory one thread needs to compute tasks and to score. */
struct pl_workspace;
int pl_workspace_new(const struct pl_job *job, struct pl_workspace **out); /* 0 or PL_ENOMEM */
void pl_workspace_free(struct pl_workspace *workspace);

/* What a worker keeps from task to task: as the previous task left it, and as this one writes it.
 * What a task wrote counts once the server has acknowledged its result. If the result crossed its
 * cancel on the way, it never counts. */
struct pl_local_state {
    int n;                         /* vectors; 0: it keeps nothing */
    float *prev[PL_LOCAL_VECTORS]; /* [dim] each */
    float *next[PL_LOCAL_VECTORS];
    bool any;                            /* `prev` has been written, */
    uint64_t prev_task, next_task;       /* by this task, */
    uint64_t prev_version, next_version; /* on this version */
    uint64_t applied;                    /* the last task that is part of the newest version */
};
int pl_local_state_new(const struct pl_job *job, struct pl_local_state *out); /* 0 or PL_ENOMEM */
void pl_local_state_free(struct pl_local_state *m);
void pl_local_state_forget(struct pl_local_state *m); /* the next task is its first */
void pl_local_state_acked(struct pl_local_state *m);  /* what this task wrote counts */

/* One task: its worker and number, its part of the model, and the version it is computed on. */
struct pl_task_at {
    uint32_t worker;
    uint64_t task; /* 1, 2, … */
    struct pl_part part;
    const float *w; /* [dim] the model that the worker was handed */
    /* If strip_in[0] is not NULL, range i of the part is read there and not in w, and its new
     * values are written to strip_out[i]. */
    const float *strip_in[PL_RANGES];
    float *strip_out[PL_RANGES];
    uint64_t version; /* its number */
    double lr;        /* learning rate at that version */
};

/* Computes a task into `state` and the ranges of its part in out [dim]; the rest of `out` stays.
 * A pure function of (job, task, local state): the same bits on any thread. 0 or PL_ECANCELLED. */
int pl_task_run(const struct pl_job *job, struct pl_workspace *workspace,
                const struct pl_task_at *at, struct pl_local_state *state, float *out, double *loss,
                const struct pl_cancel *cancel);

/* Without a server the worker takes the step itself: its result, out [dim], becomes its model after
 * the step from w, whatever its local rule sends. */
struct pl_own_step {
    double lr, decay;
    double outer; /* factor on deltas */
    struct pl_ranges ranges;
};
void pl_task_own(enum pl_sends sends, const struct pl_own_step *step, const float *w, float *out,
                 size_t dim);

/* Replaces the vectors of the hostile members of an open group, member[n], for attacks that depend
 * on what the honest members sent. 0 or PL_ENOMEM. */
int pl_task_forge(const struct pl_job *job, const struct pl_group_vector *member, int n);

/* Whether a result may be applied: every element of its part and the loss are finite. */
bool pl_task_finite(const struct pl_job *job, const struct pl_task_at *at, float *out, double loss);

/* --- evaluation -------------------------------------------------------------------------- */

struct pl_score {
    double loss;                     /* on a fixed subset of the training set */
    double test_loss, test_accuracy; /* NAN if there is no test set */
};

#define PL_SCORE_ROWS 250 /* rows scored at a time; fixed, so that sums have the same bits */

/* Evaluation in independent pieces, for a pool: number of pieces, one piece, their sum. */
int pl_score_pieces(const struct pl_job *job);
struct pl_score_piece {
    double loss;
    uint32_t n_right;
};
void pl_score_run(const struct pl_job *job, struct pl_workspace *workspace, const float *w,
                  int piece, struct pl_score_piece *out);
struct pl_score pl_score_sum(const struct pl_job *job, const struct pl_score_piece *piece);

#endif
