#include "sim/replay.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLAY_NONE SIZE_MAX

struct pl_replay {
    const struct pl_recording *recording;
    struct pl_replay_check *check;
    size_t n_fed; /* events that pl_replay_next returned */
    bool seen;    /* control has handled the last of them */
    size_t *back; /* [n_workers] the event of its next result, or REPLAY_NONE */
    size_t *next; /* [n_events] the event of the same worker's next result */
};

/* Reports only the first difference: the others follow from it. */
static void replay_differs(struct pl_replay *p, const char *fmt, ...) PL_PRINTF(2, 3);
static void replay_differs(struct pl_replay *p, const char *fmt, ...) {
    if (p->check->differs) return;
    p->check->differs = true;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->check->how, sizeof p->check->how, fmt, ap);
    va_end(ap);
}

static bool replay_is_result(const struct pl_event *e) {
    return e->kind == PL_ARRIVE || e->kind == PL_REJECT;
}

int pl_replay_new(const struct pl_recording *r, int n_workers, struct pl_replay_check *check,
                  struct pl_replay **out, struct pl_why *why) {
    *check = (struct pl_replay_check){0};
    if (r->n_workers != n_workers)
        return pl_fail(why, PL_EUSAGE, "a recording of %d workers cannot be replayed with %d",
                       r->n_workers, n_workers);
    struct pl_replay *p = calloc(1, sizeof *p);
    if (p) {
        p->back = malloc((size_t)n_workers * sizeof *p->back);
        p->next = malloc((r->n_events + 1) * sizeof *p->next);
    }
    if (!p || !p->back || !p->next) {
        pl_replay_free(p);
        return pl_fail(why, PL_ENOMEM, "out of memory for a replay of %zu events", r->n_events);
    }
    p->recording = r;
    p->check = check;
    for (int w = 0; w < n_workers; w++) p->back[w] = REPLAY_NONE;
    for (size_t i = r->n_events; i-- > 0;) {
        const struct pl_event *e = &r->event[i];
        if (!replay_is_result(e)) continue;
        p->next[i] = p->back[e->worker];
        p->back[e->worker] = i;
    }
    *out = p;
    return PL_OK;
}

void pl_replay_free(struct pl_replay *p) {
    if (!p) return;
    free(p->back);
    free(p->next);
    free(p);
}

/* An event that control has ignored was not expected. */
static void replay_settle(struct pl_replay *p) {
    if (p->n_fed == 0 || p->seen) return;
    const struct pl_event *e = &p->recording->event[p->n_fed - 1];
    if (e->kind == PL_TIMER)
        replay_differs(p, "event %zu, a timer: in the replay none is due", p->n_fed);
    else if (replay_is_result(e))
        replay_differs(p,
                       "event %zu, task %llu of worker %d: in the replay the worker is not "
                       "computing it",
                       p->n_fed, (unsigned long long)e->task, e->worker + 1);
    else
        replay_differs(p, "event %zu, worker %d: in the replay it %s", p->n_fed, e->worker + 1,
                       e->kind == PL_JOIN         ? "is already present"
                       : e->kind == PL_BASE_READY ? "completes no base"
                                                  : "is not present");
}

const struct pl_event *pl_replay_next(struct pl_replay *p) {
    replay_settle(p);
    if (p->n_fed == p->recording->n_events) return NULL;
    p->seen = false;
    return &p->recording->event[p->n_fed++];
}

uint64_t pl_replay_finish(struct pl_replay *p, int worker, uint64_t task) {
    const struct pl_event *event = p->recording->event;
    size_t *i = &p->back[worker];
    while (*i != REPLAY_NONE && event[*i].task < task) *i = p->next[*i];
    return *i != REPLAY_NONE && event[*i].task == task ? event[*i].now_ns : UINT64_MAX;
}

uint64_t pl_replay_until(const struct pl_replay *p) {
    const struct pl_recording *r = p->recording;
    if (r->ended) return r->end_ns;
    return r->n_events ? r->event[r->n_events - 1].now_ns : 0;
}

void pl_replay_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                     const struct pl_plan *plan) {
    static const char *const kinds[] = {"joined",
                                        "returned a task",
                                        "returned a task that was rejected",
                                        "left",
                                        "",
                                        "was woken",
                                        "completed its base",
                                        "was evaluated"};
    struct pl_replay *p = ctx;
    (void)c;
    (void)plan;
    if (pl_event_is_made(e) || p->n_fed == 0) return;
    const struct pl_event *r = &p->recording->event[p->n_fed - 1];
    p->seen = true;
    if ((pl_event_has_worker(e) && e->worker != r->worker) || e->now_ns != r->now_ns)
        replay_differs(p, "event %zu: a different worker or time", p->n_fed);
    else if (e->kind != r->kind)
        replay_differs(p, "event %zu: worker %d %s, but in the replay it %s", p->n_fed,
                       r->worker + 1, kinds[r->kind], kinds[e->kind]);
    else if ((replay_is_result(e) || e->kind == PL_BASE_READY) && e->task != r->task)
        replay_differs(p, "event %zu: a different task of worker %d", p->n_fed, r->worker + 1);
    else if (e->kind == PL_ARRIVE && memcmp(&e->loss, &r->loss, sizeof e->loss) != 0)
        replay_differs(p, "event %zu, task %llu of worker %d: the loss is %.17g instead of %.17g",
                       p->n_fed, (unsigned long long)e->task, e->worker + 1, e->loss, r->loss);
    else if (e->kind == PL_ARRIVE && e->samples != r->samples)
        replay_differs(p, "event %zu, task %llu of worker %d: it has %u samples instead of %u",
                       p->n_fed, (unsigned long long)e->task, e->worker + 1, (unsigned)e->samples,
                       (unsigned)r->samples);
    if (!p->check->differs) p->check->n_same++;
}

void pl_replay_interrupt(struct pl_replay *p) {
    p->check->interrupted = true;
}

void pl_replay_end(struct pl_replay *p, uint64_t n_updates, const float *weights, size_t dim) {
    const struct pl_recording *r = p->recording;
    replay_settle(p);
    if (!r->ended || p->n_fed < r->n_events) return;
    if (n_updates != r->n_updates)
        replay_differs(p, "the end: %llu updates instead of %llu", (unsigned long long)n_updates,
                       (unsigned long long)r->n_updates);
    else if (pl_digest(weights, dim) != r->digest)
        replay_differs(p, "the end: the weights differ although all events are the same");
}
