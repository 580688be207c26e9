/* A folder of checkpoints belongs to one run. A run claims it before it writes there: the folder is
 * locked while the run lives, and refused if it holds the checkpoints of another run.
 *
 * A server can note in the lock how far the run is. What it has noted survives the server, though
 * not the machine: a note from before the machine was started is not read.
 *
 * Threads: any one at a time. */
#ifndef PL_RUN_CLAIM_H
#define PL_RUN_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define PL_CLAIM_TEXT 64

struct pl_claim {
    int lock; /* -1: none, or the file system has no locks */
    /* What was noted last, first by the server before this one; run "": nothing. */
    char run[PL_CLAIM_TEXT];
    uint64_t epoch, version;
    char boot[PL_CLAIM_TEXT]; /* of the machine, since it was started */
    int length;               /* of what is in the file */
    bool made_folder, made_lock;
};

/* Creates `dir` if it does not exist, and locks it. Fails, and leaves it as it was, if a name that
 * the run would write there is taken by something that no run has written. `from` is the checkpoint
 * that the run continues from, or NULL; if it lies in `dir`, the checkpoints there are the run's
 * own. */
int pl_claim_take(const char *dir, const char *from, struct pl_claim *out, struct pl_why *why);

/* Fails if the output `path` of this option is `dir`, or would lie there under a name that the run
 * uses. "" is fine. */
int pl_claim_check_output(const char *dir, const char *option, const char *path,
                          struct pl_why *why);

void pl_claim_release(struct pl_claim *c); /* one without a lock is fine */

/* The same of a run that never began: removes what pl_claim_take has made. */
void pl_claim_discard(struct pl_claim *c, const char *dir);

/* Notes that the server with this epoch has made this version. If that cannot be written, nothing
 * is noted any more. The run is at most 63 letters, digits, '-' and '_'. */
void pl_claim_note(struct pl_claim *c, const char *run, uint64_t epoch, uint64_t version);

#endif
