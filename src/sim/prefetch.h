/* Gradients ahead of need. A simulated task's result is wanted when its virtual finish comes; its
 * inputs are known when it starts. In between, threads compute what will arrive soonest. The bits
 * do not depend on who computed what when: a task is a function of (job, worker, task, version).
 *
 * Threads: everything here is called by the simulating thread; only the gradients themselves run
 * on the pool. */
#ifndef PL_SIM_PREFETCH_H
#define PL_SIM_PREFETCH_H

#include "learn/task.h"
#include "learn/replica_mean.h"
#include "sys/pool.h"

struct pl_prefetch;

/* What a task computes on, where workers have models of their own. */
struct pl_prefetch_base {
    const float *w; /* NULL: there is no memory for it */
    float *made;    /* the same, where it was made for this task and nobody else may read it yet */
};

/* One worker's current task. */
struct pl_prefetch_task {
    struct pl_work work; /* first: the pool hands this back */
    struct pl_prefetch *prefetch;
    struct pl_version version; /* as it was: its model stays, its number and rate need not */
    struct pl_part part;
    struct pl_local_state memory; /* of the worker */
    uint64_t task;
    uint32_t worker;
    int rc;
    bool finite; /* every element finite */
    double loss;
    float *vector;
    struct pl_prefetch_base *base; /* NULL: the version */
};

int pl_prefetch_new(const struct pl_job *job, struct pl_prefetch **out, struct pl_why *why);
void pl_prefetch_free(struct pl_prefetch *a); /* every task must have been collected or dropped */

/* One for every worker of the job, idle at first. */
struct pl_prefetch_task *pl_prefetch_tasks(struct pl_prefetch *a);

/* The vectors of `version` must stay until the task is collected or dropped, and so must t->base,
 * which is set before. */
int pl_prefetch_start(struct pl_prefetch *a, struct pl_prefetch_task *t, uint32_t worker,
                      uint64_t task, const struct pl_version *version, struct pl_part part,
                      uint64_t finish_ns);

/* Waits for the result; t->vector is the caller's now, to give back. 0, PL_ENOMEM, or what the
 * model's gradient() returned. */
int pl_prefetch_collect(struct pl_prefetch *a, struct pl_prefetch_task *t);
void pl_prefetch_drop(struct pl_prefetch *a, struct pl_prefetch_task *t);
void pl_prefetch_give_back(struct pl_prefetch *a, float *vector); /* NULL is fine */
float *pl_prefetch_vector(struct pl_prefetch *a); /* one to give back; NULL: out of memory */

/* How many tasks are sure to be wanted; nothing beyond is begun. 0 while tasks are started and
 * cancelled in numbers: the first to be started is not the first to finish. */
void pl_prefetch_need(struct pl_prefetch *a, int n);

struct pl_score pl_prefetch_score(struct pl_prefetch *a, const float *model);

uint64_t pl_prefetch_computed(const struct pl_prefetch *a); /* gradients, so far */

#endif
