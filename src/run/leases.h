/* Leases: the vectors of a run in the memory of a port, and which of them a worker may still touch.
 *
 * A worker that was cancelled and has not noticed may still be reading the version of its last
 * order and writing its output. The engine leaves a worker its output vector until a result is
 * taken. This file holds the version of a replaced order until the transport reports that the
 * worker has moved on. Nothing is copied, and nothing is reused while a worker may touch it.
 *
 * Memory: each worker has one version to compute on and one output. It may have an older version as
 * well, and so may a member of the open group if a rule needs its base. There is room for the
 * outputs of K more members; if a group grows beyond that, members are copied out of the port's
 * memory.
 *
 * Threads: all functions are called by the thread that decides. */
#ifndef PL_RUN_LEASES_H
#define PL_RUN_LEASES_H

#include "engine/engine.h"
#include "transport/transport.h"

/* Sets how many vectors a port must have room for. The caller has set conf->dim and conf->listen.
 */
void pl_leases_room(const struct pl_job *job, struct pl_port_conf *conf);

struct pl_leases;

/* `dim` is the length of the port's vectors: the model's, or a slice's. 0 or PL_ENOMEM. */
int pl_leases_new(const struct pl_job *job, size_t dim, const struct pl_transport *t,
                  struct pl_port *port, struct pl_leases **out);
void pl_leases_free(struct pl_leases *l); /* NULL is fine */

/* What an engine needs of its host. update(owner) is called before each update, made(owner,
 * version) before a worker is told to compute on that version, and end(owner, …) does what its
 * namesake in struct pl_host_ops does. They may be NULL. */
typedef enum pl_removal pl_leases_end(void *owner, int worker, enum pl_life_event event, bool last);
struct pl_host_ops pl_leases_host(struct pl_leases *l, void (*update)(void *owner),
                                  void (*made)(void *owner, uint64_t version), pl_leases_end *end,
                                  void *owner);
void pl_leases_engine(struct pl_leases *l, struct pl_engine *e); /* before the first event */

/* A client, which the server did not start, may write to its results after it has sent them. */
void pl_leases_client(struct pl_leases *l, int worker, bool client);

/* This version has another model than before: what was made of it for workers is void. */
void pl_leases_replaced(struct pl_leases *l, uint64_t version);

void pl_leases_gone(struct pl_leases *l, int worker); /* it touches nothing any more */

#endif
