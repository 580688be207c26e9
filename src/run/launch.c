/* Threads: the server's executes everything, except launch_work(), which runs in the new thread or
 * process. */
#include "run/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/worker.h"
#include "sys/process.h"
#include "sys/thread.h"

#define LAUNCH_GRACE_NS 500000000u /* between a closed socket and the end of its process */

struct launch_worker {
    struct pl_launch *launch;
    int worker;
    int pid;                  /* 0: none */
    struct pl_thread *thread; /* NULL: none */
};

struct pl_launch {
    struct pl_launch_conf conf;
    struct launch_worker *worker;
};

int pl_launch_new(const struct pl_launch_conf *conf, struct pl_launch **out) {
    struct pl_launch *l = calloc(1, sizeof *l);
    size_t n = (size_t)conf->job->n_workers;
    if (l) l->worker = calloc(n, sizeof *l->worker);
    if (!l || !l->worker) {
        free(l);
        return PL_ENOMEM;
    }
    l->conf = *conf;
    for (size_t i = 0; i < n; i++) {
        l->worker[i].launch = l;
        l->worker[i].worker = (int)i;
    }
    *out = l;
    return PL_OK;
}

void pl_launch_free(struct pl_launch *l) {
    if (!l) return;
    char how[64];
    for (int i = 0; i < l->conf.job->n_workers; i++) {
        if (l->worker[i].pid) pl_process_end(l->worker[i].pid, how, sizeof how);
        pl_thread_join(l->worker[i].thread);
    }
    free(l->worker);
    free(l);
}

/* What the new thread or process does. */
static int launch_work(void *arg) {
    const struct launch_worker *w = arg;
    const struct pl_transport *t = w->launch->conf.transport;
    struct pl_link *link;
    if (t->start->attach(w->launch->conf.port, w->worker, &link)) return 1;
    struct pl_core_waited *waited = w->launch->conf.waited;
    int rc =
        pl_worker_loop(w->launch->conf.job, t, link, w->worker, waited ? &waited[w->worker] : NULL);
    t->link.detach(link);
    return rc ? 1 : 0;
}

static void launch_thread(void *arg) {
    launch_work(arg);
}

int pl_launch_start(struct pl_launch *l, int worker, struct pl_why *why) {
    const struct pl_transport *t = l->conf.transport;
    struct launch_worker *w = &l->worker[worker];
    int rc = t->start->expect(l->conf.port, worker, why);
    if (rc) return rc;
    if (!t->start->processes) {
        rc = pl_thread_start(launch_thread, w, &w->thread);
        t->start->made(l->conf.port, worker);
        return rc ? pl_fail(why, rc, "cannot start a thread for worker %d", worker + 1) : PL_OK;
    }
    char name[32];
    snprintf(name, sizeof name, "paceline-w%d", worker + 1);
    int pid = pl_process_start(name, launch_work, w), error = errno;
    t->start->made(l->conf.port, worker);
    if (pid < 0)
        return pl_fail(why, pid, "cannot start a process for worker %d: %s", worker + 1,
                       strerror(error));
    w->pid = pid;
    if (l->conf.made) l->conf.made(l->conf.ctx, worker, pid);
    return PL_OK;
}

void pl_launch_gone(struct pl_launch *l, int worker, char *how, size_t max) {
    struct launch_worker *w = &l->worker[worker];
    snprintf(how, max, "left");
    if (w->pid) pl_process_await(w->pid, LAUNCH_GRACE_NS, how, max);
    pl_thread_join(w->thread);
    w->pid = 0;
    w->thread = NULL;
}

bool pl_launch_made(const struct pl_launch *l, int worker) {
    return l->worker[worker].pid || l->worker[worker].thread;
}

bool pl_launch_is_process(const struct pl_launch *l, int worker) {
    return l->worker[worker].pid != 0;
}

void pl_launch_kill(struct pl_launch *l, int worker) {
    if (l->worker[worker].pid) pl_process_kill(l->worker[worker].pid);
}

bool pl_launch_stopped(const struct pl_launch *l, int worker) {
    return l->worker[worker].pid && pl_process_stopped(l->worker[worker].pid);
}
