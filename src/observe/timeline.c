#include "observe/timeline.h"

#include <stdlib.h>

struct timeline_worker {
    enum pl_worker_state state;
    uint64_t since_ns; /* when it entered that state */
    uint64_t turn;     /* the event that caused it */
    uint64_t task, base;
    uint64_t ns[4]; /* by enum pl_span_kind */
    bool deferred;  /* its result has not been used yet */
};

struct pl_timeline {
    int n_workers;
    struct timeline_worker *worker;
    struct pl_timeline_row *row;
    uint64_t turn; /* events so far */
    bool grouped;  /* a result was taken since the last commit; the latest at: */
    uint64_t taken_ns;
    bool ended;
    void (*span)(void *ctx, const struct pl_span *s);
    void *ctx;
};

int pl_timeline_new(int n_workers, struct pl_timeline **out) {
    struct pl_timeline *l = calloc(1, sizeof *l);
    if (!l) return PL_ENOMEM;
    l->n_workers = n_workers;
    l->worker = calloc((size_t)n_workers, sizeof *l->worker);
    l->row = calloc((size_t)n_workers, sizeof *l->row);
    if (!l->worker || !l->row) {
        pl_timeline_free(l);
        return PL_ENOMEM;
    }
    *out = l;
    return PL_OK;
}

void pl_timeline_free(struct pl_timeline *l) {
    if (!l) return;
    free(l->worker);
    free(l->row);
    free(l);
}

void pl_timeline_on_span(struct pl_timeline *l, void (*span)(void *ctx, const struct pl_span *s),
                         void *ctx) {
    l->span = span;
    l->ctx = ctx;
}

const struct pl_timeline_row *pl_timeline_rows(const struct pl_timeline *l) {
    return l->row;
}

/* Sums nanoseconds and converts the sums to seconds, so a long run loses no precision. */
static void timeline_span(struct pl_timeline *l, int i, enum pl_span_kind kind, uint64_t from_ns,
                          uint64_t to_ns, const char *why) {
    if (to_ns <= from_ns) return;
    struct timeline_worker *w = &l->worker[i];
    bool idle = kind == PL_SPAN_IDLE;
    struct pl_span s = {i, kind, from_ns, to_ns, idle ? 0 : w->task, idle ? 0 : w->base, why};
    w->ns[kind] += to_ns - from_ns;
    l->row[i].seconds[kind] = (double)w->ns[kind] * 1e-9;
    if (l->span) l->span(l->ctx, &s);
}

static void timeline_move(struct pl_timeline *l, int i, enum pl_worker_state to, uint64_t now_ns) {
    struct timeline_worker *w = &l->worker[i];
    if (w->state == PL_IDLE) timeline_span(l, i, PL_SPAN_IDLE, w->since_ns, now_ns, "");
    w->state = to;
    w->since_ns = now_ns;
    w->turn = l->turn;
}

/* Ends a busy worker's task without use. */
static void timeline_waste(struct pl_timeline *l, int i, uint64_t now_ns, const char *why) {
    timeline_span(l, i, PL_SPAN_WASTED, l->worker[i].since_ns, now_ns, why);
    l->row[i].n_wasted++;
}

/* Handles an arrival: the time from the start to now, the sending part last. */
static void timeline_arrive(struct pl_timeline *l, const struct pl_event *e, bool taken) {
    const struct timeline_worker *w = &l->worker[e->worker];
    struct pl_timeline_row *row = &l->row[e->worker];
    uint64_t spent_ns = e->now_ns - w->since_ns;
    uint64_t sent_ns = e->comm_ns < spent_ns ? e->comm_ns : spent_ns;
    row->arrived += (double)spent_ns * 1e-9;
    row->n_timed++;
    if (taken) {
        uint64_t done_ns = e->now_ns - sent_ns;
        timeline_span(l, e->worker, PL_SPAN_COMPUTE, w->since_ns, done_ns, "");
        timeline_span(l, e->worker, PL_SPAN_COMMUNICATE, done_ns, e->now_ns, "");
        row->n_arrived++;
    } else {
        timeline_waste(l, e->worker, e->now_ns, "dropped");
    }
}

/* Applies the event itself to its worker. A worker that was present before the timeline began is
 * known from its next start. */
static void timeline_hear(struct pl_timeline *l, const struct pl_event *e, bool taken) {
    if (!pl_event_has_worker(e) || e->worker < 0 || e->worker >= l->n_workers) return;
    bool busy = l->worker[e->worker].state == PL_BUSY;
    switch (e->kind) {
    case PL_JOIN: timeline_move(l, e->worker, PL_IDLE, e->now_ns); break;
    case PL_LEAVE:
        if (busy) timeline_waste(l, e->worker, e->now_ns, "lost");
        l->row[e->worker].n_wasted += l->worker[e->worker].deferred;
        l->row[e->worker].n_arrived -= l->worker[e->worker].deferred;
        l->worker[e->worker].deferred = false;
        timeline_move(l, e->worker, PL_GONE, e->now_ns);
        break;
    case PL_REJECT:
        if (busy) timeline_waste(l, e->worker, e->now_ns, "rejected");
        timeline_move(l, e->worker, PL_IDLE, e->now_ns);
        break;
    case PL_ARRIVE:
        if (busy) timeline_arrive(l, e, taken);
        timeline_move(l, e->worker, PL_IDLE, e->now_ns);
        break;
    case PL_MEASURED:
    case PL_TIMER:
    case PL_BASE_READY: break;
    }
}

/* Applies one action; returns whether it released a worker that waited since before the event. */
static bool timeline_act(struct pl_timeline *l, const struct pl_action *a, uint64_t now_ns) {
    if (a->verb == PL_TAKE || a->verb == PL_DEFER)
        l->worker[a->worker].deferred = a->verb == PL_DEFER;
    if (a->verb != PL_START && a->verb != PL_CANCEL) return false;
    struct timeline_worker *w = &l->worker[a->worker];
    if (a->verb == PL_CANCEL) {
        if (w->state == PL_BUSY) timeline_waste(l, a->worker, now_ns, "cancelled");
        timeline_move(l, a->worker, PL_IDLE, now_ns);
        return false;
    }
    bool waited = w->state == PL_IDLE && w->turn < l->turn;
    timeline_move(l, a->worker, PL_BUSY, now_ns);
    w->task = a->task;
    w->base = a->version;
    return waited;
}

void pl_timeline_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan) {
    struct pl_timeline *l = ctx;
    bool taken = false, committed = false, waited = false;
    (void)c;
    if (l->ended) return;
    l->turn++;
    for (size_t i = 0; i < plan->n; i++) {
        enum pl_verb verb = plan->action[i].verb;
        if (e->kind == PL_ARRIVE) taken = taken || verb == PL_TAKE || verb == PL_DEFER;
        committed = committed || plan->action[i].verb == PL_COMMIT;
    }
    timeline_hear(l, e, taken);
    for (size_t i = 0; i < plan->n; i++)
        if (timeline_act(l, &plan->action[i], e->now_ns)) waited = true;
    if (taken && committed && waited) {
        l->row[e->worker].n_last++;
        if (l->grouped) l->row[e->worker].held_up += (double)(e->now_ns - l->taken_ns) * 1e-9;
    }
    if (taken) {
        l->grouped = true;
        l->taken_ns = e->now_ns;
    }
    if (committed) l->grouped = false;
}

void pl_timeline_end(struct pl_timeline *l, uint64_t now_ns) {
    if (l->ended) return;
    l->ended = true;
    for (int i = 0; i < l->n_workers; i++) {
        if (l->worker[i].state == PL_BUSY) {
            l->row[i].unfinished = (double)(now_ns - l->worker[i].since_ns) * 1e-9;
            timeline_span(l, i, PL_SPAN_COMPUTE, l->worker[i].since_ns, now_ns, "unfinished");
        }
        if (l->worker[i].state != PL_GONE) timeline_move(l, i, PL_GONE, now_ns);
    }
}
