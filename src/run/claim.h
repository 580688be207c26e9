/* A folder of checkpoints belongs to one run. A run claims it before it writes there: the folder is
 * locked while the run lives, and refused if it holds the checkpoints of another run.
 *
 * Threads: any one at a time. */
#ifndef PL_RUN_CLAIM_H
#define PL_RUN_CLAIM_H

#include "base/status.h"

/* Creates `dir` if it does not exist, and locks it: *lock is a descriptor for pl_claim_release, -1
 * if the file system has no locks. `from` is the checkpoint that the run continues from, or NULL;
 * if it lies in `dir`, the checkpoints there are the run's own. */
int pl_claim_take(const char *dir, const char *from, int *lock, struct pl_why *why);
void pl_claim_release(int lock); /* -1 is fine */

#endif
