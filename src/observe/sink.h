/* Files that a run writes: one JSON line per evaluation, and the event log as text. An existing
 * file is never overwritten. */
#ifndef PL_OBSERVE_SINK_H
#define PL_OBSERVE_SINK_H

#include <stdbool.h>
#include <stdio.h>

#include "core/control.h"

/* Creates `path`; PL_EIO if it exists or cannot be created. `what` names the option. */
int pl_sink_open(const char *what, const char *path, FILE **out, struct pl_why *why);

/* The same, except that "-" and /dev/stdout are standard output. */
int pl_sink_open_stream(const char *what, const char *path, FILE **out, struct pl_why *why);

/* Flushes a file; PL_EIO if something could not be written. NULL is allowed. */
int pl_sink_flush(const char *what, const char *path, FILE *f, struct pl_why *why);

/* Files with a line per event stop growing at about this size. */
#define PL_SINK_MAX (UINT64_C(1) << 30)
bool pl_sink_is_full(FILE *f, uint64_t max);

/* Closes it, likewise. */
int pl_sink_close(const char *what, const char *path, FILE *f, struct pl_why *why);

/* Removes the file that was opened, unless it is standard output or the name is another file's by
 * now. It still has to be closed. NULL is allowed. */
void pl_sink_discard(const char *path, FILE *f);

/* {"method":…,"time":…,"updates":…,…} */
void pl_sink_point(FILE *f, const char *method, const struct pl_point *p);

/* A pl_control_log; ctx is the FILE. */
void pl_sink_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                   const struct pl_plan *plan);

/* Writes the JSON object that describes a run, a line per member. An existing file is replaced as a
 * whole. PL_EIO, PL_ENOMEM or PL_EUSAGE. */
int pl_sink_describe(const char *path, const char *json, struct pl_why *why);

#endif
