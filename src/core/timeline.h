/* The timeline: what every worker did. It is the one place that counts tasks and their time; the
 * summary, JSON, metrics, the history, traces and plots are views of it.
 *
 * Control calls it where a worker's state changes, and after a plan was carried out, so that a
 * member that a commit left out is counted as rejected; what the event log shows is complete. While
 * a worker is present, its time is divided into spans without gaps. A task that was used is
 * computing and then sending, any other task is wasted, and between tasks the worker is idle. Spans
 * of one worker come in order of time; what an event ends for others comes after its own worker's.
 *
 * Threads: one. */
#ifndef PL_CORE_TIMELINE_H
#define PL_CORE_TIMELINE_H

#include "core/plan.h"
#include "core/recent.h"

#define PL_LONG 2

struct pl_event;
struct pl_member;

/* Every task has one fate; `running` counts tasks that have none yet: computing, deferred, or in
 * the open group. Together they are `started`. */
struct pl_fates {
    uint64_t started, applied, dropped, cancelled, lost, rejected, running;
};

/* Where the workers' time went, in seconds summed over workers while they were present. `wasted`
 * is the whole time of tasks that were dropped, cancelled, lost or rejected. */
struct pl_worker_time {
    double compute, communication, idle, wasted;
};

enum pl_span_kind { PL_SPAN_COMPUTE, PL_SPAN_COMMUNICATE, PL_SPAN_IDLE, PL_SPAN_WASTED };

/* A period of one worker's time. */
struct pl_span {
    int worker;
    enum pl_span_kind kind;
    uint64_t from_ns, to_ns;
    uint64_t task;   /* 0 for idle */
    uint64_t base;   /* base version of the task */
    const char *why; /* of wasted time: "dropped", "cancelled", "lost", "rejected"; "unfinished" if
                        the end of the run cut computing short; otherwise "" */
    bool again;      /* the task was told before as one that is used, and now turned out to be
                        wasted: its times are those told before, and are not in this span */
};

/* One worker. */
struct pl_timeline_row {
    uint64_t ns[4];      /* by enum pl_span_kind, closed spans only */
    uint64_t n_used;     /* tasks that arrived and were used */
    uint64_t n_wasted;   /* all other tasks that ended */
    uint64_t arrived_ns; /* time of all tasks that arrived, from start to arrival, without what
                            the events tell as excused_ns */
    uint64_t n_timed;    /* their number */
    uint64_t n_long;     /* those of them that took more than PL_LONG times the median of the tasks
                            that had arrived before, of any worker */
    uint64_t held_up_ns; /* time that others, already done, waited for this worker alone: since the
                            previous arrival taken into the same group */
    uint64_t n_last;     /* updates that waited for it last: its arrival led to the commit, and the
                            commit released others that were waiting */
    uint64_t unfinished_ns; /* how long its task had run when the run ended */
};

struct pl_timeline {
    struct pl_fates fates;              /* without `running` */
    uint64_t lag_sum, lag_max, n_fresh; /* of the results that were applied */
    struct pl_worker_time time;         /* sums of closed spans */
    bool ended;

    /* what follows is kept only if the run has an event log */
    bool watched;
    struct pl_recent *tasks; /* times of the last tasks that arrived */
    bool dropped;            /* the result that arrived last */
    bool grouped;            /* a result was taken since the last commit, the latest at: */
    uint64_t taken_ns;
    uint64_t waited_ns; /* others waited for the last event's result from then on; PL_NO_TIMER if
                           none did */
    int n_workers;
    struct pl_timeline_row *row; /* [n_workers] */
    struct pl_span *span;        /* [n_spans] that the last event closed, not those of length 0 */
    size_t n_spans, room;
};

/* One worker's time, with its parts in seconds. */
static inline double pl_timeline_seconds(const struct pl_timeline_row *r, enum pl_span_kind kind) {
    return (double)r->ns[kind] * 1e-9;
}

/* --- for control ---------------------------------------------------------------------------- */

/* Keeps rows and spans from now on. 0 or PL_ENOMEM. */
int pl_timeline_watch(struct pl_timeline *l, int n_workers);
void pl_timeline_free(struct pl_timeline *l);

/* Less than 2^62 ns; the conversion of a signed number is one instruction. */
static inline double pl_timeline_ns(uint64_t ns) {
    return (double)(int64_t)ns * 1e-9;
}

/* Adds a span to the worker's row and to the spans of the event. */
void pl_timeline_span(struct pl_timeline *l, const struct pl_span *s);

/* A worker was idle. */
static inline void pl_timeline_idle(struct pl_timeline *l, int worker, uint64_t from_ns,
                                    uint64_t to_ns) {
    if (to_ns <= from_ns) return;
    l->time.idle += pl_timeline_ns(to_ns - from_ns);
    if (l->watched)
        pl_timeline_span(l, &(struct pl_span){.worker = worker,
                                              .kind = PL_SPAN_IDLE,
                                              .from_ns = from_ns,
                                              .to_ns = to_ns,
                                              .why = ""});
}

/* A task of `w` ended at `now_ns` without use. */
void pl_timeline_wasted(struct pl_timeline *l, int worker, const struct pl_worker *w,
                        uint64_t now_ns, const char *why);

/* A result arrived, and was taken or deferred, or dropped: its worker's row. */
void pl_timeline_row_arrived(struct pl_timeline *l, const struct pl_event *e, uint64_t took_ns,
                             uint64_t base, bool dropped);

/* A task that was counted as used turned out to be wasted. */
void pl_timeline_revise(struct pl_timeline *l, int worker, uint64_t task, uint64_t took_ns,
                        uint64_t comm_ns, const char *why);

/* The event was carried out; it committed something, or not. Who waited for whom. */
void pl_timeline_event(struct pl_timeline *l, const struct pl_event *e, bool committed);

/* Closes the open spans at the end of the run: busy workers count as computing. */
void pl_timeline_end(struct pl_timeline *l, const struct pl_view *v, uint64_t now_ns);

/* The sums, with the spans that are still open at that time. */
struct pl_worker_time pl_timeline_time(const struct pl_timeline *l, const struct pl_view *v,
                                       uint64_t now_ns);

#endif
