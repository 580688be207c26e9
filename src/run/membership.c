/* Threads: the server's executes everything here. */
#include "run/membership.h"

#include <stdio.h>
#include <stdlib.h>

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

void pl_membership_here(struct pl_membership *c, int worker) {
    c->worker[worker].here = true;
    c->n_here++;
}

void pl_membership_answered(struct pl_membership *c, int worker) {
    c->worker[worker].n_stillborn = 0;
}

/* The server will not start this worker again: a guest may take its place. */
static void membership_give_up(struct pl_membership *c, int worker) {
    c->n_lost++;
    if (c->t->port.offer) c->t->port.offer(c->port, worker);
}

static void membership_due(struct pl_membership *c, int worker, uint64_t at_ns) {
    struct pl_membership_worker *w = &c->worker[worker];
    if (!w->due) c->n_due++;
    w->due = true;
    w->due_ns = at_ns;
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

/* Says it once, and tries again later; meanwhile a guest may take the place. */
static void membership_failed(struct pl_membership *c, int worker, uint64_t now,
                              const struct pl_why *why) {
    struct pl_membership_worker *w = &c->worker[worker];
    if (w->wait_ns == 0) {
        pl_log_warn(&c->job->log, "%s; the run continues without it and tries again", why->text);
        w->wait_ns = MEMBERSHIP_RETRY_NS;
    }
    membership_due(c, worker, now + w->wait_ns);
    if (c->t->port.offer) c->t->port.offer(c->port, worker);
    if (w->wait_ns < MEMBERSHIP_RETRY_MOST_NS) w->wait_ns *= 2;
}

void pl_membership_make(struct pl_membership *c, uint64_t now) {
    for (int i = 0; c->n_due > 0 && i < c->job->n_workers; i++) {
        struct pl_membership_worker *w = &c->worker[i];
        struct pl_why why = {.text = ""};
        if (!w->due || w->due_ns > now) continue;
        w->due = false;
        c->n_due--;
        if (w->here) continue; /* a guest took its place, and is replaced when it leaves */
        if (pl_launch_start(c->launch, i, &why))
            membership_failed(c, i, now, &why);
        else
            w->wait_ns = 0;
    }
}

bool pl_membership_is_process(const struct pl_membership *c, int worker) {
    return c->launch && pl_launch_is_process(c->launch, worker);
}

bool pl_membership_is_guest(const struct pl_membership *c, int worker) {
    return !c->launch || !pl_launch_made(c->launch, worker);
}

bool pl_membership_end(struct pl_membership *c, int worker) {
    if (!pl_membership_is_process(c, worker)) return false;
    pl_launch_kill(c->launch, worker);
    c->worker[worker].ended = true;
    return true;
}

bool pl_membership_hang_up(struct pl_membership *c, int worker, bool again, const char *sentence) {
    if (!c->t->port.hang_up || !c->t->port.hang_up(c->port, worker, again, sentence)) return false;
    c->worker[worker].ended = true;
    return true;
}

void pl_membership_expel(struct pl_membership *c, int worker) {
    if (c->worker[worker].here) c->n_here--;
    c->worker[worker].here = false;
}

/* Removes a worker; `how` describes how it ended. */
static bool membership_went(struct pl_membership *c, int worker, char *how, size_t max) {
    struct pl_membership_worker *w = &c->worker[worker];
    bool was_here = w->here;
    if (c->launch) pl_launch_gone(c->launch, worker, how, max);
    if (w->ended) snprintf(how, max, "was ended");
    w->ended = false;
    if (was_here) c->n_here--;
    w->here = false;
    return was_here;
}

void pl_membership_gone(struct pl_membership *c, int worker) {
    char how[96] = "left";
    struct pl_membership_worker *w = &c->worker[worker];
    bool made = c->launch && pl_launch_made(c->launch, worker);
    bool was_here = membership_went(c, worker, how, sizeof how);
    if (!was_here && w->due) return; /* it could not be started, which is known */
    bool guest = was_here && !made;
    bool again = c->launch && c->respawn && (guest || w->n_stillborn + 1 < MEMBERSHIP_STILLBORN);
    if (was_here || c->launch)
        pl_log_warn(&c->job->log, "worker %d %s; the run continues with %d of %d%s", worker + 1,
                    how, c->n_here, c->job->n_workers, again ? ", and it will be restarted" : "");
    if (again && guest)
        membership_due(c, worker, 0);
    else if (c->launch)
        membership_respawn(c, worker);
}

/* Says how many workers are missing: at once, and from time to time. */
static void membership_tell(const struct pl_membership *c, const char *listen, uint64_t *told_ns,
                            uint64_t *every_ns) {
    uint64_t now = pl_now_ns();
    char limit[64] = "";
    if (!listen || now < *told_ns) return;
    *told_ns = now + *every_ns;
    *every_ns *= 2; /* less and less often */
    if (c->wait_ns > 0 && c->n_here == 0)
        snprintf(limit, sizeof limit, ", for up to %g s in all (--wait)",
                 (double)c->wait_ns * 1e-9);
    pl_log_note(&c->job->log, "waiting for %d of %d workers at %s%s", c->job->n_workers - c->n_here,
                c->job->n_workers, listen, limit);
}

int pl_membership_gather(struct pl_membership *c, const struct pl_launch_conf *conf,
                         const char *listen, const struct pl_watch *watch, const struct pl_point *p,
                         bool *ended, struct pl_why *why) {
    int n = c->job->n_workers;
    if (conf && pl_launch_new(conf, &c->launch)) return pl_fail(why, PL_ENOMEM, "out of memory");
    for (int i = 0; c->launch && i < n; i++) {
        int rc = pl_launch_start(c->launch, i, why);
        if (rc) return rc;
    }
    uint64_t start = pl_now_ns(), told = 0, every = MEMBERSHIP_TELL_NS;
    uint64_t until = start + MEMBERSHIP_GATHER_NS;
    uint64_t give_up = !listen ? until : c->wait_ns > 0 ? start + c->wait_ns : UINT64_MAX;
    if (give_up < until) until = give_up;
    while (c->n_here + c->n_lost < n) {
        struct pl_news news;
        if (c->n_due > 0) pl_membership_make(c, pl_now_ns());
        membership_tell(c, listen, &told, &every);
        c->t->port.news(c->port, MEMBERSHIP_TICK_NS, &news);
        if (news.kind == PL_NEWS_JOINED) pl_membership_here(c, news.worker);
        if (news.kind == PL_NEWS_GONE) {
            char how[96] = "left";
            membership_went(c, news.worker, how, sizeof how);
            pl_log_warn(&c->job->log, "worker %d %s before the run started", news.worker + 1, how);
            if (c->launch) membership_respawn(c, news.worker);
        }
        bool other = news.kind != PL_NEWS_NONE && news.kind != PL_NEWS_JOINED &&
                     news.kind != PL_NEWS_GONE && c->other;
        if ((other && c->other(c->ctx, &news)) || (watch->tick && watch->tick(watch->ctx, p))) {
            *ended = true;
            return PL_OK;
        }
        uint64_t now = pl_now_ns();
        if ((now >= until && c->n_here > 0) || now >= give_up) break;
    }
    if (c->n_here == 0 && listen)
        return pl_fail(why, PL_ERUN,
                       "no worker joined at %.200s within %g s; start workers, or use --wait to "
                       "wait longer",
                       listen, (double)c->wait_ns * 1e-9);
    if (c->n_here == 0) return pl_fail(why, PL_ERUN, "none of the %d workers joined", n);
    return PL_OK;
}

void pl_membership_look(struct pl_membership *c) {
    int n = c->job->n_workers;
    for (int looks = n < MEMBERSHIP_LOOKS ? n : MEMBERSHIP_LOOKS; c->launch && looks > 0; looks--) {
        int i = c->looked = (c->looked + 1) % n;
        struct pl_membership_worker *w = &c->worker[i];
        bool stopped = w->here && pl_launch_stopped(c->launch, i);
        if (stopped && !w->stopped)
            pl_log_warn(&c->job->log, "worker %d is stopped from outside", i + 1);
        w->stopped = stopped;
    }
}

const char *pl_membership_phase(const struct pl_membership *c, int worker) {
    if (c->launch && pl_launch_stopped(c->launch, worker)) return "stopped from outside";
    switch (c->t->port.phase(c->port, worker)) {
    case PL_PHASE_AWAY: return "away";
    case PL_PHASE_WAITING: return "waiting for an order";
    case PL_PHASE_SLEEPING: return "in its injected delay";
    case PL_PHASE_COMPUTING: return "computing";
    }
    return "unknown";
}
