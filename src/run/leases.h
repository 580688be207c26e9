/* Custody: which version a worker may be reading, which slot it may be writing, and which slots the
 * open group needs until its commit. Nothing is copied, and nothing is used again while somebody
 * may still touch it.
 *
 * Memory: every worker has one version it was told to compute on and one slot. A worker that was
 * cancelled and has not noticed yet may have an older version besides, and so may a member of the
 * open group where a rule wants to know what it was computed on. Slots for K further contributions
 * are there; in a larger group the rest is copied out of its slots. */
#ifndef PL_RUN_LEASES_H
#define PL_RUN_LEASES_H

#include "learn/task.h"
#include "run/peers.h"
#include "transport/transport.h"

/* How many vectors a port must have room for; conf->dim is said already. */
void pl_leases_room(const struct pl_job *job, struct pl_port_conf *conf);

struct pl_leases;
/* Of vectors of `dim`: the model's length, or a share of it. */
int pl_leases_new(const struct pl_job *job, size_t dim, const struct pl_transport *t,
                  struct pl_port *port, struct pl_store *store, struct pl_leases **out);
void pl_leases_free(struct pl_leases *c); /* the workers must be gone */

/* Before anything else, where workers have models of their own: those are kept by `peers`. */
void pl_leases_peers(struct pl_leases *c, struct pl_peers *peers);

/* The worker computes `task` on a part: hands it the newest version (or the one it has) and a slot.
 */
int pl_leases_start(struct pl_leases *c, int worker, uint64_t task, enum pl_from from,
                    struct pl_part part);

/* Its answer to `task` counts, whatever becomes of it. */
void pl_leases_acked(struct pl_leases *c, int worker, uint64_t task);

/* What it wrote, and what it was told to compute it on. */
float *pl_leases_answer(const struct pl_leases *c, int worker, const struct pl_version **base);

/* What it wrote joins the open group. */
int pl_leases_take(struct pl_leases *c, const struct pl_member *m);

/* Commits the group; its slots are free again. */
int pl_leases_commit(struct pl_leases *c, double factor, struct pl_measure *measure);

/* The worker is gone and touches nothing any more. */
void pl_leases_gone(struct pl_leases *c, int worker);

#endif
