/* A run as a Chrome trace in JSON, for Perfetto (ui.perfetto.dev) and chrome://tracing. Each worker
 * has a row with its spans (compute, communicate, idle, wasted) and its cancels, the server has a
 * row with its commits, and there are counters for loss, accuracy and K.
 *
 * The file is an array of events, not an object with "traceEvents": Perfetto accepts an array
 * without its end, so the file of a killed run still opens. Events are written as they happen, and
 * memory does not grow.
 *
 * Events and points must count time from the same start. Threads: one. */
#ifndef PL_OBSERVE_TRACE_H
#define PL_OBSERVE_TRACE_H

#include <stdio.h>

#include "core/control.h"

struct pl_trace;

/* Begins the trace in a file that the caller owns. `name` names the run. Returns 0 or PL_ENOMEM. */
int pl_trace_new(FILE *f, const char *name, int n_workers, struct pl_trace **out);

/* A pl_control_log; ctx is the trace. */
void pl_trace_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                    const struct pl_plan *plan);

/* Adds an evaluation; values that are NAN are left out. */
void pl_trace_point(struct pl_trace *t, const struct pl_point *p);

/* Ends the array and frees the trace. NULL is allowed. Write errors show
 * when the caller closes the file. */
void pl_trace_end(struct pl_trace *t);

#endif
