/* Computes gradients ahead of time. The input of a simulated task is known when it starts, and its
 * result is needed at its virtual finish. In between, threads compute what will arrive soonest. The
 * bits do not depend on which thread computed what, or when: a task is a pure function of its
 * input.
 *
 * Threads: the simulating thread calls all functions; the pool's threads compute the gradients and
 * get memory for their results. */
#ifndef PL_SIM_PREFETCH_H
#define PL_SIM_PREFETCH_H

#include "learn/task.h"
#include "sys/pool.h"

struct pl_prefetch;

/* One worker's current task. */
struct pl_prefetch_task {
    struct pl_work work; /* first: the pool returns a pointer to it */
    struct pl_prefetch *prefetch;
    struct pl_task_at at;
    struct pl_local_state state; /* of the worker */
    uint64_t sent;               /* its last task whose result was sent; 0: none */
    int rc;
    bool finite; /* the loss and every element of the result */
    double loss;
    float *vector; /* the result; NULL: none, or it is in strips */
};

int pl_prefetch_new(const struct pl_job *job, struct pl_prefetch **out, struct pl_why *why);
void pl_prefetch_free(struct pl_prefetch *p); /* every task must have been collected or dropped */

/* The tasks of the job's workers, idle at first. */
struct pl_prefetch_task *pl_prefetch_tasks(struct pl_prefetch *p);

/* Starts t->at. Its input must not change until it is collected or dropped. 0 or PL_ENOMEM. */
int pl_prefetch_start(struct pl_prefetch *p, struct pl_prefetch_task *t, uint64_t finish_ns);

/* Waits for the result. The caller then owns t->vector and puts it back. 0, PL_ENOMEM, or what the
 * model's gradient() returned: PL_ECANCELLED after pl_prefetch_end. */
int pl_prefetch_collect(struct pl_prefetch *p, struct pl_prefetch_task *t);
void pl_prefetch_drop(struct pl_prefetch *p, struct pl_prefetch_task *t);

/* Memory for vectors, for struct pl_vector_memory; ctx is the prefetch. */
float *pl_prefetch_get(void *ctx, int writer);
void pl_prefetch_put(void *ctx, int id, int writer, float *v);

/* Sets how many tasks will certainly be needed; no more than these are begun. 0 while many tasks
 * are started or cancelled at once: the first to be started is not the first to finish. */
void pl_prefetch_need(struct pl_prefetch *p, int n);

/* The distance of the models that workers keep from task to task from their mean: sqrt(mean_i ||x_i
 * - mean||^2). NAN if they keep none. */
double pl_prefetch_consensus(const struct pl_prefetch *p);

/* False if the evaluation was given up, because the run is to end. */
bool pl_prefetch_score(struct pl_prefetch *p, const float *model, struct pl_score *out);

/* look(ctx) is called by the simulating thread while gradients and evaluations are computed. */
void pl_prefetch_look(struct pl_prefetch *p, void (*look)(void *ctx), void *ctx);
/* The run is to end: gradients are abandoned, and what is evaluated from now on is given up a
 * second later. */
void pl_prefetch_end(struct pl_prefetch *p);

uint64_t pl_prefetch_computed(const struct pl_prefetch *p); /* gradients so far */

#endif
