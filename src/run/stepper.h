/* A local rule for a worker that computes gradients and knows nothing of local rules: the rule runs
 * here, and whenever it needs a gradient, the worker is asked for it.
 *
 * Threads: the worker's. */
#ifndef PL_RUN_STEPPER_H
#define PL_RUN_STEPPER_H

#include "learn/task.h"
#include "run/about.h"

struct pl_stepper;

/* 0, PL_ENOMEM, or PL_EDATA if there is no such rule. */
int pl_stepper_new(const struct pl_about *about, struct pl_stepper **out);
void pl_stepper_free(struct pl_stepper *s); /* NULL is fine */

/* The gradient that is wanted: at w, to be written to g, of the step-th mini-batch. */
struct pl_step {
    const float *w;
    float *g;
    uint32_t step;
};

/* Begins a task, whose result goes to out [dim]; `acked`: the previous one's result has counted,
 * `applied`: the last task that is part of the newest version. A task that was not finished is
 * given up. */
void pl_stepper_begin(struct pl_stepper *s, const struct pl_task_at *at, bool acked,
                      uint64_t applied, float *out, struct pl_step *want);

/* The worker has written the gradient, whose mean loss is `loss`. True: another one is wanted.
 * False: the result is complete, and *loss is the mean over its mini-batches. */
bool pl_stepper_next(struct pl_stepper *s, double *loss, struct pl_step *want);

#endif
