/* A local rule in operation: a task of one worker, mini-batch by mini-batch. The library's own
 * workers, programs that compute gradients, and programs with an optimizer of their own all run
 * their tasks through this. Nothing here waits, computes a gradient or keeps a stack: between two
 * calls, the caller holds all of it. */
#ifndef PL_CORE_LOCAL_H
#define PL_CORE_LOCAL_H

#include "base/chain.h"
#include "core/rule.h"

/* What a worker keeps from task to task: as the previous task left it, and as this one writes it.
 * What a task wrote counts once the server has acknowledged its result. If the result crossed its
 * cancel on the way, it never counts. */
struct pl_local_state {
    int n;                           /* number of vectors */
    pl_real *prev[PL_LOCAL_VECTORS]; /* [dim] each */
    pl_real *next[PL_LOCAL_VECTORS];
    bool any;                            /* `prev` has been written, */
    uint64_t prev_task, next_task;       /* by this task, */
    uint64_t prev_version, next_version; /* on this version */
    uint64_t applied;                    /* the last task that is part of the newest version */
};

/* Returns 0 or PL_ENOMEM. */
int pl_local_state_new(const struct pl_choice *local, size_t dim, struct pl_local_state *out);
void pl_local_state_free(struct pl_local_state *m);
void pl_local_state_forget(struct pl_local_state *m); /* the next task is its first */
void pl_local_state_acked(struct pl_local_state *m);  /* what this task wrote counts */

/* Whether a result is the gradient of one mini-batch, as it was computed. */
bool pl_local_is_gradient(const struct pl_choice *local);

/* The current task. */
struct pl_local_steps {
    const struct pl_local *rule;
    const void *conf;
    struct pl_local_task task;
    uint32_t n;      /* mini-batches of the task */
    uint32_t done;   /* of those, before the current ones */
    uint32_t wanted; /* number of current ones: 1, or more if an optimizer of the caller moves x */
    double loss;     /* sum of the losses so far; when the task is complete, their mean */
};

/* Begins task number `task` on `version`. `t` has what the caller fills in, apart from `prev`,
 * `next`, `again` and `merged`, which are in `state`. Afterwards the caller computes the gradient
 * of the mini-batch `done` at task.at into task.g; or, if task.moved, takes `wanted` steps on
 * task.x. */
void pl_local_begin(const struct pl_choice *local, const struct pl_local_task *t,
                    struct pl_local_state *state, uint64_t task, uint64_t version,
                    struct pl_local_steps *out);

/* The caller has done so, and `loss` is the mean of what it found. Returns true if more is wanted,
 * and false if the result is complete. */
bool pl_local_next(struct pl_local_steps *s, double loss);

#endif
