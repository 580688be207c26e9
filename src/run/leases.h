/* Leases: the vectors of a run in the memory of a port, and which of them a worker may still touch.
 *
 * A worker that was cancelled and has not noticed may be reading the version it was given before,
 * and writing the vector it was to write. The engine leaves a worker its output vector until a
 * result is taken; here, the version of a replaced order is held until the transport says that the
 * worker has moved on. Nothing is copied, and nothing is used again while somebody may touch it.
 *
 * Memory: each worker has one version that it was told to compute on and one output. It may have an
 * older version besides, and so may a member of the open group if a rule asks for what it was
 * computed on. Outputs for K further members are there; if a group grows beyond that, members are
 * copied out of the port's memory.
 *
 * Threads: all functions are called by the thread that decides. */
#ifndef PL_RUN_LEASES_H
#define PL_RUN_LEASES_H

#include "engine/engine.h"
#include "transport/transport.h"

/* Sets how many vectors a port must have room for; conf->dim is set already. */
void pl_leases_room(const struct pl_job *job, struct pl_port_conf *conf);

struct pl_leases;

/* `dim` is the length of the port's vectors: the model's, or a slice's. 0 or PL_ENOMEM. */
int pl_leases_new(const struct pl_job *job, size_t dim, const struct pl_port_ops *ops,
                  struct pl_port *port, struct pl_leases **out);
void pl_leases_free(struct pl_leases *l); /* NULL is fine */

/* What an engine needs of its host; update(owner), if not NULL, is called before each update. */
struct pl_host_ops pl_leases_host(struct pl_leases *l, void (*update)(void *owner), void *owner);
void pl_leases_engine(struct pl_leases *l, struct pl_engine *e); /* before the first event */

void pl_leases_gone(struct pl_leases *l, int worker); /* the worker touches nothing any more */

#endif
