/* Who is slow: the one place that decides it. During a run it detects a task that runs much longer
 * than tasks usually take, or a worker whose tasks usually take much longer than those of the
 * others. Much longer is PL_SLOW times the median; what else must hold makes a warning that is
 * wrong rare. Task times are those of the timeline. What the summary and the page say of a worker's
 * whole run is pl_stragglers_pace, by the same test for chance.
 *
 * Pure: it listens to the event log and is polled with a time; it reads no clock and writes
 * nothing. Threads: one. */
#ifndef PL_OBSERVE_STRAGGLERS_H
#define PL_OBSERVE_STRAGGLERS_H

#include "base/log.h"
#include "core/control.h"

/* What is usual is known from the last PL_SLOW_RING tasks of all workers. A task that was
 * cancelled, or whose worker left, is among them as one that takes at least that long: under
 * policies that cancel, the tasks that finish are the short ones.
 *
 * A running task is slow if it exceeds PL_SLOW medians, is also this much longer than the median,
 * once this many tasks have ended; and if it is beyond what the tail of the other tasks makes
 * likely, at one in PL_SLOW_TASK_RARE. The tail is extrapolated from the largest tenth (Hill's
 * estimator with censoring, Beirlant et al., Extremes 2007), so that long tasks are expected of a
 * law that has them. */
#define PL_SLOW PL_LONG /* times the median */
#define PL_SLOW_RING 256
#define PL_SLOW_TASK_NS 1000000000u
#define PL_SLOW_TASK_ARRIVALS 8
#define PL_SLOW_TASK_RARE 1e6

/* A worker is slow if most of its last tasks, PL_SLOW_WORKER_TASKS to PL_SLOW_WORKER_RING of them,
 * took more than PL_SLOW medians of the others' tasks; and if workers with the same law would
 * hardly ever do that: the others' share of such tasks gives a binomial probability below one in
 * PL_SLOW_WORKER_RARE. These tasks must add up to this time. */
#define PL_SLOW_WORKER_TASKS PL_PACE_TASKS
#define PL_SLOW_WORKER_RING 16
#define PL_SLOW_WORKER_RARE 1e7
#define PL_SLOW_WORKER_NS 100000000u

/* It has recovered after this many tasks in a row within PL_SLOW medians of all tasks. */
#define PL_SLOW_WELL_TASKS 4

enum pl_stragglers_kind {
    PL_SLOW_TASK,  /* its current task has run for too long */
    PL_SLOW_WORKER /* most of its tasks take too long */
};

struct pl_stragglers_found {
    enum pl_stragglers_kind kind;
    int worker;     /* from 0 */
    double elapsed; /* seconds: of the running task, or the median of its own last tasks */
    double usual;   /* seconds: the median it is compared with */
};

struct pl_stragglers;
int pl_stragglers_new(int n_workers, struct pl_stragglers **out); /* 0 or PL_ENOMEM */
void pl_stragglers_free(struct pl_stragglers *s);

/* If tasks differ in size, `work` gives the size relative to the average. Task times are divided by
 * it; tasks smaller than PL_SLOW_LITTLE are ignored. */
#define PL_SLOW_LITTLE 0.2
void pl_stragglers_work(struct pl_stragglers *s, double (*work)(const void *ctx, int row, int col),
                        const void *ctx);

/* A pl_control_log; ctx is the struct pl_stragglers. */
void pl_stragglers_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                         const struct pl_plan *plan);

/* The whole run stood still, `ns` in all since it began, the last of it until now: Ctrl-Z, a
 * machine that was suspended, a server that did not listen. However short, that time counts for no
 * task. */
void pl_stragglers_lost(struct pl_stragglers *s, uint64_t ns);

/* The worker has waited for a core, `ns` in all since the run began: its machine is busy. That time
 * counts for no task either. */
void pl_stragglers_waited(struct pl_stragglers *s, int worker, uint64_t ns);

/* Its order or its result waited for that long until the server had a core. */
void pl_stragglers_served_late(struct pl_stragglers *s, int worker, uint64_t ns);

/* All of that in the worker's current task: excused_ns of its arrival. */
uint64_t pl_stragglers_excused(const struct pl_stragglers *s, int worker);

/* Finds a slow worker that was not reported yet. Each is reported once until it recovers or joins
 * again. Call it until it returns false. */
bool pl_stragglers_look(struct pl_stragglers *s, const struct pl_view *v, uint64_t now_ns,
                        struct pl_stragglers_found *found);

/* --- the run as a whole, from the rows of the timeline ------------------------------------- */

/* A task that had run for more than this many median tasks, and a second, when the run ended, was
 * stuck. */
#define PL_SLOW_STUCK 10

/* Mean seconds of its tasks, from start to arrival, without waiting for a core. NAN if none
 * arrived. */
double pl_stragglers_task(const struct pl_timeline_row *row);

/* What is usual in a run: the median of that over the workers, NAN if it is unknown; and the tasks
 * of all of them. */
struct pl_usual {
    double task;
    uint64_t n_tasks, n_timed, n_long;
};
struct pl_usual pl_stragglers_usual(const struct pl_timeline_row *row, int n);

/* Whether a worker was slow. Its tasks took more than PL_SLOW times as long on average as usual,
 * and by the binomial test above it is no chance how many of them were long, compared with those of
 * the others. If none of its tasks arrived, the test is of that. The pace of a worker with fewer
 * than PL_SLOW_WORKER_TASKS tasks is unknown. */
enum pl_pace pl_stragglers_pace(const struct pl_timeline_row *row, const struct pl_usual *usual);

/* "worker 3 is slow: its task has run for 12.3 s (median 0.41 s); it is computing". `phase`, here
 * "computing", may be NULL. */
void pl_stragglers_sentence(const struct pl_stragglers_found *found, const struct pl_log *log,
                            const char *phase, char *out, size_t max);

#endif
