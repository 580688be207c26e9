/* The ledger: where every worker's time went, kept from the event log of any host.
 *
 * While a worker is there its time is cut into spans without gaps: a task that was taken is
 * computing and then sending, a task that ended otherwise is wasted, and between tasks the worker
 * is idle. Spans of one worker come in order of time; a worker that is gone has none. The sums over
 * all workers are those of pl_control_worker_time, from a book of its own.
 *
 * Threads: one. */
#ifndef PL_OBSERVE_TIMELINE_H
#define PL_OBSERVE_TIMELINE_H

#include "core/control.h"

enum pl_span_kind { PL_SPAN_COMPUTE, PL_SPAN_COMMUNICATE, PL_SPAN_IDLE, PL_SPAN_WASTED };

/* A stretch of one worker's time. */
struct pl_span {
    int worker;
    enum pl_span_kind kind;
    uint64_t from_ns, to_ns;
    uint64_t task;   /* 0 for idle */
    uint64_t base;   /* version that task is computed on */
    const char *why; /* of wasted time: "dropped", "cancelled", "lost", "rejected"; of computing
                        that the end of the run cut short: "unfinished"; or "" */
};

struct pl_timeline_row {
    double seconds[4];  /* by enum pl_span_kind, closed spans only */
    uint64_t n_arrived; /* tasks that came back and were taken */
    uint64_t n_wasted;  /* tasks that ended otherwise */
    double arrived;     /* seconds of all tasks that came back, from start to arrival */
    uint64_t n_timed;   /* how many those were */
    double held_up;     /* seconds that others, done already, waited for this one alone: from the
                           arrival taken before it into the same group */
    uint64_t n_last;    /* updates that had to wait for it last: its arrival led to the commit, and
                           the commit let go others who were waiting */
    double unfinished;  /* seconds that its task had run when the run ended */
};

struct pl_timeline;
int pl_timeline_new(int n_workers, struct pl_timeline **out); /* 0 or PL_ENOMEM */
void pl_timeline_free(struct pl_timeline *l);

/* A pl_control_log; ctx is the ledger. */
void pl_timeline_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan);

/* Called with every span as it closes; spans of no length are left out. */
void pl_timeline_on_span(struct pl_timeline *l, void (*span)(void *ctx, const struct pl_span *s),
                         void *ctx);

/* Closes what is open at the end of the run: who is busy has been computing, as control books it.
 * The ledger hears nothing after that. */
void pl_timeline_end(struct pl_timeline *l, uint64_t now_ns);

const struct pl_timeline_row *pl_timeline_rows(const struct pl_timeline *l); /* [n_workers] */

#endif
