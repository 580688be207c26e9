#include "sim/prefetch.h"

#include <math.h>
#include <stdlib.h>

#include "learn/outcome.h"
#include "sys/clock.h"
#include "sys/lock.h"

#define PREFETCH_PER_THREAD 4 /* results computed ahead, per thread */

struct pl_prefetch {
    const struct pl_job *job;
    struct pl_pool *pool;
    int n_threads, need;
    struct pl_prefetch_task *task;   /* [n_workers] */
    struct pl_workspace **workspace; /* [pool size] */
    struct pl_score_piece *piece;
    int n_pieces;
    const float *scored; /* model being evaluated */
    void (*look)(void *ctx);
    void *look_ctx;
    atomic_bool over;     /* the run is to end, */
    uint64_t until_ns;    /* and evaluations are given up then */
    atomic_bool given_up; /* the current one was */

    struct pl_lock *lock; /* guards the spare vectors and n_computed */
    float **spare;
    size_t n_spare, n_vectors;
    uint64_t n_computed;
};

int pl_prefetch_new(const struct pl_job *job, struct pl_prefetch **out, struct pl_why *why) {
    struct pl_prefetch *p = calloc(1, sizeof *p);
    if (!p) return pl_fail(why, PL_ENOMEM, "out of memory");
    p->job = job;
    p->n_threads = job->n_threads;
    p->need = PREFETCH_PER_THREAD * job->n_threads;
    p->n_pieces = pl_score_pieces(job);
    int rc = pl_pool_new(job->n_threads, &p->pool);
    p->lock = pl_lock_new();
    p->task = calloc((size_t)job->n_workers, sizeof *p->task);
    p->piece = calloc((size_t)p->n_pieces, sizeof *p->piece);
    if (!rc) p->workspace = calloc((size_t)pl_pool_size(p->pool), sizeof *p->workspace);
    if (rc || !p->lock || !p->task || !p->piece || !p->workspace) rc = PL_ENOMEM;
    for (int i = 0; !rc && i < pl_pool_size(p->pool); i++)
        rc = pl_workspace_new(job, &p->workspace[i]);
    if (rc) {
        pl_prefetch_free(p);
        return pl_fail(why, rc, "out of memory for %d threads", job->n_threads);
    }
    *out = p;
    return PL_OK;
}

struct pl_prefetch_task *pl_prefetch_tasks(struct pl_prefetch *p) {
    return p->task;
}

void pl_prefetch_free(struct pl_prefetch *p) {
    if (!p) return;
    for (int i = 0; p->task && i < p->job->n_workers; i++) pl_local_state_free(&p->task[i].state);
    free(p->task);
    for (int i = 0; p->workspace && i < pl_pool_size(p->pool); i++)
        pl_workspace_free(p->workspace[i]);
    free(p->workspace);
    pl_pool_free(p->pool);
    pl_lock_free(p->lock);
    for (size_t i = 0; i < p->n_spare; i++) free(p->spare[i]);
    free(p->spare);
    free(p->piece);
    free(p);
}

float *pl_prefetch_get(void *ctx, int writer) {
    struct pl_prefetch *p = ctx;
    float *v = NULL;
    (void)writer;
    pl_lock_enter(p->lock);
    if (p->n_spare > 0) {
        v = p->spare[--p->n_spare];
    } else {
        /* first make room to take the vector back */
        float **room = realloc(p->spare, (p->n_vectors + 1) * sizeof *room);
        if (room) {
            p->spare = room;
            v = aligned_alloc(64, (pl_part_most(p->job) * sizeof *v + 63) & ~(size_t)63);
            if (v) p->n_vectors++;
        }
    }
    pl_lock_leave(p->lock);
    return v;
}

void pl_prefetch_put(void *ctx, int id, int writer, float *v) {
    struct pl_prefetch *p = ctx;
    (void)id;
    (void)writer;
    if (!v) return;
    pl_lock_enter(p->lock);
    p->spare[p->n_spare++] = v;
    pl_lock_leave(p->lock);
}

/* One of the threads asks whether its task, or the evaluation, is still wanted. */
struct prefetch_asks {
    struct pl_prefetch *p;
    struct pl_prefetch_task *task; /* NULL: the evaluation */
    int thread;
};

static void prefetch_ask(void *arg) {
    const struct prefetch_asks *a = arg;
    if (a->thread == 0 && a->p->look) a->p->look(a->p->look_ctx);
    if (!atomic_load(&a->p->over)) return;
    if (a->task)
        atomic_store_explicit(&a->task->work.cancel, true, memory_order_relaxed);
    else if (pl_now_ns() >= a->p->until_ns)
        atomic_store(&a->p->given_up, true);
}

static void prefetch_run(struct pl_work *w, int thread) {
    struct pl_prefetch_task *t = (struct pl_prefetch_task *)w;
    struct pl_prefetch *p = t->prefetch;
    struct prefetch_asks asks = {p, t, thread};
    const struct pl_cancel cancel = {&t->work.cancel, prefetch_ask, &asks};
    bool writes_strips = t->at.n_strips > 0;
    t->rc = PL_ECANCELLED;
    t->finite = false;
    if (pl_cancelled(&cancel)) return; /* it was still waiting when the run ended */
    if (!writes_strips) t->vector = pl_prefetch_get(p, (int)t->at.worker);
    t->rc = PL_ENOMEM;
    if (!writes_strips && !t->vector) return;
    pl_lock_enter(p->lock);
    p->n_computed++;
    pl_lock_leave(p->lock);
    t->rc =
        pl_task_run(p->job, p->workspace[thread], &t->at, &t->state, t->vector, &t->loss, &cancel);
    t->finite = t->rc == PL_OK && pl_task_finite(p->job, &t->at, t->vector, t->loss);
}

int pl_prefetch_start(struct pl_prefetch *p, struct pl_prefetch_task *t, uint64_t finish_ns) {
    t->work.run = prefetch_run;
    t->prefetch = p;
    t->vector = NULL;
    return pl_pool_submit(p->pool, &t->work, finish_ns);
}

int pl_prefetch_collect(struct pl_prefetch *p, struct pl_prefetch_task *t) {
    pl_pool_wait(p->pool, &t->work);
    return t->rc;
}

void pl_prefetch_drop(struct pl_prefetch *p, struct pl_prefetch_task *t) {
    pl_pool_drop(p->pool, &t->work);
    pl_prefetch_put(p, -1, -1, t->vector);
    t->vector = NULL;
}

void pl_prefetch_need(struct pl_prefetch *p, int n) {
    int most = PREFETCH_PER_THREAD * p->n_threads;
    n = n < 0 ? 0 : n > most ? most : n;
    if (n == p->need) return;
    p->need = n;
    pl_pool_window(p->pool, n);
}

static void prefetch_score(void *arg, int piece, int thread) {
    struct pl_prefetch *p = arg;
    struct prefetch_asks asks = {p, NULL, thread};
    const struct pl_cancel cancel = {&p->given_up, prefetch_ask, &asks};
    if (!pl_cancelled(&cancel))
        pl_score_run(p->job, p->workspace[thread], p->scored, piece, &p->piece[piece], &cancel);
}

bool pl_prefetch_score(struct pl_prefetch *p, const float *model, struct pl_score *out) {
    p->scored = model;
    atomic_store(&p->given_up, false);
    pl_pool_each(p->pool, p->n_pieces, prefetch_score, p);
    if (atomic_load(&p->given_up)) return false;
    *out = pl_score_sum(p->job, p->piece);
    return true;
}

void pl_prefetch_look(struct pl_prefetch *p, void (*look)(void *ctx), void *ctx) {
    p->look = look;
    p->look_ctx = ctx;
    pl_pool_idle(p->pool, look, ctx);
}

void pl_prefetch_end(struct pl_prefetch *p) {
    if (atomic_load(&p->over)) return;
    p->until_ns = pl_now_ns() + PL_LAST_SCORE_NS;
    atomic_store(&p->over, true);
}

double pl_prefetch_consensus(const struct pl_prefetch *p) {
    int slot = ((const struct pl_local *)p->job->local.entry)->model_slot, n = 0;
    double far = 0;
    for (int i = 0; slot > 0 && i < p->job->n_workers; i++) n += p->task[i].state.any;
    for (size_t k = 0; n > 0 && k < p->job->model->dim; k++) {
        double mean = 0;
        for (int i = 0; i < p->job->n_workers; i++)
            if (p->task[i].state.any) mean += (double)p->task[i].state.prev[slot - 1][k] / n;
        for (int i = 0; i < p->job->n_workers; i++)
            if (p->task[i].state.any)
                far += pow((double)p->task[i].state.prev[slot - 1][k] - mean, 2);
    }
    return n > 0 ? sqrt(far / n) : (double)NAN;
}

uint64_t pl_prefetch_computed(const struct pl_prefetch *p) {
    return p->n_computed;
}
