/* The threads of a server that carry out commits, tile by tile, while messages move.
 *
 * Over MPI, vectors move only while the thread that owns the port makes calls. So that thread does
 * not sleep until the tiles are done: between tiles, and for as long as vectors are moving, it lets
 * the port make progress, and lets it send what is complete of the new version. With one thread it
 * does so after every tile that it has computed itself.
 *
 * Tiles of a draft wait until their range of the results that are still on their way has arrived.
 * The wait has an end: when nothing has arrived for a while, when other news waits, or at a
 * given time, the tiles that are left are not computed.
 *
 * Threads: tiles run on the threads of a pool; the thread that decides calls everything here. */
#ifndef PL_RUN_TILE_THREADS_H
#define PL_RUN_TILE_THREADS_H

#include "core/store.h"
#include "sys/pool.h"
#include "transport/transport.h"

struct pl_tile_threads {
    int n; /* threads; fewer than 2: the thread that decides, alone */
    size_t dim;
    const float *writes;   /* what the next tiles write, if parts of it can be sent; or NULL */
    const int *awaited;    /* [n_awaited] workers whose results the next tiles wait for */
    int n_awaited;         /* 0: everything is here */
    size_t arrived;        /* elements of all of these, */
    uint64_t progress_ns;  /* when there were last more, */
    uint64_t alone_ns;     /* when there was last no other news, */
    uint64_t until_ns;     /* and how long to wait at most */
    bool gave_up, stalled; /* not all tiles were computed; because nothing more arrived */
    struct pl_pool *pool;
    const struct pl_port_ops *ops;
    struct pl_port *port;
};

/* `dim` is the length of the vectors here. No thread is started yet. */
struct pl_tile_threads pl_tile_threads_of(size_t dim, int n_threads, const struct pl_port_ops *ops,
                                          struct pl_port *port);
int pl_tile_threads_start(struct pl_tile_threads *t); /* 0 or PL_ENOMEM */
void pl_tile_threads_free(struct pl_tile_threads *t);

/* For the engine, which keeps the address; run NULL: there is nothing to split. */
struct pl_parallel_for pl_tile_threads_for(struct pl_tile_threads *t);
/* The same as pl_store_conf's, for parallel_for.ctx. */
void pl_tile_threads_writes(void *ctx, const pl_real *v);

/* Whether tiles can wait for results. */
bool pl_tile_threads_can_await(const struct pl_tile_threads *t);
/* From now on, until n is 0, tiles wait for the results of these n workers. `until_ns` is a time of
 * pl_now_ns(). */
void pl_tile_threads_await(struct pl_tile_threads *t, const int *worker, int n, uint64_t until_ns);

#endif
