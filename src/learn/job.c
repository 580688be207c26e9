#include "learn/job.h"

#include <string.h>

#include "core/tuner.h"

struct pl_store_conf pl_job_store(const struct pl_job *job) {
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    const struct pl_tuner *tuner = (const struct pl_tuner *)job->tuner.entry;
    return (struct pl_store_conf){
        .dim = job->model->dim,
        .n_workers = job->n_workers,
        .correct = job->correct,
        .reduce = job->reduce,
        .k = job->groups.least,
        .seed = job->seed,
        .optim = job->optim,
        .rate = job->rate,
        .ranges = job->ranges,
        .tensors = local->sends == PL_SENDS_GRADIENT ? job->tensors : (struct pl_model_tensors){0},
        .weight_decay = local->applies_weight_decay ? 0 : job->weight_decay,
        .max_norm = job->max_norm,
        .average = job->average,
        .sends = local->sends,
        .outer = local->outer ? local->outer(job->local.conf, job->n_workers) : 1,
        .sum_members = local->sum_members,
        .measures = tuner->measure != NULL};
}

struct pl_control_conf pl_job_control(const struct pl_job *job) {
    return (struct pl_control_conf){.policy = (const struct pl_policy *)job->policy.entry,
                                    .tuner = (const struct pl_tuner *)job->tuner.entry,
                                    .policy_conf = job->policy.conf,
                                    .tuner_conf = job->tuner.conf,
                                    .n_workers = job->n_workers,
                                    .seed = job->seed};
}

uint32_t pl_job_steps(const struct pl_job *job) {
    return ((const struct pl_local *)job->local.entry)->steps(job->local.conf);
}

void pl_job_first(const struct pl_job *job, float *w) {
    if (job->initial)
        memcpy(w, job->initial, job->model->dim * sizeof *w);
    else
        job->model->kind->init(job->model, job->seed, w);
}

int pl_job_restored(int rc, struct pl_why *why) {
    if (rc == PL_EDATA)
        return pl_fail(why, rc,
                       "the checkpoint has impossible counts or vectors and cannot be resumed; "
                       "its weights can still be used with eval");
    return rc ? pl_fail(why, rc, "out of memory for the checkpoint") : PL_OK;
}

void pl_job_tell_median(const struct pl_job *job, const struct pl_store *store, bool *told) {
    if (*told || pl_store_n_medians(store) == 0) return;
    char spec[PL_SPEC_MAX];
    pl_chain_print(&job->reduce, spec, sizeof spec);
    pl_log_warn(
        &job->log,
        "reduce '%.200s' cannot tolerate its number of hostile members in a group this small; "
        "using the coordinate-wise median; further cases will not be reported",
        spec);
    *told = true;
}
