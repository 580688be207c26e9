/* Custody of the workers' own models, where there is no common one: in which slot every snapshot of
 * the replicas lies. A worker writes what it computes on and what it brings into slots of its own,
 * and reads its peers' slots, where they lie in shared memory or from the rank that wrote them;
 * nothing passes through here.
 *
 * A slot is used again when the replicas says that nobody refers to what is in it: no model, and no
 * task that is being computed. So nothing is written while somebody may read it, and whoever dies
 * leaves what it brought to those who have it in their models. */
#ifndef PL_RUN_PEERS_H
#define PL_RUN_PEERS_H

#include "learn/replica_mean.h"
#include "transport/transport.h"

struct pl_peers;

/* How many slots a port must have room for. */
void pl_peers_room(const struct pl_job *job, struct pl_port_conf *conf);

/* w0 [dim] is what everybody begins with; is copied. */
int pl_peers_new(const struct pl_job *job, const struct pl_transport *t, struct pl_port *port,
                 struct pl_replicas *replicas, const float *w0, struct pl_peers **out);
void pl_peers_free(struct pl_peers *p);

/* Tells the worker to compute the task that control has started. 0 or PL_ENOMEM. */
int pl_peers_start(struct pl_peers *p, int worker, struct pl_order *o);

/* The mean of all models now, into mean [dim]. 0, PL_ENOMEM, or PL_ERUN where a vector did not
 * come. */
int pl_peers_mean(struct pl_peers *p, float *mean, double *consensus);

#endif
