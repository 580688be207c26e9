/* The crew: which workers are here, which are to be made anew, which are lost for good, and which
 * somebody stopped from outside. */
#ifndef PL_RUN_MEMBERSHIP_H
#define PL_RUN_MEMBERSHIP_H

#include "learn/outcome.h"
#include "run/launch.h"

struct pl_membership_worker {
    bool here;
    bool due;        /* it is to be made anew */
    bool stopped;    /* from outside, and somebody was told */
    int n_stillborn; /* times it went without an answer, in a row */
};

struct pl_membership {
    const struct pl_job *job;
    const struct pl_transport *t;
    struct pl_port *port;
    struct pl_launch *launch; /* NULL where others make the workers */
    bool respawn;             /* a new one is made for every one that goes */
    struct pl_membership_worker *worker;
    int looked; /* worker that was looked at last */
    int n_here, n_due;
    int n_lost; /* that were made here, went, and are not made again */
};

int pl_membership_new(const struct pl_job *job, const struct pl_transport *t, struct pl_port *port,
                      struct pl_membership *out); /* 0 or PL_ENOMEM */
void pl_membership_free(struct pl_membership *c);

/* Makes all workers, where conf is not NULL, and waits until all have come, or some have where
 * others make them. *ended: the watch said so. */
int pl_membership_gather(struct pl_membership *c, const struct pl_launch_conf *conf, bool listens,
                         const struct pl_watch *watch, const struct pl_point *p, bool *ended,
                         struct pl_why *why);

void pl_membership_here(struct pl_membership *c, int worker);
void pl_membership_answered(struct pl_membership *c, int worker);
/* It is gone, which is said; where it is to be made anew, it is due. */
void pl_membership_gone(struct pl_membership *c, int worker);
void pl_membership_make(struct pl_membership *c); /* those that are due */

/* A worker that is frozen while its tasks are cancelled and started anew is slow in none of them:
 * it is named for being frozen. Some are looked at, in turn. */
void pl_membership_look(struct pl_membership *c);

/* What it was doing when it was last heard of. */
const char *pl_membership_phase(const struct pl_membership *c, int worker);

#endif
