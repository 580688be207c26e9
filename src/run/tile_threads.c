#include "run/tile_threads.h"

#include "sys/clock.h"
#include "sys/thread.h"

#define TILE_THREADS_SLICE 131072        /* parameters for which waking a thread pays off */
#define TILE_THREADS_STALL_NS 100000000u /* for more of a result to arrive */
#define TILE_THREADS_OTHERS_NS 20000000u /* while other news waits */

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
    bool alone; /* this thread has computed it */
    atomic_bool done;
};

static void tile_work_run(struct pl_work *work, int thread) {
    struct tile_work *w = (struct tile_work *)work;
    (void)thread;
    w->job(w->arg, w->i);
    atomic_store_explicit(&w->done, true, memory_order_release);
}

/* --- results on their way ----------------------------------------------------------------- */

bool pl_tile_threads_can_await(const struct pl_tile_threads *t) {
    return t->n > 0 && t->ops->progress && t->ops->arrived;
}

void pl_tile_threads_await(struct pl_tile_threads *t, const int *worker, int n, uint64_t until_ns) {
    t->awaited = worker;
    t->n_awaited = n;
    t->arrived = 0;
    t->progress_ns = t->alone_ns = pl_now_ns();
    t->until_ns = until_ns;
    t->gave_up = t->stalled = false;
}

/* Whether everything that tile i reads is here. If it takes too long, sets gave_up. */
static bool tile_threads_has(struct pl_tile_threads *t, int i) {
    size_t from, n;
    bool others;
    pl_tile(t->dim, i, &from, &n);
    if (t->n_awaited == 0 || n == 0 || t->arrived >= from + n) return true;
    size_t arrived = t->ops->arrived(t->port, t->awaited, t->n_awaited, &others);
    uint64_t now = pl_now_ns();
    if (arrived > t->arrived) t->progress_ns = now;
    t->arrived = arrived;
    if (arrived >= from + n) return true;
    if (!others) t->alone_ns = now;
    t->stalled = now - t->progress_ns > TILE_THREADS_STALL_NS;
    t->gave_up = t->stalled || now - t->alone_ns > TILE_THREADS_OTHERS_NS || now > t->until_ns;
    return false;
}

/* --- tiles -------------------------------------------------------------------------------- */

/* Tiles 0 … i of what is written are complete. */
static void tile_threads_done(struct pl_tile_threads *t, int i) {
    size_t from, n;
    if (!t->writes) return;
    pl_tile(t->dim, i, &from, &n);
    if (n > 0) t->ops->written(t->port, t->writes, from + n);
}

/* Hands tile i to the pool when what it reads is here. */
static bool tile_threads_submit(struct pl_tile_threads *t, struct tile_work *tile, int i) {
    if (t->gave_up || !tile_threads_has(t, i)) return false;
    tile->i = i;
    if (!pl_pool_submit(t->pool, &tile->work, (uint64_t)i)) return true;
    tile->job(tile->arg, i); /* there was no memory for the queue */
    atomic_store_explicit(&tile->done, true, memory_order_release);
    tile->alone = true;
    return true;
}

/* While the threads of the pool compute, this one moves messages. */
static void tile_threads_conduct(struct pl_tile_threads *t, int n, void (*job)(void *arg, int i),
                                 void *arg) {
    struct tile_work tile[PL_TILES];
    int n_submitted = 0, n_done = 0;
    for (int i = 0; i < n; i++)
        tile[i] = (struct tile_work){.work = {.run = tile_work_run}, .job = job, .arg = arg};
    while (n_done < (t->gave_up ? n_submitted : n)) {
        while (n_submitted < n && tile_threads_submit(t, &tile[n_submitted], n_submitted))
            n_submitted++;
        bool moving = t->ops->progress(t->port);
        bool ready = n_done < n_submitted &&
                     (atomic_load_explicit(&tile[n_done].done, memory_order_acquire) ||
                      (!moving && n_submitted == n));
        if (!ready) {
            pl_yield();
            continue;
        }
        if (!tile[n_done].alone) pl_pool_wait(t->pool, &tile[n_done].work);
        tile_threads_done(t, n_done++);
    }
}

/* The same without threads. */
static void tile_threads_alone(struct pl_tile_threads *t, int n, void (*job)(void *arg, int i),
                               void *arg) {
    for (int i = 0; i < n && !t->gave_up; i++) {
        while (!tile_threads_has(t, i) && !t->gave_up) pl_yield();
        if (t->gave_up) return;
        job(arg, i);
        tile_threads_done(t, i);
        if (t->ops->progress) t->ops->progress(t->port);
    }
}

static void tile_threads_run(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    struct pl_tile_threads *t = ctx;
    if (t->pool && t->ops->progress)
        tile_threads_conduct(t, n, job, arg);
    else if (t->pool)
        pl_pool_team(t->pool, n, job, arg);
    else
        tile_threads_alone(t, n, job, arg);
    t->writes = NULL;
}

void pl_tile_threads_writes(void *ctx, const pl_real *v) {
    struct pl_tile_threads *t = ctx;
    t->writes = t->n > 0 && t->ops->written ? v : NULL;
    if (!v && t->ops->retract) t->ops->retract(t->port);
}

struct pl_parallel_for pl_tile_threads_for(struct pl_tile_threads *t) {
    bool splits = t->n > 1 || (t->n == 1 && t->ops->progress);
    return (struct pl_parallel_for){splits ? tile_threads_run : NULL, t};
}
