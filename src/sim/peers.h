/* Vectors of simulated workers that have models of their own: where every snapshot of the replicas
 * lies, and what a task reads. */
#ifndef PL_SIM_PEERS_H
#define PL_SIM_PEERS_H

#include "core/control.h"
#include "sim/prefetch.h"

struct pl_sim_peers;

/* Where control has a replicas; else *out stays NULL. Everybody begins with w0 [dim], or, where
 * that is NULL, with what the model begins with. */
int pl_sim_peers_new(const struct pl_job *job, struct pl_control *control,
                     struct pl_prefetch *prefetch, const float *w0,
                     struct pl_sim_peers **out); /* 0 or PL_ENOMEM */
void pl_sim_peers_free(struct pl_sim_peers *p);

/* What a task that control has started computes on, made. */
struct pl_prefetch_base *pl_sim_peers_base(struct pl_sim_peers *p, int worker);

/* Others may read what the worker computes on. 0 or PL_ENOMEM. */
int pl_sim_peers_base_ready(struct pl_sim_peers *p, int worker);

/* A sound answer is there, before control hears of it: its base and its vector are snapshots now.
 * 0 or PL_ENOMEM. */
int pl_sim_peers_answered(struct pl_sim_peers *p, int worker, struct pl_prefetch_task *t);

/* The mean of all models now; its memory is this one's. NULL: out of memory. */
const float *pl_sim_peers_mean(struct pl_sim_peers *p, double *consensus);

/* Vectors of others that the worker reads before it can begin the task it was started on. */
int pl_peers_foreign(const struct pl_replicas *b, int worker);

#endif
