#include "sim/prefetch.h"

#include <stdlib.h>

#include "sys/lock.h"

#define PREFETCH_PER_THREAD 4 /* results that may wait for their moment, per thread */

struct pl_prefetch {
    const struct pl_job *job;
    struct pl_pool *pool;
    int n_threads, need;
    struct pl_prefetch_task *task;   /* [n_workers] */
    struct pl_workspace **workspace; /* [pool size] */
    struct pl_score_piece *piece;
    int n_pieces;
    const float *scored; /* model being evaluated */

    struct pl_lock *lock; /* guards the vectors that are not in use, and n_computed */
    float **spare;
    size_t n_spare, n_vectors;
    uint64_t n_computed;
};

int pl_prefetch_new(const struct pl_job *job, struct pl_prefetch **out, struct pl_why *why) {
    struct pl_prefetch *a = calloc(1, sizeof *a);
    if (!a) return pl_fail(why, PL_ENOMEM, "out of memory");
    a->job = job;
    a->n_threads = job->n_threads;
    a->need = PREFETCH_PER_THREAD * job->n_threads;
    a->n_pieces = pl_score_pieces(job);
    int rc = pl_pool_new(job->n_threads, &a->pool);
    a->lock = pl_lock_new();
    a->task = calloc((size_t)job->n_workers, sizeof *a->task);
    a->piece = calloc((size_t)a->n_pieces, sizeof *a->piece);
    if (!rc) a->workspace = calloc((size_t)pl_pool_size(a->pool), sizeof *a->workspace);
    if (rc || !a->lock || !a->task || !a->piece || !a->workspace) rc = PL_ENOMEM;
    for (int i = 0; !rc && i < pl_pool_size(a->pool); i++)
        rc = pl_workspace_new(job, &a->workspace[i]);
    if (rc) {
        pl_prefetch_free(a);
        return pl_fail(why, rc, "out of memory for %d threads", job->n_threads);
    }
    *out = a;
    return PL_OK;
}

struct pl_prefetch_task *pl_prefetch_tasks(struct pl_prefetch *a) {
    return a->task;
}

void pl_prefetch_free(struct pl_prefetch *a) {
    if (!a) return;
    for (int i = 0; a->task && i < a->job->n_workers; i++) pl_local_state_free(&a->task[i].memory);
    free(a->task);
    for (int i = 0; a->workspace && i < pl_pool_size(a->pool); i++)
        pl_workspace_free(a->workspace[i]);
    free(a->workspace);
    pl_pool_free(a->pool);
    pl_lock_free(a->lock);
    for (size_t i = 0; i < a->n_spare; i++) free(a->spare[i]);
    free(a->spare);
    free(a->piece);
    free(a);
}

float *pl_prefetch_vector(struct pl_prefetch *a) {
    float *v = NULL;
    pl_lock_enter(a->lock);
    if (a->n_spare > 0) {
        v = a->spare[--a->n_spare];
    } else {
        /* room to give every vector back is made before the vector */
        float **room = realloc(a->spare, (a->n_vectors + 1) * sizeof *room);
        if (room) {
            a->spare = room;
            v = aligned_alloc(64, (a->job->model->dim * sizeof *v + 63) & ~(size_t)63);
            if (v) a->n_vectors++;
        }
    }
    pl_lock_leave(a->lock);
    return v;
}

void pl_prefetch_give_back(struct pl_prefetch *a, float *vector) {
    if (!vector) return;
    pl_lock_enter(a->lock);
    a->spare[a->n_spare++] = vector;
    pl_lock_leave(a->lock);
}

static void prefetch_run(struct pl_work *w, int thread) {
    struct pl_prefetch_task *t = (struct pl_prefetch_task *)w;
    struct pl_prefetch *a = t->prefetch;
    const struct pl_cancel cancel = {.flag = &t->work.cancel};
    t->vector = pl_prefetch_vector(a);
    t->rc = PL_ENOMEM;
    if (!t->vector || !t->version.lookahead) return;
    pl_lock_enter(a->lock);
    a->n_computed++;
    pl_lock_leave(a->lock);
    struct pl_task_at at = {t->worker,     t->task,      t->part, t->version.lookahead,
                            t->version.id, t->version.lr};
    t->rc =
        pl_task_run(a->job, a->workspace[thread], &at, &t->memory, t->vector, &t->loss, &cancel);
    t->finite = t->rc == PL_OK && pl_task_finite(a->job, t->part, t->vector, t->loss);
}

int pl_prefetch_start(struct pl_prefetch *a, struct pl_prefetch_task *t, uint32_t worker,
                      uint64_t task, const struct pl_version *version, struct pl_part part,
                      uint64_t finish_ns) {
    t->work.run = prefetch_run;
    t->prefetch = a;
    t->version = *version;
    if (t->base) t->version.lookahead = (float *)(uintptr_t)t->base->w;
    t->part = part;
    t->task = task;
    t->worker = worker;
    t->vector = NULL;
    return pl_pool_submit(a->pool, &t->work, finish_ns);
}

int pl_prefetch_collect(struct pl_prefetch *a, struct pl_prefetch_task *t) {
    pl_pool_wait(a->pool, &t->work);
    return t->rc;
}

void pl_prefetch_drop(struct pl_prefetch *a, struct pl_prefetch_task *t) {
    pl_pool_drop(a->pool, &t->work);
    pl_prefetch_give_back(a, t->vector);
    t->vector = NULL;
    if (!t->base) return;
    pl_prefetch_give_back(a, t->base->made);
    t->base->made = NULL;
}

void pl_prefetch_need(struct pl_prefetch *a, int n) {
    int most = PREFETCH_PER_THREAD * a->n_threads;
    n = n < 0 ? 0 : n > most ? most : n;
    if (n == a->need) return;
    a->need = n;
    pl_pool_window(a->pool, n);
}

static void prefetch_score(void *arg, int piece, int thread) {
    struct pl_prefetch *a = arg;
    pl_score_run(a->job, a->workspace[thread], a->scored, piece, &a->piece[piece]);
}

struct pl_score pl_prefetch_score(struct pl_prefetch *a, const float *model) {
    a->scored = model;
    pl_pool_each(a->pool, a->n_pieces, prefetch_score, a);
    return pl_score_sum(a->job, a->piece);
}

uint64_t pl_prefetch_computed(const struct pl_prefetch *a) {
    return a->n_computed;
}
