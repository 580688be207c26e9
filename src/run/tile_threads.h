/* The threads of a server that carry out commits, tile by tile, while messages move.
 *
 * Over MPI, vectors move only while the thread that owns the port makes calls. So that thread does
 * not sleep until the tiles are done: between tiles, and for as long as vectors are moving, it lets
 * the port make progress, and lets it send what is complete of the new version. With one thread it
 * does so after every tile that it has computed itself.
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
    const float *writes; /* what the next tiles write, if parts of it can be sent; or NULL */
    struct pl_pool *pool;
    const struct pl_stream_ops *stream; /* NULL: messages move by themselves */
    struct pl_port *port;
};

/* `dim` is the length of the vectors here. No thread is started yet. */
struct pl_tile_threads pl_tile_threads_of(size_t dim, int n_threads,
                                          const struct pl_stream_ops *stream, struct pl_port *port);
int pl_tile_threads_start(struct pl_tile_threads *t); /* 0 or PL_ENOMEM */
void pl_tile_threads_free(struct pl_tile_threads *t);

/* For the engine, which keeps the address; if run is NULL, there is nothing to split. */
struct pl_parallel_for pl_tile_threads_for(struct pl_tile_threads *t);
/* The same as pl_store_conf's, for parallel_for.ctx; only if there is a stream. */
void pl_tile_threads_writes(void *ctx, const pl_real *v);

#endif
