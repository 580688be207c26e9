#include "run/server.h"

#include <math.h>

#include "base/seconds.h"
#include "run/copy.h"
#include "run/server_state.h"
#include "sys/clock.h"

#define NO_WORKERS_GRACE_NS 200000000u /* without a worker, before the run ends */

bool pl_server_ticks(struct server *s, uint64_t now) {
    struct pl_point p = pl_engine_point(s->engine, now);
    bool ends = s->conf->watch.tick && s->conf->watch.tick(s->conf->watch.ctx, &p);
    s->interrupted = s->interrupted || ends;
    return ends;
}

/* --- events ------------------------------------------------------------------------------ */

/* The time of an event. No two events have the same, so that times give their order. */
static uint64_t server_stamp(struct server *s) {
    struct server_clock *c = &s->clock;
    if (!pl_server_begun(s)) return c->last_ns;
    uint64_t now = pl_now_ns() - c->zero_ns, last = pl_server_last(s);
    return c->last_ns = now > last ? now : last + 1;
}

/* Before a client sees the version, and once per update. */
void pl_server_made(void *server, uint64_t version) {
    struct server *s = server;
    if (!s->conf->gateway || !s->conf->claim || version <= s->versions.noted) return;
    s->versions.noted = version;
    pl_claim_note(s->conf->claim, s->conf->gateway->run, s->conf->save.epoch, version);
}

static int server_event(struct server *s, struct pl_event *e, const char *defect) {
    e->now_ns = server_stamp(s);
    int rc = pl_engine_event(s->engine, e, defect, s->why);
    if (!rc) pl_server_made(s, s->view->version);
    return rc;
}

static int server_connected(struct server *s, int worker) {
    struct pl_event e = {.kind = PL_JOIN, .worker = worker};
    bool shared = s->conf->transport->shared;
    pl_leases_client(s->leases, worker, shared && pl_membership_is_client(&s->membership, worker));
    return server_event(s, &e, NULL);
}

static const char *server_defect(enum pl_defect defect) {
    switch (defect) {
    case PL_NO_DEFECT: return NULL;
    case PL_NOT_FINITE: return "sent a gradient that is not finite";
    case PL_WRONG_SIZE: return "sent a gradient of the wrong size";
    default: return "could not compute its task";
    }
}

static int server_base(struct server *s, int worker, uint64_t task) {
    struct pl_event e = {.kind = PL_BASE_READY, .worker = worker, .task = task};
    if (!pl_is_current(s->view, worker, task)) return PL_OK;
    return server_event(s, &e, NULL);
}

/* Notes how long this thread has waited for a core since the last call. */
static void server_note_wait(struct server *s) {
    struct server_waits *w = &s->waits;
    if (!w->worker) return;
    uint64_t waited = pl_core_wait_ns(&w->core);
    if (waited > 0) pl_waits_note(&w->own, pl_now_ns(), waited);
}

/* `ns` without a part that is at most `part`. */
static uint64_t server_less(uint64_t ns, uint64_t part) {
    return ns > part ? ns - part : 0;
}

static uint64_t server_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* How long the order was on the way; it may have waited for an update. */
static uint64_t server_way_down(const struct server *s, int worker, const struct pl_result *r) {
    return server_less(r->pulled_ns, s->clock.zero_ns + s->view->worker[worker].since_ns);
}

/* Notes what a worker tells that waited where this server cannot look. A wait is never longer than
 * what it is a part of: the worker may have waited while it had no order, and may lie. */
static void server_told_waits(struct server *s, int worker, const struct pl_result *r) {
    struct server_waits *w = &s->waits;
    uint64_t took = server_less(r->pushed_ns, r->pulled_ns);
    uint64_t pulling = server_least(r->pull_wait_ns, server_way_down(s, worker, r));
    w->known = true;
    atomic_store(&w->worker[worker].pull_ns, pulling);
    atomic_fetch_add(&w->worker[worker].total_ns, pulling + server_least(r->wait_ns, took));
}

/* How long an order and its result were on the way. Time in which the worker or the server had all
 * it needed except a core does not count: it is part of computing. */
static uint64_t server_way(struct server *s, int worker, const struct pl_result *r, uint64_t now) {
    const struct server_waits *w = &s->waits;
    uint64_t up = server_less(now, r->pushed_ns), down = server_way_down(s, worker, r);
    if (!w->worker || !w->known) return up + down;
    down =
        server_less(down, atomic_load_explicit(&w->worker[worker].pull_ns, memory_order_relaxed));
    uint64_t since_ns = s->clock.zero_ns + s->view->worker[worker].since_ns;
    uint64_t sending = pl_waits_between(&w->own, since_ns, r->pulled_ns);
    uint64_t waited = server_least(sending, down) + pl_waits_between(&w->own, r->pushed_ns, now);
    pl_stragglers_served_late(s->stragglers, worker, waited);
    s->out->core_wait += pl_seconds(waited);
    return up + down - waited;
}

static int server_result(struct server *s, int worker, const struct pl_result *r) {
    struct pl_core_waited *waited = s->waits.worker;
    if (r->sets_lr) pl_clients_lr(s, worker, r->lr);
    bool current = pl_is_current(s->view, worker, r->task);
    s->out->computed += current;
    if (waited && current && r->tells_waits) server_told_waits(s, worker, r);
    if (waited) pl_stragglers_waited(s->stragglers, worker, atomic_load(&waited[worker].total_ns));
    if (current && r->defect == PL_NO_DEFECT) pl_membership_answered(&s->membership, worker);
    struct pl_event e = {.kind = PL_ARRIVE,
                         .worker = worker,
                         .task = r->task,
                         .comm_ns = current ? server_way(s, worker, r, pl_now_ns()) : 0,
                         .samples = r->samples,
                         .loss = r->loss};
    e.excused_ns = pl_stragglers_excused(s->stragglers, worker);
    if (current && r->n_absent > 0 && pl_engine_lacks(s->engine, worker, r->absent, r->n_absent))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for a result");
    bool away = s->gateway && pl_engine_life(s->engine, worker) == PL_DISCONNECTED;
    int rc = server_event(s, &e, server_defect(r->defect));
    if (away) pl_gateway_answered(s->gateway, worker);
    if (current && e.kind == PL_ARRIVE) pl_clients_result(s, r); /* it was not rejected */
    return rc;
}

static int server_gone(struct server *s, int worker) {
    struct pl_event e = {.kind = PL_LEAVE, .worker = worker};
    enum pl_life life = pl_engine_life(s->engine, worker);
    pl_leases_gone(s->leases, worker);
    int rc = server_event(s, &e, NULL);
    pl_membership_gone(&s->membership, worker, life != PL_ABSENT && life != PL_STARTING);
    return rc;
}

int pl_server_news(struct server *s, const struct pl_news *n) {
    switch (n->kind) {
    case PL_NEWS_NONE: return PL_OK;
    case PL_NEWS_JOINED: return server_connected(s, n->worker);
    case PL_NEWS_BASE: return server_base(s, n->worker, n->result.task);
    case PL_NEWS_RESULT: return server_result(s, n->worker, &n->result);
    case PL_NEWS_WORD:
    case PL_NEWS_ASK:
    case PL_NEWS_DONE: pl_clients_news(s, n); return PL_OK;
    case PL_NEWS_GONE: return server_gone(s, n->worker);
    }
    return PL_OK;
}

/* --- scoring ----------------------------------------------------------------------------- */

void pl_server_scored(struct server *s) {
    struct server_scoring *g = &s->scoring;
    struct pl_score score = pl_scorer_wait(s->scorer);
    g->busy = false;
    if (s->saver) pl_saver_scored(s->saver, g->model.w, &score, g->at.updates);
    pl_engine_let_go(s->engine, &g->model);
    pl_engine_scored(s->engine, &score, &g->at);
}

/* The score is of this moment, whenever it is ready. If a server or worker does not answer, the run
 * ends; what is missing is reported then. */
static void server_score(struct server *s) {
    struct server_scoring *g = &s->scoring;
    g->at = pl_engine_point(s->engine, pl_server_now(s));
    if (pl_server_model(s, s->room, &g->model)) {
        pl_engine_end(s->engine);
        return;
    }
    g->at.consensus = g->model.consensus;
    g->busy = true;
    pl_scorer_send(s->scorer, g->model.w);
}

static void server_look_at_scores(struct server *s, uint64_t now) {
    if (!s->scorer) {
        pl_clients_score(s, now);
        return;
    }
    if (s->scoring.busy && !pl_scorer_busy(s->scorer)) {
        uint64_t took = now - pl_ns(s->scoring.at.time);
        pl_server_scored(s);
        /* scoring takes at most half of the time, however often it is due */
        pl_engine_score_later(s->engine, now + took);
    }
    if (s->scoring.busy || !pl_engine_score_due(s->engine, now)) return;
    if (!pl_engine_score_again(s->engine, now)) server_score(s);
}

/* --- what is due by the clock ------------------------------------------------------------- */

/* Updates that workers had seen, and that the checkpoint does not have, if the server before this
 * one did not note how many it had made, or its machine was restarted. There may have been more,
 * which only workers have seen that did not come back. */
void pl_server_lost(struct server *s) {
    uint64_t began = s->versions.began, seen = s->gateway ? pl_gateway_seen(s->gateway) : 0;
    if (seen <= s->versions.known) return;
    s->versions.known = seen;
    pl_log_warn(&s->job->log,
                "workers have seen update %llu, and this server continues from update %llu: "
                "at least %llu update%s lost",
                (unsigned long long)seen, (unsigned long long)began,
                (unsigned long long)(seen - began), seen - began == 1 ? " was" : "s were");
}

/* Workers that have computed for long: perhaps they had no core. */
static void server_note_waits(struct server *s, uint64_t now) {
    for (int i = s->view->busy; s->waits.worker && i >= 0; i = pl_next(s->view, i)) {
        if (now < s->view->worker[i].since_ns + PL_SLOW_TASK_NS) return; /* in order of start */
        pl_stragglers_waited(s->stragglers, i, pl_core_waited_now(&s->waits.worker[i]));
    }
}

/* A pause since this round began is not known as one yet, so no worker is slow because of it. */
static void server_look_for_stragglers(struct server *s) {
    struct pl_stragglers_found found;
    char sentence[200];
    server_note_waits(s, s->clock.round_ns);
    while (pl_stragglers_look(s->stragglers, s->view, s->clock.round_ns, &found)) {
        pl_stragglers_sentence(&found, &s->job->log,
                               pl_membership_phase(&s->membership, found.worker), sentence,
                               sizeof sentence);
        pl_log_warn(&s->job->log, "%s", sentence);
    }
}

static void server_once_per_second(struct server *s, uint64_t now) {
    server_look_for_stragglers(s);
    pl_membership_check(&s->membership);
    pl_server_lost(s);
    if (s->saver) pl_saver_poll(s->saver, s->engine, now);
    if (s->conf->second) s->conf->second(s->conf->second_ctx, now);
}

static void server_look(struct server *s) {
    uint64_t now = pl_server_now(s);
    server_look_at_scores(s, now);
    if (now >= s->clock.tick_ns) {
        s->clock.tick_ns = now + SERVER_TICK;
        if (pl_server_ticks(s, now)) pl_engine_end(s->engine);
    }
    if (now < s->clock.second_ns) return;
    s->clock.second_ns = now + SERVER_SECOND;
    server_once_per_second(s, now);
}

static uint64_t server_wait(const struct server *s) {
    const struct pl_due *due = pl_engine_due(s->engine);
    uint64_t now = pl_server_now(s), until = s->clock.tick_ns;
    if (!s->scoring.busy && due->score_ns < until) until = due->score_ns;
    if (s->view->timer_ns < until) until = s->view->timer_ns;
    if (due->next_ns < until) until = due->next_ns;
    return until > now ? until - now : 0;
}

/* Starts the workers that are due, but not while a version is scored: a process that is forked
 * while a thread is inside the linear algebra library inherits its locks as they are, and may wait
 * for one that is never released. */
static void server_make(struct server *s) {
    if (s->conf->transport->start->processes && s->scorer && pl_scorer_busy(s->scorer)) return;
    pl_membership_make(&s->membership, pl_now_ns());
}

/* When all processes of a run are ended together, the workers may end first. Before the server
 * reports that no worker is left, the watch has a moment to end the run. */
static void server_look_for_workers(struct server *s) {
    bool alone =
        pl_membership_n_here(&s->membership) == 0 && pl_engine_n(s->engine, PL_STARTING) == 0;
    bool listens = s->conf->listen != NULL;
    uint64_t now = pl_server_now(s);
    if (!alone) {
        s->alone_ns = 0;
    } else if (s->alone_ns == 0) {
        uint64_t wait = s->conf->wait_ns ? s->conf->wait_ns : UINT64_MAX / 2;
        s->alone_ns = now + (listens ? wait : NO_WORKERS_GRACE_NS);
        if (listens && s->conf->wait_ns)
            pl_log_warn(&s->job->log, "no worker is left; waiting up to %g s for one to join at %s",
                        pl_seconds(wait), s->conf->where);
    } else if (now >= s->alone_ns && !pl_engine_ended(s->engine)) {
        s->left_alone = true;
        pl_engine_end(s->engine);
    }
}

/* The time. If the loop did not come round for longer than a beat, everything stood still: Ctrl-Z.
 * Nor does time count in which orders wait for the standby. */
static int server_time(struct server *s) {
    struct server_clock *c = &s->clock;
    uint64_t last_ns = c->round_ns;
    c->round_ns = server_stamp(s);
    bool held = s->gateway && pl_gateway_is_held(s->gateway);
    if (held) pl_engine_lose(s->engine, c->round_ns - last_ns);
    int rc = pl_engine_time(s->engine, c->round_ns, s->why);
    pl_stragglers_lost(s->stragglers, pl_engine_lost_ns(s->engine));
    return rc;
}

/* Workers that have lost their connection, and those that are back. */
static int server_moved(struct server *s) {
    struct pl_gateway_move m;
    int rc = PL_OK;
    while (!rc && s->gateway && pl_gateway_moved(s->gateway, &m)) {
        struct pl_event back = {.kind = PL_JOIN, .worker = m.worker};
        if (m.name[0]) pl_membership_named(&s->membership, m.worker, m.name);
        if (m.name[0] && s->conf->named) s->conf->named(s->conf->events_ctx, m.worker, m.name);
        if (m.away)
            rc = pl_engine_disconnected(s->engine, m.worker, server_stamp(s), s->why);
        else if (pl_engine_life(s->engine, m.worker) == PL_DISCONNECTED)
            rc = server_event(s, &back, NULL);
    }
    return rc;
}

/* A standby has what is to be seen before anybody sees it. */
static int server_copy(struct server *s) {
    struct pl_copy *copy = NULL;
    if (!s->gateway || !pl_gateway_wants_copy(s->gateway, s->view->version)) return PL_OK;
    int rc = pl_copy_new(s->conf, s->engine, s->room, &copy);
    if (rc) return pl_fail(s->why, rc, "out of memory for a copy of the run");
    pl_gateway_give_copy(s->gateway, copy);
    return PL_OK;
}

int pl_server_loop(struct server *s) {
    /* Before any result is read: the first score is that of the model that the run starts from, and
     * whether the run diverged is judged against it. The workers have their orders already. */
    if (!pl_engine_ended(s->engine)) server_look_at_scores(s, pl_server_now(s));
    while (!pl_engine_ended(s->engine)) {
        struct pl_news news;
        server_note_wait(s); /* what it waited while it worked is not taken for a late wake-up */
        s->ops->news(s->port, server_wait(s), &news);
        server_note_wait(s);
        int rc = server_time(s); /* before anything that came later */
        if (!rc) rc = pl_server_news(s, &news);
        if (!rc) rc = server_moved(s);
        if (!rc) rc = server_copy(s);
        if (rc) return rc;
        if (s->saver && pl_saver_due(s->saver, s->view->version))
            pl_saver_poll(s->saver, s->engine, pl_server_now(s));
        if (s->membership.n_due > 0 && !pl_engine_ended(s->engine)) server_make(s);
        server_look(s);
        server_look_for_workers(s);
    }
    return PL_OK;
}
