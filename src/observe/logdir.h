/* A directory with all output of a run: run.json (what the run is), points.jsonl (one JSON line per
 * evaluation), an event file for TensorBoard, trace.json for Perfetto, and events.txt (the event
 * log). Existing files are never overwritten. The trace and the event log end at a limit; the
 * others grow with the number of evaluations alone.
 *
 * Events and points must count time from the same start. Threads: one. */
#ifndef PL_OBSERVE_LOGDIR_H
#define PL_OBSERVE_LOGDIR_H

#include "core/control.h"

struct pl_logdir;

/* The directory must be empty, or missing; it is then created in an existing parent. `method` names
 * the run for people. The trace and the event log are each closed when pl_logdir_flush() finds that
 * they have `max` bytes. TensorBoard counts time from this call. On failure (PL_EUSAGE, PL_EIO or
 * PL_ENOMEM) nothing is left behind. */
int pl_logdir_open(const char *dir, const char *method, int n_workers, uint64_t max,
                   struct pl_logdir **out, struct pl_why *why);

/* Writes run.json, replacing the one before: `json` is what the run is. */
int pl_logdir_run(const struct pl_logdir *ld, const char *json, struct pl_why *why);

/* Call it after every evaluation. The point is in the files when it returns. */
void pl_logdir_point(struct pl_logdir *ld, const struct pl_point *p);

/* A pl_control_log; ctx is the struct pl_logdir. */
void pl_logdir_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan);

bool pl_logdir_is_full(const struct pl_logdir *ld); /* such a file has reached the limit */

/* Flushes the files; PL_EIO if that fails for one that it has not failed for before, for example on
 * a full disk. Call it again for the next. */
int pl_logdir_flush(struct pl_logdir *ld, struct pl_why *why);

/* Closes the files and removes them: the run has not begun. */
void pl_logdir_discard(struct pl_logdir *ld);

/* Completes and closes all files; PL_EIO if a write failed. NULL is allowed. */
int pl_logdir_close(struct pl_logdir *ld, struct pl_why *why);

#endif
