/* What a run writes, shows and tells the program, simulated or real: --log, --events, --record,
 * --log-dir, --history, --dashboard, and pl_setup_events. */
#ifndef PL_API_SINKS_H
#define PL_API_SINKS_H

#include "api/happening.h"
#include "api/identity.h"
#include "observe/dashboard.h"
#include "observe/history.h"
#include "observe/logdir.h"
#include "observe/sink.h"
#include "timing/recording.h"

#define PL_SINKS 5

struct pl_sinks {
    const struct pl_setup_conf *conf;
    const char *method;
    FILE *log, *events;
    struct pl_recorder *recorder;
    struct pl_logdir *logdir;
    const char
        *recorded; /* the description for the recording, if not the run's: set it before opening;
                      "" for none */
    uint64_t n_events;
    bool began;                      /* there was an event before the end, or a point */
    const struct pl_log *says;       /* where failures are reported when they happen, */
    bool told[PL_SINKS], told_full;  /* once per file */
    bool events_full;                /* that file has reached its limit */
    struct pl_happenings happenings; /* for the program */
    struct pl_history *history;
    const char *why;                     /* the run ended: a word of docs/runs.md */
    double core_wait;                    /* of pl_history_end */
    char history_path[PL_TEXT_MAX + 16]; /* "": it is not written */
    struct pl_dashboard *dashboard;
    bool own_dashboard;            /* opened here; otherwise that of the setup */
    char **captured;               /* where to put the history as JSON at the end, or NULL */
    uint64_t written_ns, write_ns; /* when the history was written, and how long that took */
};

/* Creates the files that the setup asks for. `clock` is "virtual", "real" or "recorded". Close
 * them even if this fails. */
int pl_sinks_open(struct pl_sinks *s, struct pl_setup *setup, const struct pl_built *built,
                  const char *clock, const struct pl_identity *run);

/* The description again, now that the run has ended. */
void pl_sinks_run(struct pl_sinks *s, const struct pl_identity *run);

/* A pl_control_log for the files that need events, or NULL if none does. ctx is the pl_sinks. */
pl_control_log *pl_sinks_log(const struct pl_sinks *s);

void pl_sinks_point(struct pl_sinks *s, const struct pl_point *p);
void pl_sinks_named(struct pl_sinks *s, int worker, const char *name);

/* Writes everything so far to the files, and reports those that cannot be written. It is called
 * every PL_SINKS_EVENTS events as well. */
#define PL_SINKS_EVENTS 4096
void pl_sinks_flush(struct pl_sinks *s);

/* Marks the end of the run: a recording without it counts as cut short. */
void pl_sinks_end(const struct pl_sinks *s, const struct pl_outcome *out, size_t dim);

/* Removes the files if the run has failed before it began; they still have to be closed. */
void pl_sinks_discard(struct pl_sinks *s);

/* Closes all files. Returns the first failure, with its message in `why`; the others, and the first
 * if `why` is NULL, are warnings, unless they were reported before. */
int pl_sinks_close(struct pl_sinks *s, struct pl_why *why);

#endif
