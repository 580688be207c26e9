/* Parts of the work. Where the policy has a grid (core/policy.h), a task is on one block of it: the
 * worker is handed two ranges of the model, sweeps once over the block's ratings and sends the
 * ranges back as they are then. Elsewhere there is one part, everything. */
#ifndef PL_LEARN_PART_H
#define PL_LEARN_PART_H

#include "base/range.h"
#include "learn/job.h"

struct pl_part {
    int row, col; /* -1: everything */
};
#define PL_WHOLE ((struct pl_part){-1, -1})

static inline bool pl_part_is(struct pl_part p) {
    return p.row >= 0;
}

/* A number for it, 0 for everything, and back: what lies outside the job's grid is everything. */
uint64_t pl_part_number(struct pl_part p);
struct pl_part pl_part_of(const struct pl_job *job, uint64_t number);

/* Its ranges of the model, and how many they are: one for everything. */
int pl_part_ranges(const struct pl_job *job, struct pl_part p, struct pl_range range[PL_RANGES]);

/* Samples in what comes of a task on it. */
uint32_t pl_part_samples(const struct pl_job *job, struct pl_part p);

/* How long a task on it takes, as a multiple of what a delay law is for: the average block of a
 * grid that has a row for every worker, so that one law is as fast whatever the grid. An empty
 * block takes as long as one rating: where all free ones are, time would stand still. And how much
 * of the vector is sent for it. */
double pl_part_work(const struct pl_job *job, struct pl_part p);
double pl_part_share(const struct pl_job *job, struct pl_part p); /* the same for this grid */
double pl_part_size(const struct pl_job *job, struct pl_part p);

/* Whether results that are not sound, so many in a row of everybody and of one worker, will never
 * end. Whoever has a part has it alone and does it again: nobody else changes what it gets. */
bool pl_part_diverged(const struct pl_job *job, uint64_t of_all, uint64_t of_one);

#endif
