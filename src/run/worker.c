#include "run/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "learn/mix.h"
#include "sys/clock.h"
#include "sys/fpu.h"

/* The injected delay comes first: whoever is cancelled in it has computed nothing in vain. */
static int worker_rest(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                       int worker, uint64_t task) {
    if (!job->delay) return PL_OK;
    double seconds =
        pl_delay_draw(job->delay, job->seed, (uint32_t)worker, task, pl_task_steps(job));
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

const float *pl_worker_base(const struct pl_order *o, size_t dim) {
    struct pl_mixture m = {.n = o->n_parts};
    if (o->n_parts == 0 || !o->base) return o->w;
    for (int i = 0; i < o->n_parts; i++) {
        m.c[i] = o->part[i].c;
        m.v[i] = o->part[i].v;
    }
    pl_mixture_make(&m, 0, dim, o->base);
    return o->base;
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
        struct pl_result r = {
            .task = order.task, .samples = pl_task_samples(job), .pulled_ns = pl_now_ns()};
        struct pl_version version = {
            .id = order.version,
            .lr = order.lr,
            .handed = (float *)(uintptr_t)pl_worker_base(&order, job->model->dim)};
        int rc = worker_rest(job, t, link, worker, order.task);
        if (!rc)
            rc = pl_task_run(job, desk, (uint32_t)worker, order.task, &version, order.out, &r.loss,
                             t->cancelled(link));
        if (rc == PL_ECANCELLED) continue;
        r.flaw = rc                                                  ? PL_NOT_COMPUTED
                 : pl_task_sound(order.out, job->model->dim, r.loss) ? PL_SOUND
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
