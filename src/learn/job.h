/* A job: everything a run is, resolved and checked, before anybody decides where it runs. The
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

/* When a run ends: at whichever comes first. Zero, or NAN for the targets: no such limit. */
struct pl_limits {
    uint64_t updates;
    double epochs, seconds;
    double target_loss, target_accuracy;
};

struct pl_job {
    const char *method; /* name of the recipe, "" where there is none */
    struct pl_choice policy, tuner, correct, optim, local, filter;
    struct pl_chain reduce;
    struct pl_sizes groups; /* contributions in a group */
    struct pl_rate rate;
    double weight_decay;
    struct pl_choice attack; /* entry NULL: nobody is hostile */

    int n_workers;
    uint32_t batch;
    uint64_t seed;
    enum pl_sampling sampling;

    struct pl_model *model; /* NULL: timing alone */
    struct pl_data *data;   /* NULL where the model wants none */
    struct pl_partition *partition;
    struct pl_grid *grid; /* the data in blocks, where the policy has a grid; NULL: no parts */
    struct pl_delay *delay;

    struct pl_limits limits;
    double eval_every;     /* seconds; 0: only at the end */
    double update_time;    /* seconds that an update takes at the server, besides computing it */
    bool spread;           /* evaluations look at how far apart the workers' models are */
    uint32_t eval_samples; /* of the training set, for the loss */
    int n_threads;
    struct pl_log log;
};

/* The store of a job that has a model; team and place are the host's to set. */
struct pl_store_conf pl_job_store(const struct pl_job *job);

uint32_t pl_job_steps(const struct pl_job *job); /* mini-batches in a task */

/* Says once, after the first commit in which a reduction's condition did not hold for the group
 * there was, that the coordinate median stood in for it. */
void pl_job_tell_median(const struct pl_job *job, const struct pl_store *store, bool *told);

/* What pl_store_archive or pl_control_archive came to when they restored, with its sentence. */
int pl_job_restored(int rc, struct pl_why *why);

#endif
