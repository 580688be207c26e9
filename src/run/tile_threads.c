#include "run/tile_threads.h"

#include "sys/thread.h"

#define TILE_THREADS_SLICE 131072 /* parameters for which waking a thread pays off */

struct pl_tile_threads pl_tile_threads_of(size_t dim, int n_threads, const struct pl_port_ops *ops,
                                          struct pl_port *port) {
    size_t most = dim / TILE_THREADS_SLICE;
    int n = most < (size_t)n_threads ? (int)most : n_threads;
    return (struct pl_tile_threads){.n = n, .dim = dim, .ops = ops, .port = port};
}

int pl_tile_threads_start(struct pl_tile_threads *t) {
    if (t->n <= 1) return PL_OK;
    int rc = pl_pool_new(t->n, &t->pool);
    if (!rc) pl_pool_window(t->pool, PL_TILES); /* all are collected at the end */
    return rc;
}

void pl_tile_threads_free(struct pl_tile_threads *t) {
    pl_pool_free(t->pool);
    t->pool = NULL;
}

struct tile_work {
    struct pl_work work; /* must be first */
    void (*job)(void *arg, int i);
    void *arg;
    int i;
    atomic_bool done;
};

static void tile_work_run(struct pl_work *work, int thread) {
    struct tile_work *w = (struct tile_work *)work;
    (void)thread;
    w->job(w->arg, w->i);
    atomic_store_explicit(&w->done, true, memory_order_release);
}

/* Tiles 0 … i of what is written are complete. */
static void tile_threads_done(struct pl_tile_threads *t, int i) {
    size_t from, n;
    if (!t->writes) return;
    pl_tile(t->dim, i, &from, &n);
    if (n > 0) t->ops->written(t->port, t->writes, from + n);
}

/* While the threads of the pool compute, this one moves messages. */
static void tile_threads_conduct(struct pl_tile_threads *t, int n, void (*job)(void *arg, int i),
                                 void *arg) {
    struct tile_work tile[PL_TILES];
    int n_submitted = 0;
    for (int i = 0; i < n && i < PL_TILES; i++) {
        tile[i] =
            (struct tile_work){.work = {.run = tile_work_run}, .job = job, .arg = arg, .i = i};
        if (pl_pool_submit(t->pool, &tile[i].work, (uint64_t)i)) break;
        n_submitted++;
    }
    for (int i = 0; i < n_submitted; i++) {
        while (t->ops->progress(t->port) &&
               !atomic_load_explicit(&tile[i].done, memory_order_acquire))
            pl_yield();
        pl_pool_wait(t->pool, &tile[i].work);
        tile_threads_done(t, i);
    }
    for (int i = n_submitted; i < n; i++) job(arg, i); /* there was no memory for the queue */
}

static void tile_threads_run(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    struct pl_tile_threads *t = ctx;
    if (t->pool && t->ops->progress) {
        tile_threads_conduct(t, n, job, arg);
    } else if (t->pool) {
        pl_pool_team(t->pool, n, job, arg);
    } else {
        for (int i = 0; i < n; i++) {
            job(arg, i);
            tile_threads_done(t, i);
            if (t->ops->progress) t->ops->progress(t->port);
        }
    }
    t->writes = NULL;
}

void pl_tile_threads_writes(void *ctx, const pl_real *v) {
    struct pl_tile_threads *t = ctx;
    t->writes = t->n > 0 && t->ops->written ? v : NULL;
}

struct pl_parallel_for pl_tile_threads_for(struct pl_tile_threads *t) {
    bool splits = t->n > 1 || (t->n == 1 && t->ops->progress);
    return (struct pl_parallel_for){splits ? tile_threads_run : NULL, t};
}
