/* How long the tasks of each worker take, in nanoseconds. The next tasks of a worker are drawn
 * together, ahead of time, which takes less time than one by one. The numbers are the same.
 *
 * Memory: 264 bytes per worker, and none if there are so many that they would not stay in the
 * caches. Threads: one. */
#ifndef PL_TIMING_AHEAD_H
#define PL_TIMING_AHEAD_H

#include "base/rng.h"
#include "timing/delay.h"

struct pl_ahead_worker {
    uint64_t first; /* the task that ns[0] belongs to */
    uint64_t ns[PL_RNG_LANES];
};

struct pl_ahead {
    const struct pl_delay *delay;
    uint64_t seed;
    uint32_t steps;                 /* mini-batches of a task */
    struct pl_ahead_worker *worker; /* NULL: tasks are drawn one by one */
};

/* `delay` must outlive it. 0 or PL_ENOMEM. */
int pl_ahead_init(struct pl_ahead *a, const struct pl_delay *delay, int n_workers, uint64_t seed,
                  uint32_t steps);
void pl_ahead_free(struct pl_ahead *a); /* zeroes are fine */

/* The slow part of pl_ahead_ns: draws the task, and those after it. */
uint64_t pl_ahead_draw(struct pl_ahead *a, uint32_t worker, uint64_t task);

/* What pl_delay_ns makes of pl_delay_draw for this task. */
static inline uint64_t pl_ahead_ns(struct pl_ahead *a, uint32_t worker, uint64_t task) {
    if (a->worker && task - a->worker[worker].first < PL_RNG_LANES)
        return a->worker[worker].ns[task - a->worker[worker].first];
    return pl_ahead_draw(a, worker, task);
}

#endif
