/* A run as a picture of time: Chrome trace JSON, which Perfetto (ui.perfetto.dev) and
 * chrome://tracing open. One row per worker with its spans (compute, communicate, idle, wasted) and
 * its cancels, one row for the server with its commits, and counters for loss, accuracy and K.
 *
 * The file is an array of events, not the object that has them under "traceEvents": the end of an
 * array may be missing, so a file that a kill cut short still opens, while Perfetto refuses an
 * object without its end. Events are written as they happen; memory does not grow.
 *
 * Events and points must count time from the same start. Threads: one. */
#ifndef PL_OBSERVE_TRACE_H
#define PL_OBSERVE_TRACE_H

#include <stdio.h>

#include "core/control.h"

struct pl_trace;

/* Begins the trace in a file, which stays the caller's. `name` is what is run. 0 or PL_ENOMEM. */
int pl_trace_new(FILE *f, const char *name, int n_workers, struct pl_trace **out);

/* A pl_control_log; ctx is the trace. */
void pl_trace_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                    const struct pl_plan *plan);

/* An evaluation; what is not known (NAN) is left out. */
void pl_trace_point(struct pl_trace *t, const struct pl_point *p);

/* Closes what is open, ends the array and frees the trace. NULL is fine. Whether all was written is
 * known when the file is closed. */
void pl_trace_end(struct pl_trace *t, uint64_t now_ns);

#endif
