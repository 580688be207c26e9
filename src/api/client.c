/* pl_client: a worker of a run whose server is another process.
 *
 * Threads: the caller's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "learn/task.h"
#include "run/worker.h"
#include "sys/clock.h"

#define CLIENT_WAIT 30            /* seconds, unless the caller sets them */
#define CLIENT_RETRY_NS 50000000u /* between two attempts to connect */

struct pl_client {
    struct pl_link *link;
    int worker;
    size_t dim;
    struct pl_order order;
    struct pl_client_task task; /* as given to the caller */
};

static int client_connect(struct pl_client *s, const struct pl_client_conf *conf,
                          struct pl_why *why) {
    double wait = conf->wait > 0 ? conf->wait : conf->wait < 0 ? 0 : CLIENT_WAIT;
    uint64_t end = pl_now_ns() + (uint64_t)llround((wait < 1e9 ? wait : 1e9) * 1e9);
    int rc;
    while ((rc = pl_shm_connect(conf->path, &s->link, &s->worker, &s->dim, why)) != 0 &&
           pl_now_ns() < end)
        pl_sleep_ns(CLIENT_RETRY_NS);
    if (rc || conf->dim == 0 || conf->dim == s->dim) return rc;
    pl_shm.link.detach(s->link);
    return pl_fail(why, PL_ERUN,
                   "this program's model has %zu parameters, but the run at '%.200s' has %zu",
                   conf->dim, conf->path, s->dim);
}

int pl_client_open(const struct pl_client_conf *conf, pl_client **out, char *why, size_t why_max) {
    struct pl_why sentence = {.text = ""};
    struct pl_client *s = calloc(1, sizeof *s);
    int rc =
        s ? client_connect(s, conf, &sentence) : pl_fail(&sentence, PL_ENOMEM, "out of memory");
    if (why_max > 0) snprintf(why, why_max, "%s", sentence.text);
    if (rc) {
        free(s);
        return rc;
    }
    *out = s;
    return PL_OK;
}

void pl_client_close(pl_client *s) {
    if (!s) return;
    pl_shm.link.detach(s->link);
    free(s);
}

int pl_client_pull(pl_client *s, double seconds, struct pl_client_task *task) {
    (void)seconds;
    int rc = pl_shm.link.pull(s->link, &s->order);
    if (rc) return rc;
    const struct pl_run_note note = pl_note_unpack(&s->order);
    s->task = (struct pl_client_task){.worker = s->worker,
                                      .task = s->order.task,
                                      .version = note.version,
                                      .lr = note.lr,
                                      .dim = s->dim,
                                      .w = pl_worker_input(&pl_shm, s->link, &s->order),
                                      .out = s->order.out};
    *task = s->task;
    return PL_OK;
}

int pl_client_cancelled(const pl_client *s) {
    return pl_cancelled(pl_shm.link.cancelled(s->link));
}

int pl_client_push(pl_client *s, size_t n, uint32_t samples, double loss) {
    struct pl_result r = {.task = s->task.task, .samples = samples, .loss = loss};
    /* a result that stays with its worker is a model: the step is made here */
    for (size_t i = 0; s->order.stays && i < s->dim; i++)
        s->order.out[i] = s->task.w[i] - (float)s->task.lr * s->order.out[i];
    if (n != s->dim)
        r.defect = PL_WRONG_SIZE;
    else if (!isfinite(loss) || !pl_all_finite(s->order.out, s->dim))
        r.defect = PL_NOT_FINITE;
    pl_shm.link.push(s->link, &r);
    return PL_OK;
}
