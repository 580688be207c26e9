/* The files that a run writes as it goes, simulated or real: the options log, events,
 * record and log-dir. */
#ifndef PL_API_SINKS_H
#define PL_API_SINKS_H

#include "api/setup.h"
#include "learn/outcome.h"
#include "observe/logdir.h"
#include "observe/sink.h"
#include "timing/recording.h"

struct pl_sinks {
    const struct pl_setup_conf *conf;
    const char *method;
    FILE *log, *events;
    struct pl_recorder *recorder;
    struct pl_logdir *logdir;
    uint64_t last_ns; /* of the last event */
};

/* Makes the files that the setup asks for. Close them also where this fails. */
int pl_sinks_open(struct pl_sinks *s, struct pl_setup *setup, const struct pl_built *built);

/* A pl_control_log for the files that want events; NULL where none does. ctx is the pl_sinks. */
pl_control_log *pl_sinks_log(const struct pl_sinks *s);

void pl_sinks_point(const struct pl_sinks *s, const struct pl_point *p);

/* What was told so far is in the files afterwards. */
void pl_sinks_flush(const struct pl_sinks *s);

/* The run came to its end: a recording without that is one that was cut short. */
void pl_sinks_end(const struct pl_sinks *s, const struct pl_outcome *out, size_t dim);

/* Closes all of them; returns the first failure, and says it in `why` (which may be NULL). */
int pl_sinks_close(struct pl_sinks *s, struct pl_why *why);

#endif
