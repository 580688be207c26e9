/* Parts of the model. If the policy has a grid (core/policy.h), a task is on one block of it: the
 * worker is handed two ranges of the model, sweeps once over the block's ratings and sends back the
 * new values of the ranges. Without a grid a task is on everything. */
#ifndef PL_LEARN_PART_H
#define PL_LEARN_PART_H

#include "base/range.h"
#include "base/strip.h"
#include "learn/job.h"

struct pl_part {
    int row, col; /* -1: everything */
};
#define PL_WHOLE ((struct pl_part){-1, -1})

static inline bool pl_part_is(struct pl_part p) {
    return p.row >= 0;
}

int pl_part_side(const struct pl_job *job); /* of the grid; 0: there is none */

/* A part as a number, 0 for everything, and back; numbers outside the job's grid are everything. */
uint64_t pl_part_number(struct pl_part p);
struct pl_part pl_part_of(const struct pl_job *job, uint64_t number);

/* Fills in the ranges of a part and returns their number: one for everything. */
int pl_part_ranges(const struct pl_job *job, struct pl_part p, struct pl_range range[PL_STRIPS]);

/* Length of the longest range of each kind, and of the longest result of a task: one part has its
 * ranges, one after the other. */
void pl_part_longest(const struct pl_job *job, size_t most[PL_STRIPS]);
size_t pl_part_most(const struct pl_job *job);

/* Number of samples in a task on the part. */
uint32_t pl_part_samples(const struct pl_job *job, struct pl_part p);

/* How long a task on the part takes, as a multiple of the delay law's time. That is the time of an
 * average block of a grid with one row per worker, so that a law means the same speed for every
 * grid. An empty block takes as long as one rating: otherwise time would stand still if all free
 * blocks were empty. */
double pl_part_work(const struct pl_job *job, struct pl_part p);
double pl_part_share(const struct pl_job *job, struct pl_part p); /* of this grid's average */
double pl_part_size(const struct pl_job *job, struct pl_part p);  /* fraction of the vector sent */

#endif
