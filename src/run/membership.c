/* Threads: the server's executes everything here. */
#include "run/membership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seconds.h"
#include "sys/clock.h"

#define MEMBERSHIP_TICK_NS 100000000u     /* between two calls of the watch */
#define MEMBERSHIP_TELL_NS 10000000000u   /* between the first two messages about missing workers */
#define MEMBERSHIP_GATHER_NS 20000000000u /* within which expected workers must have joined */
#define MEMBERSHIP_LOOKS 64               /* workers that are checked per second */
#define MEMBERSHIP_STILLBORN 5            /* times a worker may end before its first result */
#define MEMBERSHIP_RETRY_NS                                                                        \
    100000000u /* before a worker that could not be started is tried again */
#define MEMBERSHIP_RETRY_MOST_NS 30000000000u

int pl_membership_new(const struct pl_job *job, const struct pl_transport *t, struct pl_port *port,
                      struct pl_membership *out) {
    *out = (struct pl_membership){.job = job, .t = t, .port = port};
    out->worker = calloc((size_t)job->n_workers, sizeof *out->worker);
    return out->worker ? PL_OK : PL_ENOMEM;
}

void pl_membership_free(struct pl_membership *c) {
    pl_launch_free(c->launch);
    free(c->worker);
    *c = (struct pl_membership){0};
}

int pl_membership_n_here(const struct pl_membership *c) {
    return pl_engine_n(c->engine, PL_PRESENT) + pl_engine_n(c->engine, PL_DISCONNECTED) +
           pl_engine_n(c->engine, PL_SUSPENDED);
}

void pl_membership_answered(struct pl_membership *c, int worker) {
    c->worker[worker].n_stillborn = 0;
}

/* The server will not start this worker: a client may take its place. */
static void membership_give_up(struct pl_membership *c, int worker) {
    if (c->t->clients) c->t->clients->offer(c->port, worker);
}

static void membership_due(struct pl_membership *c, int worker, uint64_t at_ns) {
    struct pl_membership_worker *w = &c->worker[worker];
    if (!w->due) c->n_due++;
    w->due = true;
    w->due_ns = at_ns;
    pl_engine_starting(c->engine, worker);
}

static bool membership_is_local(const struct pl_membership *c, int worker) {
    return c->launch && worker < c->n_local;
}

/* Restarts a worker, unless it keeps ending before it has done anything. */
static void membership_respawn(struct pl_membership *c, int worker) {
    struct pl_membership_worker *w = &c->worker[worker];
    if (w->n_stillborn >= MEMBERSHIP_STILLBORN) return; /* it was given up already */
    if (c->respawn && ++w->n_stillborn < MEMBERSHIP_STILLBORN) {
        membership_due(c, worker, 0);
        return;
    }
    membership_give_up(c, worker);
    if (c->respawn)
        pl_log_warn(&c->job->log,
                    "worker %d ended %d times before its first result and will not be restarted",
                    worker + 1, w->n_stillborn);
}

/* Says it once, and tries again later; meanwhile a client may take the place. */
static void membership_failed(struct pl_membership *c, int worker, uint64_t now,
                              const struct pl_why *why) {
    struct pl_membership_worker *w = &c->worker[worker];
    if (w->wait_ns == 0) {
        pl_log_warn(&c->job->log, "%s; the run continues without it and tries again", why->text);
        w->wait_ns = MEMBERSHIP_RETRY_NS;
    }
    membership_due(c, worker, now + w->wait_ns);
    if (c->t->clients) c->t->clients->offer(c->port, worker);
    if (w->wait_ns < MEMBERSHIP_RETRY_MOST_NS) w->wait_ns *= 2;
}

void pl_membership_make(struct pl_membership *c, uint64_t now) {
    for (int i = 0; c->n_due > 0 && i < c->job->n_workers; i++) {
        struct pl_membership_worker *w = &c->worker[i];
        struct pl_why why = {.text = ""};
        if (!w->due || w->due_ns > now) continue;
        w->due = false;
        c->n_due--;
        /* otherwise a client took its place, and is replaced when it leaves */
        if (pl_engine_life(c->engine, i) != PL_STARTING) continue;
        if (pl_launch_start(c->launch, i, &why))
            membership_failed(c, i, now, &why);
        else
            w->wait_ns = 0;
    }
}

bool pl_membership_is_client(const struct pl_membership *c, int worker) {
    return !c->launch || !pl_launch_made(c->launch, worker);
}

/* A client loses its place; false: it is no client, or cannot be replaced before it has left. */
static bool membership_hang_up(struct pl_membership *c, int worker, bool again,
                               const char *sentence) {
    return c->t->clients && c->t->clients->hang_up(c->port, worker, again, sentence);
}

enum pl_removal pl_membership_remove(struct pl_membership *c, int worker, enum pl_life_event event,
                                     bool last) {
    bool process = c->launch && pl_launch_is_process(c->launch, worker);
    bool evicted = event == PL_LIFE_EVICTS;
    if (event == PL_LIFE_QUARANTINES) return PL_REMAINS;
    if (process && (c->respawn || evicted)) {
        pl_launch_kill(c->launch, worker);
        c->worker[worker].ended = true;
        return c->respawn ? PL_RESTARTS : PL_FREED;
    }
    const char *sentence = evicted
                               ? "this worker was evicted, because its results could not be used"
                               : "this worker did not answer for too long";
    if (last || !membership_hang_up(c, worker, !evicted, sentence)) return PL_REMAINS;
    c->worker[worker].ended = true;
    return PL_FREED;
}

static void membership_name(const struct pl_membership *c, int worker, const char *name) {
    const struct pl_log *log = &c->job->log;
    if (log->names) snprintf(log->names[worker], sizeof *log->names, "%s", name);
}

static void membership_tell_gone(const struct pl_membership *c, int worker, const char *how,
                                 bool again) {
    const char *then = again ? ", and it will be restarted" : "";
    int n_here = pl_membership_n_here(c);
    if (n_here > 0)
        pl_log_warn(&c->job->log, "%s %s; the run continues with %d of %d%s",
                    PL_WHO(&c->job->log, worker), how, n_here, c->job->n_workers, then);
    else
        pl_log_warn(&c->job->log, "%s %s; no worker is left%s", PL_WHO(&c->job->log, worker), how,
                    then);
    membership_name(c, worker, "");
}

void pl_membership_named(struct pl_membership *c, int worker, const char *name) {
    struct pl_membership_worker *w = &c->worker[worker];
    if (w->n_checks > 0) membership_tell_gone(c, worker, "left", false); /* the one before it */
    w->n_checks = 0;
    /* "worker" is the name in a certificate for which none was chosen */
    membership_name(c, worker, strcmp(name, "worker") == 0 ? "" : name);
}

void pl_membership_gone(struct pl_membership *c, int worker, bool was_here) {
    char how[96] = "left";
    struct pl_membership_worker *w = &c->worker[worker];
    bool client = was_here && pl_membership_is_client(c, worker);
    if (c->launch) pl_launch_gone(c->launch, worker, how, sizeof how);
    bool ended = w->ended;
    if (ended) snprintf(how, sizeof how, "was ended");
    w->ended = false;
    if (!was_here && w->due) { /* it could not be started, which is known */
        pl_engine_starting(c->engine, worker);
        return;
    }
    bool local = membership_is_local(c, worker);
    bool again = local && c->respawn && (client || w->n_stillborn + 1 < MEMBERSHIP_STILLBORN);
    if (!c->begun)
        pl_log_warn(&c->job->log, "%s %s before the run started", PL_WHO(&c->job->log, worker),
                    how);
    else if (client && !ended && !again && pl_membership_n_here(c) > 0)
        w->n_checks = 1;
    else if (was_here || local)
        membership_tell_gone(c, worker, how, again);
    if (again && client)
        membership_due(c, worker, 0);
    else if (local)
        membership_respawn(c, worker);
    else if (!c->begun && c->listens)
        pl_engine_starting(c->engine, worker); /* another one may come */
}

/* Says how many workers are missing: at once, and from time to time. */
static void membership_tell(const struct pl_membership *c, const char *listen, uint64_t *told_ns,
                            uint64_t *every_ns) {
    uint64_t now = pl_now_ns();
    char limit[64] = "";
    if (!listen || now < *told_ns) return;
    bool first = *told_ns == 0; /* they are being started */
    *told_ns = now + *every_ns;
    *every_ns *= 2; /* less and less often */
    int n_here = pl_membership_n_here(c);
    int n_needed = c->least > 0 ? c->least : c->job->n_workers;
    if (c->wait_ns > 0 && n_here == 0)
        snprintf(limit, sizeof limit, ", for up to %g s in all (--wait)", pl_seconds(c->wait_ns));
    (first ? pl_log_detail : pl_log_note)(&c->job->log, "waiting for %d of %d workers at %s%s",
                                          n_needed - n_here, c->job->n_workers, listen, limit);
}

/* Workers that others start, and that have not come, are not expected any more. */
static void membership_begin(struct pl_membership *c) {
    c->begun = true;
    for (int i = 0; !c->launch && i < c->job->n_workers; i++) {
        struct pl_event gone = {.kind = PL_LEAVE, .worker = i};
        if (pl_engine_life(c->engine, i) == PL_STARTING)
            pl_engine_event(c->engine, &gone, NULL, NULL);
    }
}

int pl_membership_gather(struct pl_membership *c, const struct pl_launch_conf *conf,
                         const char *listen, const struct pl_watch *watch, const struct pl_point *p,
                         bool *ended, struct pl_why *why) {
    int n = c->job->n_workers, n_expected = conf ? c->n_local : n;
    c->listens = listen != NULL;
    if (conf && pl_launch_new(conf, &c->launch)) return pl_fail(why, PL_ENOMEM, "out of memory");
    for (int i = 0; i < n; i++) {
        bool local = membership_is_local(c, i);
        int rc = local ? pl_launch_start(c->launch, i, why) : PL_OK;
        if (rc) return rc;
        if (local || !c->launch)
            pl_engine_starting(c->engine, i);
        else
            membership_give_up(c, i);
    }
    uint64_t start = pl_now_ns(), told = 0, every = MEMBERSHIP_TELL_NS;
    uint64_t until = start + MEMBERSHIP_GATHER_NS;
    uint64_t give_up = !listen ? until : c->wait_ns > 0 ? start + c->wait_ns : UINT64_MAX;
    if (give_up < until) until = give_up;
    while (pl_engine_n(c->engine, PL_STARTING) > 0) {
        struct pl_news news;
        if (c->n_due > 0) pl_membership_make(c, pl_now_ns());
        membership_tell(c, listen, &told, &every);
        c->t->port.news(c->port, MEMBERSHIP_TICK_NS, &news);
        if (c->news(c->ctx, &news) || (watch->tick && watch->tick(watch->ctx, p))) {
            *ended = true;
            return PL_OK;
        }
        uint64_t now = pl_now_ns();
        int here = pl_membership_n_here(c);
        if ((now >= until && here > 0 && here >= c->least) || now >= give_up) break;
        if (!c->launch && c->least > 0 && here >= c->least) break;
    }
    membership_begin(c);
    int n_here = pl_membership_n_here(c);
    if (n_here > 0 && n_here < n_expected && (c->launch || n_here < c->least || c->least == 0))
        pl_log_warn(&c->job->log,
                    "the run begins with %d of %d workers: the others did not join "
                    "within %.3g s",
                    n_here, n, pl_seconds(pl_now_ns() - start));
    if (n_here > 0) return PL_OK;
    if (listen)
        return pl_fail(why, PL_ERUN,
                       "no worker joined at %.200s within %g s; start workers, or use --wait to "
                       "wait longer",
                       listen, pl_seconds(c->wait_ns));
    return pl_fail(why, PL_ERUN, "none of the %d workers joined", n);
}

void pl_membership_left(struct pl_membership *c, bool tell) {
    for (int i = 0; i < c->job->n_workers; i++) {
        if (tell && c->worker[i].n_checks > 0) membership_tell_gone(c, i, "left", false);
        c->worker[i].n_checks = 0;
    }
}

void pl_membership_check(struct pl_membership *c) {
    int n = c->job->n_workers;
    for (int i = 0; i < n; i++) {
        struct pl_membership_worker *w = &c->worker[i];
        if (w->n_checks == 0 || ++w->n_checks < 3) continue;
        membership_tell_gone(c, i, "left", false);
        w->n_checks = 0;
    }
    for (int looks = n < MEMBERSHIP_LOOKS ? n : MEMBERSHIP_LOOKS; c->launch && looks > 0; looks--) {
        int i = c->looked = (c->looked + 1) % n;
        struct pl_membership_worker *w = &c->worker[i];
        w->n_stopped = pl_launch_stopped(c->launch, i) ? w->n_stopped + 1 : 0;
        if (w->n_stopped == 2) /* once, the whole run may have been */
            pl_log_warn(&c->job->log, "worker %d is stopped from outside", i + 1);
    }
}

const char *pl_membership_phase(const struct pl_membership *c, int worker) {
    if (c->launch && pl_launch_stopped(c->launch, worker)) return "stopped from outside";
    if (pl_engine_life(c->engine, worker) == PL_DISCONNECTED) return "disconnected";
    switch (c->t->port.phase(c->port, worker)) {
    case PL_PHASE_AWAY: return "away";
    case PL_PHASE_WAITING: return "waiting for an order";
    case PL_PHASE_SLEEPING: return "in its injected delay";
    case PL_PHASE_COMPUTING: return "computing";
    }
    return "unknown";
}
