#include "run/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn/part.h"
#include "sys/clock.h"
#include "sys/fpu.h"

/* The injected delay comes first: whoever is cancelled in it has computed nothing in vain. */
static int worker_rest(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                       int worker, uint64_t task, struct pl_part part) {
    if (!job->delay) return PL_OK;
    double seconds =
        pl_delay_draw(job->delay, job->seed, (uint32_t)worker, task, pl_task_steps(job));
    seconds *= pl_part_work(job, part);
    return seconds > 0 ? t->rest(link, (uint64_t)llround(seconds * 1e9)) : PL_OK;
}

/* What a worker remembers from task to task. What it has sent counts only once the server says so:
 * an answer that crossed its cancel on the way never was. */
struct worker_memory {
    float *sure, *sent; /* NULL where it remembers nothing */
    uint64_t task;      /* that `sent` is behind of; 0: none */
};

static bool worker_remembers(const struct pl_job *job, struct worker_memory *m) {
    size_t dim = job->model->dim;
    *m = (struct worker_memory){0};
    if (!pl_task_remembers(job)) return true;
    m->sure = calloc(dim, sizeof *m->sure);
    m->sent = calloc(dim, sizeof *m->sent);
    return m->sure && m->sent;
}

static void worker_send(const struct pl_job *job, struct worker_memory *m, int worker,
                        const struct pl_order *o) {
    if (m->sure) {
        if (m->task && m->task == o->heard) {
            float *sure = m->sent;
            m->sent = m->sure;
            m->sure = sure;
        }
        memcpy(m->sent, m->sure, job->model->dim * sizeof *m->sent);
        m->task = o->task;
    }
    pl_task_send(job, (uint32_t)worker, o->task, m->sent, o->out);
}

int pl_worker_loop(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                   int worker) {
    struct pl_desk *desk = NULL;
    struct pl_order order;
    struct worker_memory memory;
    uint64_t fpu = pl_fpu_flush();
    int made = pl_desk_new(job, &desk);
    if (!worker_remembers(job, &memory)) made = PL_ENOMEM;
    while (!made && t->pull(link, &order) == PL_OK) {
        struct pl_part part = pl_part_of(job, order.part);
        struct pl_result r = {
            .task = order.task, .samples = pl_part_samples(job, part), .pulled_ns = pl_now_ns()};
        struct pl_version version = {
            .id = order.version, .lr = order.lr, .handed = (float *)(uintptr_t)order.w};
        int rc = worker_rest(job, t, link, worker, order.task, part);
        if (!rc && pl_part_is(part))
            rc = pl_part_run(job, part, &version, order.out, &r.loss, t->cancelled(link));
        else if (!rc)
            rc = pl_task_run(job, desk, (uint32_t)worker, order.task, &version, order.out, &r.loss,
                             t->cancelled(link));
        if (rc == PL_ECANCELLED) continue;
        r.flaw = rc                                            ? PL_NOT_COMPUTED
                 : pl_part_sound(job, part, order.out, r.loss) ? PL_SOUND
                                                               : PL_NOT_FINITE;
        if (r.flaw == PL_SOUND) worker_send(job, &memory, worker, &order);
        r.pushed_ns = pl_now_ns();
        t->push(link, &r);
    }
    free(memory.sure);
    free(memory.sent);
    pl_desk_free(desk);
    pl_fpu_restore(fpu);
    return made;
}
