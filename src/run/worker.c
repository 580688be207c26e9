/* Threads: the worker's thread, or the only one of its process, executes everything here. */
#include "run/worker.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "base/seconds.h"
#include "learn/replica_mean.h"
#include "sys/fpu.h"

struct worker {
    const struct pl_job *job;
    const struct pl_transport *t;
    struct pl_link *link;
    uint32_t number;
    struct pl_workspace *workspace;
    struct pl_local_state state;
    struct pl_core_waited *waited; /* where the server reads waits; NULL: results tell them */
    struct pl_core_wait core;
    uint64_t pull_wait_ns; /* for a core, before the last order could be taken */
    uint64_t pushed;       /* task of the last order, if its result was pushed; otherwise 0 */
};

const float *pl_worker_input(const struct pl_transport *t, struct pl_link *link,
                             const struct pl_order *o, size_t dim) {
    if (o->n_strips > 0) return NULL;
    if (!o->base) return o->input[0].v;
    struct pl_mixture sum = {.n = o->n_inputs};
    for (int i = 0; i < o->n_inputs; i++) {
        sum.c[i] = o->input[i].c;
        sum.v[i] = o->input[i].v;
    }
    pl_mixture_make(&sum, 0, dim, o->base);
    t->link.push(link, &(struct pl_result){.task = o->task, .is_base = true});
    return o->base;
}

/* The injected delay comes first, so that a cancel during it wastes no computation. */
static int worker_delay(const struct worker *w, uint64_t task, struct pl_part part) {
    const struct pl_job *job = w->job;
    if (!job->delay) return PL_OK;
    double seconds = pl_delay_draw(job->delay, job->seed, w->number, task, pl_job_steps(job));
    seconds *= pl_part_work(job, part);
    return seconds > 0 ? w->t->link.sleep(w->link, pl_ns(seconds)) : PL_OK;
}

/* How long the worker has waited for a core since the last call. */
static uint64_t worker_wait(struct worker *w) {
    return w->waited ? pl_core_waited_report(w->waited, &w->core) : pl_core_wait_ns(&w->core);
}

static void worker_pulled(struct worker *w) {
    w->pull_wait_ns = worker_wait(w);
    if (w->waited)
        atomic_store_explicit(&w->waited->pull_ns, w->pull_wait_ns, memory_order_relaxed);
}

static void worker_push(struct worker *w, struct pl_result *r) {
    r->wait_ns = worker_wait(w);
    r->pull_wait_ns = w->pull_wait_ns;
    r->tells_waits = !w->waited && w->core.fd >= 0;
    w->pushed = r->task;
    w->t->link.push(w->link, r);
}

static void worker_do(struct worker *w, const struct pl_order *o) {
    const struct pl_run_note note = pl_note_unpack(o);
    struct pl_task_at at = {.worker = w->number,
                            .task = o->task,
                            .part = pl_part_of(w->job, note.part),
                            .w = pl_worker_input(w->t, w->link, o, w->job->model->dim),
                            .n_strips = o->n_strips,
                            .version = note.version,
                            .lr = note.lr};
    memcpy(at.strip, o->strip, sizeof at.strip);
    struct pl_result r = {.task = o->task, .samples = pl_part_samples(w->job, at.part)};
    w->state.applied = note.applied;
    if (note.acked == 0) pl_local_state_forget(&w->state); /* it has joined, perhaps again */
    if (w->pushed > 0 && w->pushed == note.acked) pl_local_state_acked(&w->state);
    w->pushed = 0;
    int rc = worker_delay(w, o->task, at.part);
    if (!rc)
        rc = pl_task_run(w->job, w->workspace, &at, &w->state, o->out, &r.loss,
                         w->t->link.cancelled(w->link));
    if (rc == PL_ECANCELLED) return;
    if (rc)
        r.defect = PL_NOT_COMPUTED;
    else if (!isfinite(r.loss) || (note.checks && !pl_task_finite(w->job, &at, o->out, r.loss)))
        r.defect = PL_NOT_FINITE;
    if (o->half_out) pl_bf16_narrow_here(o->out, w->job->model->dim);
    worker_push(w, &r);
}

int pl_worker_loop(const struct pl_job *job, const struct pl_transport *t, struct pl_link *link,
                   int worker, struct pl_core_waited *waited) {
    struct worker w = {.job = job,
                       .t = t,
                       .link = link,
                       .number = (uint32_t)worker,
                       .waited = waited,
                       .core = {.fd = -1}};
    struct pl_order order;
    uint64_t fpu = pl_fpu_flush();
    int rc = pl_workspace_new(job, &w.workspace);
    if (pl_local_state_new(&job->local, job->model->dim, &w.state)) rc = PL_ENOMEM;
    pl_core_wait_open(&w.core);
    if (waited) pl_core_waited_begin(waited, &w.core);
    while (!rc && t->link.pull(link, &order) == PL_OK) {
        worker_pulled(&w);
        worker_do(&w, &order);
    }
    pl_core_wait_close(&w.core);
    pl_local_state_free(&w.state);
    pl_workspace_free(w.workspace);
    pl_fpu_restore(fpu);
    return rc;
}
