/* The launcher: makes the workers of a run, as threads or as processes, and sees them off. */
#ifndef PL_RUN_LAUNCH_H
#define PL_RUN_LAUNCH_H

#include "learn/job.h"
#include "transport/transport.h"

struct pl_launch;

struct pl_launch_conf {
    const struct pl_job *job;
    const struct pl_transport *transport;
    struct pl_port *port;
    /* A process was made; NULL where nobody wants to know. */
    void (*made)(void *ctx, int worker, int pid);
    void *ctx;
};

int pl_launch_new(const struct pl_launch_conf *conf, struct pl_launch **out);
void pl_launch_free(struct pl_launch *l); /* ends every worker that is still there */

/* Makes worker number `worker`, which must not be there. */
int pl_launch_start(struct pl_launch *l, int worker, struct pl_why *why);

/* A worker is gone: takes its status and says how it went. */
void pl_launch_gone(struct pl_launch *l, int worker, char *how, size_t max);

bool pl_launch_stopped(const struct pl_launch *l, int worker); /* a process that is frozen */

#endif
