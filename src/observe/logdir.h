/* A directory with all output of a run: points.jsonl (one JSON line per evaluation), an event file
 * for TensorBoard, trace.json for Perfetto, and events.txt (the event log). Existing files are
 * never overwritten. The trace and the event log end at 256 MiB each; the others grow with the
 * number of evaluations alone.
 *
 * Events and points must count time from the same start. Threads: one. */
#ifndef PL_OBSERVE_LOGDIR_H
#define PL_OBSERVE_LOGDIR_H

#include "core/control.h"

struct pl_logdir;

/* The directory must be empty, or missing; it is then created in an existing parent. `method` names
 * the run for people. TensorBoard counts time from this call. On failure (PL_EUSAGE, PL_EIO or
 * PL_ENOMEM) nothing is left behind. */
int pl_logdir_open(const char *dir, const char *method, int n_workers, struct pl_logdir **out,
                   struct pl_why *why);

/* Call it after every evaluation. The point is in the files when it returns. */
void pl_logdir_point(struct pl_logdir *ld, const struct pl_point *p);

/* A pl_control_log; ctx is the struct pl_logdir. */
void pl_logdir_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan);

/* Sets another limit for the trace and the event log, for tests. */
void pl_logdir_limit(struct pl_logdir *ld, long long bytes);

/* Flushes the files; PL_EIO if that fails, for example on a full disk. */
int pl_logdir_flush(struct pl_logdir *ld, struct pl_why *why);

/* Completes and closes all files; PL_EIO if a write failed. NULL is allowed. */
int pl_logdir_close(struct pl_logdir *ld, uint64_t now_ns, struct pl_why *why);

#endif
