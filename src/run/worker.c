#include "run/worker.h"

#include <math.h>

#include "learn/replica_mean.h"
#include "learn/task.h"
#include "sys/clock.h"
#include "sys/fpu.h"

/* The injected delay comes first: whoever is cancelled in it has computed nothing in vain. */
static int worker_rest(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                       int worker, uint64_t task, struct pl_part part) {
    if (!job->delay) return PL_OK;
    double seconds =
        pl_delay_draw(job->delay, job->seed, (uint32_t)worker, task, pl_job_steps(job));
    seconds *= pl_part_work(job, part);
    return seconds > 0 ? t->link.sleep(link, (uint64_t)llround(seconds * 1e9)) : PL_OK;
}

const float *pl_worker_base(const struct pl_order *o, size_t dim) {
    struct pl_mixture m = {.n = o->n_summands};
    if (o->n_summands == 0 || !o->base) return o->w;
    for (int i = 0; i < o->n_summands; i++) {
        m.c[i] = o->summand[i].c;
        m.v[i] = o->summand[i].v;
    }
    pl_mixture_make(&m, 0, dim, o->base);
    return o->base;
}

int pl_worker_loop(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                   int worker) {
    struct pl_workspace *workspace = NULL;
    struct pl_order order;
    struct pl_local_state memory;
    uint64_t sent = 0; /* the last task that was answered */
    uint64_t fpu = pl_fpu_flush();
    int made = pl_workspace_new(job, &workspace);
    if (pl_local_state_new(job, &memory)) made = PL_ENOMEM;
    while (!made && t->link.pull(link, &order) == PL_OK) {
        struct pl_part part = pl_part_of(job, order.part);
        struct pl_result r = {
            .task = order.task, .samples = pl_part_samples(job, part), .pulled_ns = pl_now_ns()};
        memory.applied = order.applied;
        struct pl_task_at at = {
            (uint32_t)worker, order.task, part, pl_worker_base(&order, job->model->dim),
            order.version,    order.lr};
        if (order.base) t->link.base(link);
        if (sent > 0 && sent == order.acked) pl_local_state_acked(&memory);
        sent = 0;
        int rc = worker_rest(job, t, link, worker, order.task, part);
        if (!rc)
            rc = pl_task_run(job, workspace, &at, &memory, order.out, &r.loss,
                             t->link.cancelled(link));
        if (rc == PL_ECANCELLED) continue;
        r.defect = rc                                             ? PL_NOT_COMPUTED
                   : pl_task_finite(job, part, order.out, r.loss) ? PL_NO_DEFECT
                                                                  : PL_NOT_FINITE;
        sent = order.task;
        r.pushed_ns = pl_now_ns();
        t->link.push(link, &r);
    }
    pl_local_state_free(&memory);
    pl_workspace_free(workspace);
    pl_fpu_restore(fpu);
    return made;
}
