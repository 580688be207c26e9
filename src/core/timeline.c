#include "core/timeline.h"

#include <stdlib.h>

#include "base/grow.h"
#include "base/seconds.h"
#include "core/control.h"

int pl_timeline_watch(struct pl_timeline *l, int n_workers) {
    if (l->watched) return PL_OK;
    l->row = calloc((size_t)n_workers, sizeof *l->row);
    l->tasks = calloc(1, sizeof *l->tasks);
    l->n_workers = n_workers;
    l->watched = l->row && l->tasks;
    if (l->watched) return PL_OK;
    free(l->row);
    free(l->tasks);
    l->row = NULL;
    l->tasks = NULL;
    return PL_ENOMEM;
}

void pl_timeline_free(struct pl_timeline *l) {
    free(l->row);
    free(l->tasks);
    free(l->span);
}

/* Spans are for people: without memory for one, the views miss it, and the counts do not. */
static void timeline_tell(struct pl_timeline *l, const struct pl_span *s) {
    if (PL_GROW(l->span, l->room, l->n_spans + 1)) l->span[l->n_spans++] = *s;
}

void pl_timeline_span(struct pl_timeline *l, const struct pl_span *s) {
    if (s->to_ns <= s->from_ns) return;
    l->row[s->worker].ns[s->kind] += s->to_ns - s->from_ns;
    timeline_tell(l, s);
}

void pl_timeline_wasted(struct pl_timeline *l, int worker, const struct pl_worker *w,
                        uint64_t now_ns, const char *why) {
    l->time.wasted += pl_timeline_ns(now_ns - w->since_ns);
    if (!l->watched) return;
    l->row[worker].n_wasted++;
    pl_timeline_span(l, &(struct pl_span){worker, PL_SPAN_WASTED, w->since_ns, now_ns, w->task,
                                          w->base, why, false});
}

/* How long a task took, and whether that is much. */
static void timeline_took(struct pl_timeline *l, struct pl_timeline_row *r, uint64_t ns) {
    r->arrived_ns += ns;
    r->n_timed++;
    r->n_long += l->tasks->n > 0 && ns > PL_LONG * pl_recent_median(l->tasks);
    pl_recent_add(l->tasks, ns);
}

/* The sending part of a task is the last. */
void pl_timeline_row_arrived(struct pl_timeline *l, const struct pl_event *e, uint64_t took_ns,
                             uint64_t base, bool dropped) {
    uint64_t sent_ns = e->comm_ns < took_ns ? e->comm_ns : took_ns;
    struct pl_timeline_row *r = &l->row[e->worker];
    uint64_t began_ns = e->now_ns - took_ns, done_ns = e->now_ns - sent_ns;
    struct pl_span s = {e->worker, PL_SPAN_COMPUTE, began_ns, done_ns, e->task, base, "", false};
    timeline_took(l, r, took_ns > e->excused_ns ? took_ns - e->excused_ns : 0);
    l->dropped = dropped;
    if (dropped) {
        s.kind = PL_SPAN_WASTED;
        s.to_ns = e->now_ns;
        s.why = "dropped";
        r->n_wasted++;
        pl_timeline_span(l, &s);
        return;
    }
    r->n_used++;
    pl_timeline_span(l, &s);
    s.kind = PL_SPAN_COMMUNICATE;
    s.from_ns = done_ns;
    s.to_ns = e->now_ns;
    pl_timeline_span(l, &s);
}

void pl_timeline_revise(struct pl_timeline *l, int worker, uint64_t task, uint64_t took_ns,
                        uint64_t comm_ns, const char *why) {
    uint64_t sent_ns = comm_ns < took_ns ? comm_ns : took_ns;
    l->time.compute -= pl_timeline_ns(took_ns - sent_ns);
    l->time.communication -= pl_timeline_ns(sent_ns);
    l->time.wasted += pl_timeline_ns(took_ns);
    if (!l->watched) return;
    struct pl_timeline_row *r = &l->row[worker];
    r->n_used--;
    r->n_wasted++;
    r->ns[PL_SPAN_COMPUTE] -= took_ns - sent_ns;
    r->ns[PL_SPAN_COMMUNICATE] -= sent_ns;
    r->ns[PL_SPAN_WASTED] += took_ns;
    timeline_tell(
        l, &(struct pl_span){
               .worker = worker, .kind = PL_SPAN_WASTED, .task = task, .why = why, .again = true});
}

/* A worker that the event found idle, and that is not any more, has waited. */
static bool timeline_has_waited(const struct pl_timeline *l) {
    for (size_t i = 0; i < l->n_spans; i++)
        if (l->span[i].kind == PL_SPAN_IDLE) return true;
    return false;
}

void pl_timeline_event(struct pl_timeline *l, const struct pl_event *e, bool committed) {
    bool used = e->kind == PL_ARRIVE && !l->dropped;
    l->waited_ns = PL_NO_TIMER;
    if (used && committed && timeline_has_waited(l)) {
        l->row[e->worker].n_last++;
        if (l->grouped) {
            l->row[e->worker].held_up_ns += e->now_ns - l->taken_ns;
            l->waited_ns = l->taken_ns;
        }
    }
    if (used) l->taken_ns = e->now_ns;
    l->grouped = !committed && (used || l->grouped);
}

void pl_timeline_end(struct pl_timeline *l, const struct pl_view *v, uint64_t now_ns) {
    l->time = pl_timeline_time(l, v, now_ns);
    l->ended = true;
    l->n_spans = 0;
    for (int i = 0; l->watched && i < v->n_workers; i++) {
        const struct pl_worker *w = &v->worker[i];
        bool busy = w->state == PL_BUSY;
        struct pl_span s = {.worker = i, .from_ns = w->since_ns, .to_ns = now_ns};
        s.kind = busy ? PL_SPAN_COMPUTE : PL_SPAN_IDLE;
        s.why = busy ? "unfinished" : "";
        if (busy) {
            s.task = w->task;
            s.base = w->base;
            l->row[i].unfinished_ns = now_ns - w->since_ns;
        }
        if (w->state != PL_GONE) pl_timeline_span(l, &s);
    }
}

struct pl_worker_time pl_timeline_time(const struct pl_timeline *l, const struct pl_view *v,
                                       uint64_t now_ns) {
    struct pl_worker_time t = l->time;
    for (int i = 0; i < v->n_workers && !l->ended; i++) {
        double seconds = pl_seconds(now_ns - v->worker[i].since_ns);
        if (v->worker[i].state == PL_IDLE) t.idle += seconds;
        if (v->worker[i].state == PL_BUSY) t.compute += seconds;
    }
    return t;
}
