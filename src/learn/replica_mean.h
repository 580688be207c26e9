/* Vectors of a run without a server: rows of the book made into vectors, and the mean over all.
 * Sums are taken in the order of the terms, so a row has the same bits whoever makes it. */
#ifndef PL_LEARN_REPLICA_MEAN_H
#define PL_LEARN_REPLICA_MEAN_H

#include "core/replicas.h"
#include "learn/job.h"

/* A row, and where its snapshots lie. */
struct pl_mixture {
    int n;
    double c[PL_TERMS];
    const float *v[PL_TERMS];
};

bool pl_job_peers(const struct pl_job *job); /* its workers have models of their own */

/* The sum, elements [from, from + n), into out[0 … n-1]. */
void pl_mixture_make(const struct pl_mixture *m, size_t from, size_t n, float *out);

/* The mean over the workers who are there, each by its weight, of the models they have and of what
 * is on its way to them, into mean [dim]; where nobody is there, what the last one left. Consensus
 * is the distance of the workers from it: sqrt(mean_i ||x_i - mean||^2); NAN where nobody is there.
 * vector() tells where a snapshot lies. 0 or PL_ENOMEM. */
int pl_replica_mean(const struct pl_replicas *b, const float *(*vector)(void *ctx, int id),
                    void *ctx, size_t dim, float *mean, double *consensus);

/* Calls see() for every snapshot that pl_replica_mean() would read, perhaps more than once. */
void pl_replica_mean_needs(const struct pl_replicas *b, void (*see)(void *ctx, int id),
                           void *ctx);

#endif
