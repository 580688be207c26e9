/* Detects slow workers: a task that runs much longer than tasks usually take, or a worker whose
 * tasks take much longer on average than those of the others.
 *
 * Pure: it listens to the event log and is polled with a time; it reads no clock and writes
 * nothing. Threads: one. */
#ifndef PL_OBSERVE_STRAGGLERS_H
#define PL_OBSERVE_STRAGGLERS_H

#include "core/control.h"

/* A running task is slow if it exceeds this many medians of the last PL_SLOW_RING tasks and is also
 * this much longer than the median, once this many tasks have finished. */
#define PL_SLOW_RING 64
#define PL_SLOW_TASK_MEDIANS 4
#define PL_SLOW_TASK_NS 1000000000u
#define PL_SLOW_TASK_ARRIVALS 8

/* A worker is slow if its mean exceeds this many medians of the others' means, after this many
 * tasks. */
#define PL_SLOW_WORKER_MEDIANS 3
#define PL_SLOW_WORKER_TASKS 5

/* It has recovered when its last task and its mean are within this many medians of all tasks. */
#define PL_SLOW_WELL_MEDIANS 2

enum pl_stragglers_kind {
    PL_SLOW_TASK,  /* its current task has run for too long */
    PL_SLOW_WORKER /* its tasks take too long on average */
};

struct pl_stragglers_found {
    enum pl_stragglers_kind kind;
    int worker;     /* from 0 */
    double elapsed; /* seconds: of the running task, or its own mean */
    double usual;   /* seconds: the median it is compared with */
};

struct pl_stragglers;
int pl_stragglers_new(int n_workers, struct pl_stragglers **out); /* 0 or PL_ENOMEM */
void pl_stragglers_free(struct pl_stragglers *s);

/* If tasks differ in size, `work` gives the size relative to the average. Task times are divided by
 * it; tasks smaller than PL_SLOW_LITTLE are ignored. */
#define PL_SLOW_LITTLE 0.2
void pl_stragglers_work(struct pl_stragglers *s, double (*work)(const void *ctx, int row, int col),
                        const void *ctx);

/* A pl_control_log; ctx is the struct pl_stragglers. */
void pl_stragglers_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                         const struct pl_plan *plan);

/* Finds a slow worker that was not reported yet. Each is reported once until it recovers or joins
 * again. Call it until it returns false. */
bool pl_stragglers_look(struct pl_stragglers *s, const struct pl_view *v, uint64_t now_ns,
                        struct pl_stragglers_found *found);

/* "worker 3 is slow: its task has run for 12.3 s (median 0.41 s); it is computing". `phase`, here
 * "computing", may be NULL. */
void pl_stragglers_sentence(const struct pl_stragglers_found *found, const char *phase, char *out,
                            size_t max);

#endif
