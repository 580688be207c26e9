#include "learn/job.h"

#include "core/tuner.h"

struct pl_store_conf pl_job_store(const struct pl_job *job) {
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    const struct pl_tuner *tuner = (const struct pl_tuner *)job->tuner.entry;
    return (struct pl_store_conf){.dim = job->model->dim,
                                  .n_workers = job->n_workers,
                                  .correct = job->correct,
                                  .reduce = job->reduce,
                                  .k = job->k,
                                  .seed = job->seed,
                                  .optim = job->optim,
                                  .rate = job->rate,
                                  .weight_decay = local->decays ? 0 : job->weight_decay,
                                  .measures = tuner->measure != NULL};
}

int pl_job_restored(int rc, struct pl_why *why) {
    if (rc == PL_EDATA)
        return pl_fail(why, rc,
                       "the checkpoint has counts or vectors that no run comes to; its weights "
                       "alone can be used, with eval");
    return rc ? pl_fail(why, rc, "out of memory for the checkpoint") : PL_OK;
}
