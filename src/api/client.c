/* pl_client: a worker of a run whose server is another process.
 *
 * Threads: the caller's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "learn/task.h"
#include "run/worker.h"
#include "transport/guest.h"

struct pl_client {
    struct pl_link *link;
    int worker;
    size_t dim;
    struct pl_order order;
    struct pl_client_task task; /* as given to the caller */
};

int pl_client_open(const char *path, pl_client **out, char *why, size_t why_max) {
    struct pl_why sentence = {.text = ""};
    struct pl_client *s = calloc(1, sizeof *s);
    struct pl_welcome welcome = {.worker = -1};
    struct pl_guest_conf conf = {.path = path, .guest = {.kind = PL_GUEST_WORKER}};
    int rc = s ? pl_guest_connect(&conf, &s->link, &welcome, &sentence)
               : pl_fail(&sentence, PL_ENOMEM, "out of memory");
    if (why_max > 0) snprintf(why, why_max, "%s", sentence.text);
    if (rc) {
        free(s);
        return rc;
    }
    s->worker = welcome.worker;
    s->dim = welcome.dim;
    *out = s;
    return PL_OK;
}

void pl_client_close(pl_client *s) {
    if (!s) return;
    pl_shm.link.detach(s->link);
    free(s);
}

int pl_client_pull(pl_client *s, struct pl_client_task *task) {
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

void pl_client_push(pl_client *s, size_t n, uint32_t samples, double loss) {
    struct pl_result r = {.task = s->task.task, .samples = samples, .loss = loss};
    /* a result that stays with its worker is a model: the step is made here */
    for (size_t i = 0; s->order.stays && i < s->dim; i++)
        s->order.out[i] = s->task.w[i] - (float)s->task.lr * s->order.out[i];
    if (n != s->dim)
        r.defect = PL_WRONG_SIZE;
    else if (!isfinite(loss) || !pl_all_finite(s->order.out, s->dim))
        r.defect = PL_NOT_FINITE;
    pl_shm.link.push(s->link, &r);
}
