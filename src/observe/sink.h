/* Files that a run writes as it goes: one JSON line per evaluation, and the event log as text. An
 * existing file is never written over. */
#ifndef PL_OBSERVE_SINK_H
#define PL_OBSERVE_SINK_H

#include <stdio.h>

#include "core/control.h"

/* Creates `path`; PL_EIO where it exists or cannot be made. `what` names the option. */
int pl_sink_open(const char *what, const char *path, FILE **out, struct pl_why *why);

/* Closes it; PL_EIO where anything that was written did not get there. NULL is fine. */
int pl_sink_close(const char *what, const char *path, FILE *f, struct pl_why *why);

/* {"method":…,"time":…,"updates":…,…} */
void pl_sink_point(FILE *f, const char *method, const struct pl_point *p);

/* A pl_control_log; ctx is the FILE. */
void pl_sink_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                   const struct pl_plan *plan);

#endif
