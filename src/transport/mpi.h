/* Runs that a launcher started: mpirun or srun has started all processes, and each has a number,
 * its rank. Rank 0 is the server and rank w + 1 is worker w; with S servers (server_group.h), rank
 * w + S is worker w.
 *
 * MPI is in a module of its own (mpi_module.h), which pl_mpi_begin() loads. Call the other
 * functions only after it has succeeded.
 *
 * MPI is initialized once in a process and finalized when it ends. An MPI library may spin in its
 * own waits, so no wait here calls one: all waits test, and sleep between two tests
 * (pl_wire_pause).
 *
 * Threads: the one thread of a rank that serves or works makes all calls to MPI, so that
 * MPI_THREAD_FUNNELED is enough. The threads of a client make them one at a time, as its owner
 * does, which needs MPI_THREAD_SERIALIZED. */
#ifndef PL_TRANSPORT_MPI_H
#define PL_TRANSPORT_MPI_H

#include <stdbool.h>

#include "transport/transport.h"

/* Whether the environment is that of a launcher, this process's rank in it, and how many there are
 * (0: it does not say). */
bool pl_launcher_env(int *rank, int *size);

/* Loads the module. PL_EMISSING if it is not installed, or if the library was built without
 * MPI. */
int pl_mpi_load(struct pl_why *why);

/* Loads the module and initializes MPI, if that has not been done. */
int pl_mpi_begin(int *rank, int *size, struct pl_why *why);

/* Sends rank 0's text, or its failure, to all. The other ranks free() *text. They return rank 0's
 * status without a message: rank 0 prints it. */
int pl_mpi_share(int rc, char **text, struct pl_why *why);

/* How long to wait: for at most `wait_ns`, and only until `ended`, which may be NULL, returns
 * true. */
struct pl_patience {
    uint64_t wait_ns;
    bool (*ended)(void *ctx);
    void *ctx;
};

/* All ranks call this and learn whether all succeeded: PL_OK, or the status of the lowest rank that
 * failed and, at rank 0, its message with its name: "rank 3: …". Only rank 0 gives
 * up; it then names the ranks that did not call, and the job is aborted when this process ends. */
int pl_mpi_agree(int rc, const struct pl_patience *patience, struct pl_why *why);

/* A worker's end, at any rank that is not a server. range [n_servers] is what each server has of
 * the vector, one after the other. A server of a vector of another length shuts the link down. */
int pl_mpi_connect(const struct pl_range *range, int n_servers, struct pl_link **out, int *worker,
                   struct pl_why *why);

const struct pl_transport *pl_mpi_transport(void); /* NULL before pl_mpi_load() */

#endif
