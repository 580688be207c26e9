/* Models of a run without a server: combinations added up into vectors, and the mean of all models.
 * Sums are taken in the order of the terms, so a model has the same bits wherever it is computed.
 */
#ifndef PL_LEARN_REPLICA_MEAN_H
#define PL_LEARN_REPLICA_MEAN_H

#include "core/replicas.h"
#include "learn/job.h"

/* A combination with the addresses of its vectors. */
struct pl_mixture {
    int n;
    double c[PL_TERMS];
    const float *v[PL_TERMS];
};

bool pl_job_peers(const struct pl_job *job); /* its workers have models of their own */

/* The sum, elements [from, from + n), into out[0 … n-1]. */
void pl_mixture_make(const struct pl_mixture *m, size_t from, size_t n, float *out);

/* The weighted mean of the models and inboxes of the workers that are present, into mean [dim]; if
 * there are none, the model that the last worker left. Consensus is the distance of the workers
 * from the mean: sqrt(mean_i ||x_i - mean||^2), or NAN if there are none. vector() returns the
 * address of a vector. 0 or PL_ENOMEM. */
int pl_replica_mean(const struct pl_replicas *b, const float *(*vector)(void *ctx, int id),
                    void *ctx, size_t dim, float *mean, double *consensus);

/* Calls see() for every vector that pl_replica_mean() would read, perhaps more than once. */
void pl_replica_mean_needs(const struct pl_replicas *b, void (*see)(void *ctx, int id), void *ctx);

#endif
