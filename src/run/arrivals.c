#include "run/arrivals.h"

#include <stdlib.h>

#include "run/server_state.h"
#include "sys/clock.h"

#define ARRIVALS_MOST_NS 1000000000u /* of one draft: the server does nothing else meanwhile */
#define ARRIVALS_SKIP 64             /* occasions to let pass, at most */

int pl_arrivals_new(struct pl_arrivals *a, const struct pl_port_ops *ops, int n_workers) {
    *a = (struct pl_arrivals){.n = 0};
    if (!ops->arrived) return PL_OK;
    a->coming = calloc((size_t)n_workers, sizeof *a->coming);
    a->event = calloc((size_t)n_workers, sizeof *a->event);
    a->worker = calloc((size_t)n_workers, sizeof *a->worker);
    return a->coming && a->event && a->worker ? PL_OK : PL_ENOMEM;
}

void pl_arrivals_free(struct pl_arrivals *a) {
    free(a->coming);
    free(a->event);
    free(a->worker);
}

void pl_arrivals_over(struct server *s, int worker) {
    struct pl_arrivals *a = &s->arrivals;
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (a->coming[i].worker != worker) a->coming[n++] = a->coming[i];
    a->n = n;
}

void pl_arrivals_announced(struct server *s, int worker, const struct pl_result *r) {
    struct pl_arrivals *a = &s->arrivals;
    if (!a->coming) return;
    pl_arrivals_over(s, worker);
    a->coming[a->n++] = (struct pl_coming){.worker = worker, .result = *r};
}

/* What the results will be as events, in order. Those that are stalled, and those of tasks that are
 * not current, are left out. Returns their number. */
static int arrivals_events(struct server *s) {
    struct pl_arrivals *a = &s->arrivals;
    const struct pl_control *control = pl_engine_control(s->engine);
    uint64_t now = pl_server_now(s);
    int n = 0;
    for (int i = 0; i < a->n; i++) {
        const struct pl_coming *c = &a->coming[i];
        if (c->stalled || !pl_control_is_current(control, c->worker, c->result.task)) continue;
        a->worker[n] = c->worker;
        a->event[n++] = (struct pl_event){.kind = PL_ARRIVE,
                                          .now_ns = ++now,
                                          .worker = c->worker,
                                          .task = c->result.task,
                                          .samples = c->result.samples,
                                          .loss = c->result.loss};
    }
    return n;
}

/* The draft ends early enough for what is due by the clock. */
static uint64_t arrivals_until(const struct server *s) {
    uint64_t now = pl_server_now(s), until = now + ARRIVALS_MOST_NS;
    if (s->view->timer_ns < until) until = s->view->timer_ns;
    return s->zero_ns + until;
}

static struct pl_coming *arrivals_of(const struct server *s, int worker) {
    for (int i = 0; i < s->arrivals.n; i++)
        if (s->arrivals.coming[i].worker == worker) return &s->arrivals.coming[i];
    return NULL;
}

static bool arrivals_unread(const struct pl_arrivals *a) {
    for (int i = 0; i < a->n; i++)
        if (a->coming[i].over) return true;
    return false;
}

/* Those that have kept the draft waiting are not waited for again. */
static void arrivals_note_stall(struct server *s, int n) {
    const struct pl_arrivals *a = &s->arrivals;
    bool others;
    for (int i = 0; i < n; i++) {
        struct pl_coming *c = arrivals_of(s, a->worker[i]);
        size_t arrived = s->ops->arrived(s->port, &a->worker[i], 1, &others);
        if (c && arrived <= s->tile_threads.arrived) c->stalled = true;
    }
}

/* The results that the draft waited for are complete. */
static int arrivals_deliver(struct server *s, int n) {
    int rc = PL_OK;
    for (int i = 0; !rc && i < n && !pl_engine_ended(s->engine); i++) {
        struct pl_coming *c = arrivals_of(s, s->arrivals.worker[i]);
        if (!c) continue; /* cannot be: no news was read */
        c->over = true;
        rc = pl_server_result(s, c->worker, &c->result);
        if (!rc) rc = pl_suspension_verdicts(s);
    }
    return rc;
}

/* Drafts that come to nothing cost time and bytes: the next occasions are not used. */
static void arrivals_learn(struct pl_arrivals *a, bool used) {
    a->n_skip = used ? 0 : 2 * a->n_skip + 1;
    if (a->n_skip > ARRIVALS_SKIP) a->n_skip = ARRIVALS_SKIP;
    a->n_skipped = 0;
}

int pl_arrivals_draft(struct server *s) {
    struct pl_arrivals *a = &s->arrivals;
    if (a->n == 0 || arrivals_unread(a) || pl_engine_ended(s->engine) ||
        !pl_tile_threads_can_await(&s->tile_threads))
        return PL_OK;
    int n = pl_engine_foresee(s->engine, a->event, arrivals_events(s));
    if (n == 0) return PL_OK;
    if (a->n_skipped < a->n_skip) {
        a->n_skipped++;
        return PL_OK;
    }
    pl_tile_threads_await(&s->tile_threads, a->worker, n, arrivals_until(s));
    int rc = pl_engine_draft(s->engine);
    bool gave_up = s->tile_threads.gave_up, complete = !rc && !gave_up;
    if (s->tile_threads.stalled) arrivals_note_stall(s, n);
    pl_tile_threads_await(&s->tile_threads, NULL, 0, 0);
    rc = complete ? arrivals_deliver(s, n) : PL_OK;
    arrivals_learn(a, !pl_engine_drop_draft(s->engine) && complete);
    return rc;
}
