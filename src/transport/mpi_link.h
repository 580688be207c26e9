/* A worker's end of a port over MPI; transport.h documents the functions.
 *
 * Threads: the worker's, which makes all calls to MPI of its rank. */
#ifndef PL_TRANSPORT_MPI_LINK_H
#define PL_TRANSPORT_MPI_LINK_H

#include "transport/transport.h"

int pl_mpi_pull(struct pl_link *l, struct pl_order *out);
const struct pl_cancel *pl_mpi_cancelled(const struct pl_link *l);
int pl_mpi_sleep(struct pl_link *l, uint64_t ns);
void pl_mpi_push(struct pl_link *l, const struct pl_result *r);
void pl_mpi_detach(struct pl_link *l);

#endif
