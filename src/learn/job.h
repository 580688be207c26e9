/* A job: a complete description of a run, resolved and checked, independent of where it runs. The
 * simulator and the real server take the same job. */
#ifndef PL_LEARN_JOB_H
#define PL_LEARN_JOB_H

#include "base/log.h"
#include "core/store.h"
#include "data/data.h"
#include "data/grid.h"
#include "learn/attack.h"
#include "model/model.h"
#include "timing/delay.h"

/* The run ends at the first of these limits. Zero, or NAN for a target: no such limit. */
struct pl_limits {
    uint64_t updates;
    double epochs, seconds;
    double target_loss, target_accuracy;
};

struct pl_job {
    const char *method; /* name of the recipe, "" if there is none */
    struct pl_choice policy, tuner, correct, optim, local, filter;
    struct pl_chain reduce;
    struct pl_sizes groups; /* number of members in a group */
    struct pl_rate rate;
    double weight_decay, max_norm;
    struct pl_average_conf average;
    struct pl_model_tensors tensors; /* that results of clients may lack; borrowed */
    struct pl_ranges ranges; /* of the model, checked against its length; n == 0: none; borrowed */
    struct pl_choice attack; /* entry NULL: no worker is hostile */

    int n_workers;
    uint32_t batch;
    uint64_t seed;
    enum pl_sampling sampling;

    struct pl_model *model; /* NULL: timing alone */
    const float *initial;   /* [dim] weights to begin with; NULL: the model's own */
    struct pl_data *data;   /* NULL if the model needs none */
    struct pl_partition *partition;
    struct pl_grid *grid; /* the data in blocks, if the policy has a grid; NULL: no parts */
    struct pl_delay *delay;

    struct pl_limits limits;
    double eval_every;     /* seconds; 0: only at the end */
    double update_time;    /* extra seconds per update at the server */
    double evict;          /* seconds after which a silent worker counts as frozen; 0: never; -1:
                              learnt from the tasks so far */
    uint32_t eval_samples; /* of the training set, for the loss */
    int n_threads;
    struct pl_log log;
};

/* The store of a job that has a model; the host sets parallel_for, vectors and slice. */
struct pl_store_conf pl_job_store(const struct pl_job *job);
struct pl_control_conf pl_job_control(const struct pl_job *job);

uint32_t pl_job_steps(const struct pl_job *job);       /* mini-batches in a task */
void pl_job_first(const struct pl_job *job, float *w); /* the first weights, w [dim of the model] */

/* Warns once, after the first commit whose group was too small for the reduction's condition, that
 * the coordinate-wise median was used instead. */
void pl_job_tell_median(const struct pl_job *job, const struct pl_store *store, bool *told);

/* Turns the status of restoring an archive into an error message; returns it. */
int pl_job_restored(int rc, struct pl_why *why);

#endif
