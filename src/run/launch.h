/* The launcher: starts the workers of a run, as threads or as processes, and ends them.
 *
 * Threads: the server's calls everything here; launch_work() runs in the new thread or process. */
#ifndef PL_RUN_LAUNCH_H
#define PL_RUN_LAUNCH_H

#include "learn/job.h"
#include "sys/core_wait.h"
#include "transport/transport.h"

struct pl_launch;

struct pl_launch_conf {
    const struct pl_job *job;
    const struct pl_transport *transport;
    struct pl_port *port;
    /* A process was started; NULL is fine. */
    void (*made)(void *ctx, int worker, int pid);
    void *ctx;
    struct pl_core_waited *waited; /* [n_workers] for the workers' reports; NULL: none */
};

int pl_launch_new(const struct pl_launch_conf *conf, struct pl_launch **out);
void pl_launch_free(struct pl_launch *l); /* ends all workers that are left */

/* Starts worker number `worker`, which must not be running. */
int pl_launch_start(struct pl_launch *l, int worker, struct pl_why *why);

/* A worker is gone: collects its exit status and describes how it ended. */
void pl_launch_gone(struct pl_launch *l, int worker, char *how, size_t max);

bool pl_launch_made(const struct pl_launch *l,
                    int worker); /* it was started here and has not gone */
bool pl_launch_is_process(const struct pl_launch *l, int worker);
void pl_launch_kill(struct pl_launch *l, int worker); /* a process; it is gone soon */

bool pl_launch_stopped(const struct pl_launch *l,
                       int worker); /* a process that was stopped (SIGSTOP) */

#endif
