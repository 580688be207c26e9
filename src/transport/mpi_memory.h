/* Memory that the server and the workers on its host share, although MPI started them.
 *
 * The vectors of a port are in a segment without a name (sys/segment.h). The server tells a worker
 * on its host which of its descriptors that is, and the worker opens it through /proc. This is not
 * collective, so a rank that is late or frozen delays no other, and needs no space in /dev/shm,
 * both unlike a window of MPI_Win_allocate_shared. Ranks that MPI reports on one host may see
 * different processes, as in containers: a number that the server drew shows whether the worker has
 * found the right memory. If it has not, vectors are sent.
 *
 * PACELINE_MPI_SHARED=no in the environment of rank 0: all vectors are sent.
 *
 * Threads: the thread of the rank, which makes all calls to MPI. */
#ifndef PL_TRANSPORT_MPI_MEMORY_H
#define PL_TRANSPORT_MPI_MEMORY_H

#include "transport/mpi_wire.h"
#include "transport/port.h"

/* Whether some of these workers may share memory with the server, which is this rank. */
bool pl_mpi_memory_wanted(int n_servers, int n_workers);

/* The server: draws the number, before memory is offered to anybody. */
void pl_mpi_memory_begin(const struct pl_port_memory *m);
struct pl_wire pl_mpi_memory_offer(const struct pl_port_memory *m);

/* A worker: maps what the server offers, for vectors of `dim`. Returns whether it is there. */
bool pl_mpi_memory_map(const struct pl_wire *offer, size_t dim, struct pl_port_memory *out);

/* The vector of a number that the other end sent, or NULL if there is none. */
float *pl_mpi_memory_at(const struct pl_port_memory *m, uint32_t number);

/* What this rank has written is visible to the rank that receives its next message: called before
 * a message about a vector is sent, and after it was received. */
void pl_mpi_memory_sync(const struct pl_port_memory *m);

#endif
