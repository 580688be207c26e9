/* Membership: starts the workers of a run, restarts those that end, ends those that the engine no
 * longer wants, and reports those that were stopped from outside. Which workers take part is the
 * engine's to know (engine/life.h).
 *
 * Threads: the server's executes everything here. */
#ifndef PL_RUN_MEMBERSHIP_H
#define PL_RUN_MEMBERSHIP_H

#include "engine/engine.h"
#include "run/launch.h"

struct pl_membership_worker {
    bool due;         /* it must be started, */
    uint64_t due_ns;  /* not before this time of pl_now_ns() */
    uint64_t wait_ns; /* before the next attempt, if this one fails */
    bool ended;       /* by the server */
    int n_stopped;    /* looks in a row that found it stopped from outside */
    int n_checks;     /* since it left, which is to be reported; 0: it did not */
    int n_stillborn;  /* times in a row that it ended before its first result */
};

struct pl_membership {
    const struct pl_job *job;
    struct pl_engine *engine;
    const struct pl_transport *t;
    struct pl_port *port;
    struct pl_launch *launch; /* NULL: others start all workers */
    int n_local;              /* the first workers are started here, the others by others */
    bool respawn;             /* restart workers that end */
    int least;                /* of those, with which the run begins; 0: all */
    uint64_t wait_ns;         /* for workers that others start; 0: for ever */
    struct pl_membership_worker *worker;
    /* While workers are gathered: handles news. Returns true if the run is to end. */
    bool (*news)(void *ctx, const struct pl_news *news);
    void *ctx;
    bool begun;   /* workers were gathered */
    bool listens; /* others may come in place of those that leave */
    int looked;   /* worker that was checked last */
    int n_due;
};

int pl_membership_new(const struct pl_job *job, const struct pl_transport *t, struct pl_port *port,
                      struct pl_membership *out); /* 0 or PL_ENOMEM */
void pl_membership_free(struct pl_membership *c);

/* Starts the first n_local workers, if conf is not NULL, and waits until they have joined; others
 * may join from then on. If others start all of them, it waits for some time; they join at `listen`
 * (nowhere if it is NULL). *ended is set if the watch ended the run. */
int pl_membership_gather(struct pl_membership *c, const struct pl_launch_conf *conf,
                         const char *listen, const struct pl_watch *watch, const struct pl_point *p,
                         bool *ended, struct pl_why *why);

int pl_membership_n_here(const struct pl_membership *c); /* workers that have connected */
void pl_membership_answered(struct pl_membership *c, int worker);
/* Reports that it is gone, after the engine was told. If it must be restarted, it is then due.
 * `was_here`: it had connected. That a client has left others behind is reported a second later: if
 * another one has ended the run by then, it left because of that. */
void pl_membership_gone(struct pl_membership *c, int worker, bool was_here);
/* Restarts those that are due. If one cannot be started, because there are too many processes or a
 * client has its place, the next attempt is later, after a time that doubles. */
void pl_membership_make(struct pl_membership *c, uint64_t now);

/* The worker has a certificate with this name: messages tell it, until it is gone. */
void pl_membership_named(struct pl_membership *c, int worker, const char *name);

bool pl_membership_is_client(const struct pl_membership *c, int worker); /* not started here */
/* Ends a worker, as far as it can be ended: see struct pl_host_ops. A process is killed, and the
 * server hangs up on a client; the PL_NEWS_GONE of either follows. */
enum pl_removal pl_membership_remove(struct pl_membership *c, int worker, enum pl_life_event event,
                                     bool last);

/* Once per second: reports clients that have left, and workers that were stopped from outside. (A
 * worker whose tasks are cancelled and restarted is slow in none of them.) Checks some workers per
 * call, in turn. */
void pl_membership_check(struct pl_membership *c);

/* At the end: reports clients that have left, and were not reported yet, or does not. */
void pl_membership_left(struct pl_membership *c, bool tell);

/* What it was doing according to its last message. */
const char *pl_membership_phase(const struct pl_membership *c, int worker);

#endif
