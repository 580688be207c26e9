/* The sizes of the groups that a run commits: those of its policy, over the values of K that its
 * tuner may choose. */
#ifndef PL_CORE_GROUPS_H
#define PL_CORE_GROUPS_H

#include "base/chain.h"
#include "core/tuner.h"

/* Fills *out. A tuner that moves K begins with its own K, never goes below it, and goes up to the
 * number of workers. 0 or PL_ENOMEM. */
int pl_groups(const struct pl_choice *policy, const struct pl_choice *tuner, int n_workers,
              struct pl_sizes *out);

#endif
