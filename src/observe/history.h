/* The history of a run, for people to look at: its tasks with their fates, where every worker's
 * time went and who waited for whom, K and the staleness bound over time, the staleness of what was
 * applied, evaluations, and the first and last lines of the event log. The page of `paceline
 * report` draws it, and a log directory keeps it as history.json; docs/report.md describes that
 * file.
 *
 * Memory is bounded: the latest PL_HISTORY_TASKS tasks are kept one by one. What came before is in
 * the sums per worker and in cells of worker and time, whose width doubles as the run grows. Beyond
 * PL_HISTORY_WORKERS workers only the sums over all are kept.
 *
 * Threads: one. */
#ifndef PL_OBSERVE_HISTORY_H
#define PL_OBSERVE_HISTORY_H

#include "core/control.h"

#define PL_HISTORY_TASKS 100000
#define PL_HISTORY_WORKERS 4096

struct pl_history_info {
    const char *method;
    const char *clock;   /* "virtual" or "real" */
    const char *metric;  /* of the test set: "accuracy", "rmse" or "loss" */
    const char *options; /* the setup, as lines "key=value" */
    const char *command; /* a command line that runs it again */
};

struct pl_history;

/* Copies the info. Returns 0 or PL_ENOMEM. */
int pl_history_new(const struct pl_history_info *info, int n_workers, struct pl_history **out);
void pl_history_free(struct pl_history *h); /* NULL is allowed */

/* A pl_control_log; ctx is the history. */
void pl_history_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                      const struct pl_plan *plan);
void pl_history_point(struct pl_history *h, const struct pl_point *p);
/* The name of the one who works as this worker from now on. */
void pl_history_named(struct pl_history *h, int worker, const char *name);

/* The run has ended, with PL_END or before its first event. `why`: a word of docs/runs.md;
 * `core_wait`: the share of the workers' time in which they waited for a core, or NAN. */
void pl_history_end(struct pl_history *h, const char *why, double core_wait);

/* A copy of the history with its latest `max_tasks` tasks, for another thread to print. It is NULL
 * if there is no memory. */
struct pl_history *pl_history_copy(const struct pl_history *h, size_t max_tasks);

/* The history as a JSON object, malloc()ed, or NULL if there is no memory. */
char *pl_history_json(const struct pl_history *h, size_t *n);

#endif
