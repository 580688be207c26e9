#include "run/crew.h"

#include <stdlib.h>

#include "sys/clock.h"

#define CREW_TICK 100000000u     /* ns between two looks at the watch */
#define CREW_GATHER 20000000000u /* ns in which those who are expected must have come */
#define CREW_LOOKS 64            /* workers that are looked at in a second */
#define CREW_STILLBORN 5         /* times a worker may go before its first answer */

int pl_crew_new(const struct pl_job *job, const struct pl_transport *t, struct pl_port *port,
                struct pl_crew *out) {
    *out = (struct pl_crew){.job = job, .t = t, .port = port};
    out->worker = calloc((size_t)job->n_workers, sizeof *out->worker);
    return out->worker ? PL_OK : PL_ENOMEM;
}

void pl_crew_free(struct pl_crew *c) {
    pl_launch_free(c->launch);
    free(c->worker);
    *c = (struct pl_crew){0};
}

void pl_crew_here(struct pl_crew *c, int worker) {
    c->worker[worker].here = true;
    c->n_here++;
}

void pl_crew_answered(struct pl_crew *c, int worker) {
    c->worker[worker].n_stillborn = 0;
}

/* A worker is to be made anew, unless it keeps dying before it has done anything. */
static void crew_respawn(struct pl_crew *c, int worker) {
    struct pl_crew_worker *w = &c->worker[worker];
    if (w->n_stillborn >= CREW_STILLBORN) return; /* it was given up */
    if (c->respawn && ++w->n_stillborn < CREW_STILLBORN) {
        w->due = true;
        c->n_due++;
        return;
    }
    c->n_lost++;
    if (c->respawn)
        pl_log_warn(&c->job->log,
                    "worker %d went %d times before its first answer and is not made again",
                    worker + 1, w->n_stillborn);
}

void pl_crew_make(struct pl_crew *c) {
    for (int i = 0; c->n_due > 0 && i < c->job->n_workers; i++) {
        struct pl_crew_worker *w = &c->worker[i];
        struct pl_why why = {.text = ""};
        if (!w->due) continue;
        w->due = false;
        c->n_due--;
        if (!pl_launch_start(c->launch, i, &why)) continue;
        pl_log_warn(&c->job->log, "%s; the run goes on without it", why.text);
        w->n_stillborn = CREW_STILLBORN;
        c->n_lost++;
    }
}

/* Takes a worker off the books; says how it went. */
static bool crew_went(struct pl_crew *c, int worker, char *how, size_t max) {
    struct pl_crew_worker *w = &c->worker[worker];
    bool was_here = w->here;
    if (c->launch) pl_launch_gone(c->launch, worker, how, max);
    if (was_here) c->n_here--;
    w->here = false;
    return was_here;
}

void pl_crew_gone(struct pl_crew *c, int worker) {
    char how[96] = "left";
    bool was_here = crew_went(c, worker, how, sizeof how);
    bool again = c->launch && c->respawn && c->worker[worker].n_stillborn + 1 < CREW_STILLBORN;
    if (was_here || c->launch)
        pl_log_warn(&c->job->log, "worker %d %s; the run goes on with %d of %d%s", worker + 1, how,
                    c->n_here, c->job->n_workers, again ? ", and a new one is made" : "");
    if (c->launch) crew_respawn(c, worker);
}

int pl_crew_gather(struct pl_crew *c, const struct pl_launch_conf *conf, bool listens,
                   const struct pl_watch *watch, const struct pl_point *p, bool *ended,
                   struct pl_why *why) {
    int n = c->job->n_workers;
    if (conf && pl_launch_new(conf, &c->launch)) return pl_fail(why, PL_ENOMEM, "out of memory");
    for (int i = 0; c->launch && i < n; i++) {
        int rc = pl_launch_start(c->launch, i, why);
        if (rc) return rc;
    }
    uint64_t until = pl_now_ns() + CREW_GATHER;
    while (c->n_here + c->n_lost < n) {
        struct pl_news news;
        if (c->n_due > 0) pl_crew_make(c);
        c->t->news(c->port, CREW_TICK, &news);
        if (news.kind == PL_NEWS_HERE) pl_crew_here(c, news.worker);
        if (news.kind == PL_NEWS_GONE) {
            char how[96] = "left";
            crew_went(c, news.worker, how, sizeof how);
            pl_log_warn(&c->job->log, "worker %d %s before the run began", news.worker + 1, how);
            if (c->launch) crew_respawn(c, news.worker);
        }
        if (watch->tick && watch->tick(watch->ctx, p)) {
            *ended = true;
            return PL_OK;
        }
        if (pl_now_ns() >= until && (c->n_here > 0 || !listens)) break;
    }
    if (c->n_here == 0) return pl_fail(why, PL_ERUN, "none of the %d workers came up", n);
    return PL_OK;
}

void pl_crew_look(struct pl_crew *c) {
    int n = c->job->n_workers;
    for (int looks = n < CREW_LOOKS ? n : CREW_LOOKS; c->launch && looks > 0; looks--) {
        int i = c->looked = (c->looked + 1) % n;
        struct pl_crew_worker *w = &c->worker[i];
        bool stopped = w->here && pl_launch_stopped(c->launch, i);
        if (stopped && !w->stopped)
            pl_log_warn(&c->job->log, "worker %d is stopped from outside", i + 1);
        w->stopped = stopped;
    }
}

const char *pl_crew_phase(const struct pl_crew *c, int worker) {
    if (c->launch && pl_launch_stopped(c->launch, worker)) return "stopped from outside";
    switch (c->t->phase(c->port, worker)) {
    case PL_PHASE_AWAY: return "away";
    case PL_PHASE_WAITING: return "waiting for its order";
    case PL_PHASE_RESTING: return "in its injected delay";
    case PL_PHASE_COMPUTING: return "computing";
    }
    return "unknown";
}
