/* A directory with everything that a run tells: points.jsonl (one JSON line per evaluation), an
 * event file for TensorBoard, trace.json for Perfetto, and events.txt (the event log). Nothing that
 * is there is written over.
 *
 * Events and points must count time from the same start. Threads: one. */
#ifndef PL_OBSERVE_LOGDIR_H
#define PL_OBSERVE_LOGDIR_H

#include "core/control.h"

struct pl_logdir;

/* The directory must be empty, or not there, and is made then (its parent must be there). `method`
 * is what is run, for people; the run begins now, as TensorBoard sees it. PL_EUSAGE, PL_EIO or
 * PL_ENOMEM, and then everything is as it was before. */
int pl_logdir_open(const char *dir, const char *method, int n_workers, struct pl_logdir **out,
                   struct pl_why *why);

/* After every evaluation; it is in the files when this returns. */
void pl_logdir_point(struct pl_logdir *ld, const struct pl_point *p);

/* A pl_control_log; ctx is the struct pl_logdir. */
void pl_logdir_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan);

/* What was told so far is in the files; PL_EIO where it is not (a full disk). */
int pl_logdir_flush(struct pl_logdir *ld, struct pl_why *why);

/* Ends all files; PL_EIO where something did not get into them. NULL is fine. */
int pl_logdir_close(struct pl_logdir *ld, uint64_t now_ns, struct pl_why *why);

#endif
