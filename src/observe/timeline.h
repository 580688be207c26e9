/* The timeline: where every worker's time went, derived from the event log of any host.
 *
 * While a worker is present, its time is divided into spans without gaps. A task that was used is
 * computing and then sending, any other task is wasted, and between tasks the worker is idle. Spans
 * of one worker come in order of time. The sums over all workers equal those of
 * pl_control_worker_time, which is computed independently.
 *
 * Threads: one. */
#ifndef PL_OBSERVE_TIMELINE_H
#define PL_OBSERVE_TIMELINE_H

#include "core/control.h"

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
};

struct pl_timeline_row {
    double seconds[4];  /* by enum pl_span_kind, closed spans only */
    uint64_t n_arrived; /* tasks that arrived and were used */
    uint64_t n_wasted;  /* all other tasks that ended */
    double arrived;     /* seconds of all tasks that arrived, from start to arrival */
    uint64_t n_timed;   /* their number */
    double held_up;    /* seconds that others, already done, waited for this worker alone: since the
                          previous arrival taken into the same group */
    uint64_t n_last;   /* updates that waited for it last: its arrival led to the commit, and the
                          commit released others that were waiting */
    double unfinished; /* how long its task had run, in seconds, when the run ended */
};

struct pl_timeline;
int pl_timeline_new(int n_workers, struct pl_timeline **out); /* 0 or PL_ENOMEM */
void pl_timeline_free(struct pl_timeline *l);

/* A pl_control_log; ctx is the timeline. */
void pl_timeline_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan);

/* Called with every span when it closes, except for spans of zero length. */
void pl_timeline_on_span(struct pl_timeline *l, void (*span)(void *ctx, const struct pl_span *s),
                         void *ctx);

/* Closes the open spans at the end of the run: busy workers count as computing, as in control. The
 * timeline receives no events after that. */
void pl_timeline_end(struct pl_timeline *l, uint64_t now_ns);

const struct pl_timeline_row *pl_timeline_rows(const struct pl_timeline *l); /* [n_workers] */

#endif
