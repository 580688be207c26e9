/* Membership: which workers have joined, which must be restarted, which are lost for good, and
 * which were stopped from outside.
 *
 * Threads: the server's executes everything here. */
#ifndef PL_RUN_MEMBERSHIP_H
#define PL_RUN_MEMBERSHIP_H

#include "learn/outcome.h"
#include "run/launch.h"

struct pl_membership_worker {
    bool here;
    bool due;         /* it must be restarted, */
    uint64_t due_ns;  /* not before this time of pl_now_ns() */
    uint64_t wait_ns; /* before the next attempt, if this one fails */
    bool ended;       /* by the server */
    bool stopped;     /* from outside, and reported */
    int n_stillborn;  /* times in a row that it ended before its first result */
};

struct pl_membership {
    const struct pl_job *job;
    const struct pl_transport *t;
    struct pl_port *port;
    struct pl_launch *launch; /* NULL: others start the workers */
    bool respawn;             /* restart workers that end */
    uint64_t wait_ns;         /* for workers that others start; 0: for ever */
    struct pl_membership_worker *worker;
    /* While workers are gathered: news that is not about membership. True: the run is to end. */
    bool (*other)(void *ctx, const struct pl_news *news);
    void *ctx;
    int looked; /* worker that was checked last */
    int n_here, n_due;
    int n_lost; /* workers started here that ended and are not restarted */
};

int pl_membership_new(const struct pl_job *job, const struct pl_transport *t, struct pl_port *port,
                      struct pl_membership *out); /* 0 or PL_ENOMEM */
void pl_membership_free(struct pl_membership *c);

/* Starts all workers, if conf is not NULL, and waits until all have joined, or for some time if
 * others start them, which join at `listen` (NULL: nowhere). *ended: the watch ended the run. */
int pl_membership_gather(struct pl_membership *c, const struct pl_launch_conf *conf,
                         const char *listen, const struct pl_watch *watch, const struct pl_point *p,
                         bool *ended, struct pl_why *why);

void pl_membership_here(struct pl_membership *c, int worker);
void pl_membership_answered(struct pl_membership *c, int worker);
/* Reports that it is gone. If it must be restarted, it is then due. */
void pl_membership_gone(struct pl_membership *c, int worker);
/* Restarts those that are due. If one cannot be started, because there are too many processes or a
 * guest has its place, the next attempt is later, after a time that doubles. */
void pl_membership_make(struct pl_membership *c, uint64_t now);

bool pl_membership_is_guest(const struct pl_membership *c, int worker);   /* not started here */
bool pl_membership_is_process(const struct pl_membership *c, int worker); /* started here */
/* Ends a worker that is a process started here; its PL_NEWS_GONE follows. Returns whether it is. */
bool pl_membership_end(struct pl_membership *c, int worker);
/* Hangs up on a guest, so that its place becomes free; false: it is no guest, or cannot be replaced
 * before it has left. */
bool pl_membership_hang_up(struct pl_membership *c, int worker, bool again, const char *sentence);
/* Counts a worker out that cannot be ended. */
void pl_membership_expel(struct pl_membership *c, int worker);

/* Reports workers that were stopped from outside. (A worker whose tasks are cancelled and restarted
 * is slow in none of them.) Checks some workers per call, in turn. */
void pl_membership_look(struct pl_membership *c);

/* What it was doing according to its last message. */
const char *pl_membership_phase(const struct pl_membership *c, int worker);

#endif
