/* What a worker computes: one task, from the version it was handed to the vector it sends. */
#ifndef PL_LEARN_TASK_H
#define PL_LEARN_TASK_H

#include "base/strip.h"
#include "core/local.h"
#include "learn/part.h"

/* Memory one thread needs to compute tasks and to score. */
struct pl_workspace;
int pl_workspace_new(const struct pl_job *job, struct pl_workspace **out); /* 0 or PL_ENOMEM */
void pl_workspace_free(struct pl_workspace *workspace);

/* One task: its worker and number, its part of the model, and the version it is computed on. */
struct pl_task_at {
    uint32_t worker;
    uint64_t task; /* 1, 2, … */
    struct pl_part part;
    const float *w; /* [dim] the model that the worker was handed */
    int n_strips;   /* of a task on a part, which reads and writes these, and no w or out */
    struct pl_strip strip[PL_STRIPS];
    uint64_t version; /* its number */
    double lr;        /* learning rate at that version */
};

/* Computes a task into `state` and out [dim], or its strips.
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

/* Whether a result may be applied: every element of it and the loss are finite. */
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
                  int piece, struct pl_score_piece *out, const struct pl_cancel *cancel);
struct pl_score pl_score_sum(const struct pl_job *job, const struct pl_score_piece *piece);

#endif
