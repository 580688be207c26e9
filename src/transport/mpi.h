/* Runs that a launcher started: mpirun or srun has made all processes, every one has a number (its
 * rank), rank 0 serves and rank w + 1 is worker w (rank w + S where S ranks serve, see shards.h).
 *
 * All calls to MPI are made by the one thread of a rank that serves or works, so that
 * MPI_THREAD_FUNNELED is enough. MPI is begun once in a process and ends with it. Nobody may spin
 * for long while there is nothing to do, whatever the MPI library does in its own waits: all waits
 * here look, and sleep between two looks (pl_wire_pause). */
#ifndef PL_TRANSPORT_MPI_H
#define PL_TRANSPORT_MPI_H

#include <stdbool.h>

#include "transport/transport.h"

/* What the launcher's environment says: whether there is one, and this process's rank. */
bool pl_launcher_env(int *rank);

/* Begins MPI where that has not happened. PL_EMISSING where this program was built without. */
int pl_mpi_begin(int *rank, int *size, struct pl_why *why);

/* Rank 0's text, or its failure, goes to all. *text is rank 0's own, and the others' to free().
 * Whoever is not rank 0 returns rank 0's status without a sentence: that is rank 0's to say. */
int pl_mpi_share(int rc, char **text, struct pl_why *why);

/* All meet. PL_OK where all came with PL_OK; otherwise the status of the lowest rank that did not,
 * and, at rank 0, its sentence with its name: "rank 3: …". Rank 0 waits for at most `wait_ns`; then
 * those who did not come are named, and the job will be aborted when this process ends. */
int pl_mpi_agree(int rc, uint64_t wait_ns, struct pl_why *why);

/* A worker's end, at any rank that does not serve. range [n_servers] is what each server has of the
 * vector, one after the other: a server of a vector of another length ends the link at once. */
int pl_mpi_connect(const struct pl_range *range, int n_servers, struct pl_link **out, int *worker,
                   struct pl_why *why);

extern const struct pl_transport pl_mpi;

#endif
