#include "run/tile_threads.h"

#include "sys/thread.h"

#define TILE_THREADS_SLICE 131072 /* parameters for which waking a thread pays off */

struct pl_tile_threads pl_tile_threads_of(size_t dim, int n_threads,
                                          const struct pl_stream_ops *stream,
                                          struct pl_port *port) {
    size_t most = dim / TILE_THREADS_SLICE;
    int n = most < (size_t)n_threads ? (int)most : n_threads;
    return (struct pl_tile_threads){.n = n, .dim = dim, .stream = stream, .port = port};
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
    bool alone; /* this thread has computed it */
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
    if (n > 0) t->stream->written(t->port, t->writes, from + n);
}

static void tile_threads_submit(const struct pl_tile_threads *t, struct tile_work *tile) {
    if (!pl_pool_submit(t->pool, &tile->work, (uint64_t)tile->i)) return;
    tile->job(tile->arg, tile->i); /* there was no memory for the queue */
    atomic_store_explicit(&tile->done, true, memory_order_release);
    tile->alone = true;
}

/* While the threads of the pool compute, this one moves messages. */
static void tile_threads_conduct(struct pl_tile_threads *t, int n, void (*job)(void *arg, int i),
                                 void *arg) {
    struct tile_work tile[PL_TILES];
    for (int i = 0; i < n; i++) {
        tile[i] =
            (struct tile_work){.work = {.run = tile_work_run}, .job = job, .arg = arg, .i = i};
        tile_threads_submit(t, &tile[i]);
    }
    for (int i = 0; i < n; i++) {
        while (t->stream->progress(t->port) &&
               !atomic_load_explicit(&tile[i].done, memory_order_acquire))
            pl_yield();
        if (!tile[i].alone) pl_pool_wait(t->pool, &tile[i].work);
        tile_threads_done(t, i);
    }
}

/* The same without threads. */
static void tile_threads_alone(struct pl_tile_threads *t, int n, void (*job)(void *arg, int i),
                               void *arg) {
    for (int i = 0; i < n; i++) {
        job(arg, i);
        tile_threads_done(t, i);
        if (t->stream) t->stream->progress(t->port);
    }
}

static void tile_threads_run(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    struct pl_tile_threads *t = ctx;
    if (t->pool && t->stream)
        tile_threads_conduct(t, n, job, arg);
    else if (t->pool)
        pl_pool_team(t->pool, n, job, arg);
    else
        tile_threads_alone(t, n, job, arg);
    t->writes = NULL;
}

void pl_tile_threads_writes(void *ctx, const pl_real *v) {
    struct pl_tile_threads *t = ctx;
    t->writes = t->n > 0 ? v : NULL;
    if (!v) t->stream->written(t->port, NULL, 0);
}

struct pl_parallel_for pl_tile_threads_for(struct pl_tile_threads *t) {
    bool splits = t->n > 1 || (t->n == 1 && t->stream);
    return (struct pl_parallel_for){splits ? tile_threads_run : NULL, t};
}
