/* Where a real run runs: on this machine, or on all ranks that a launcher has started. */
#ifndef PL_API_RANKS_H
#define PL_API_RANKS_H

#include "api/setup.h"
#include "transport/transport.h"

struct pl_ranks {
    const struct pl_transport *transport;
    bool mpi;       /* the run uses MPI */
    int rank, size; /* of this process; 0 of 1 without MPI */
    bool clients;   /* at rank 0: the others are clients */
};

/* Chooses the transport, and initializes MPI if that is chosen. */
int pl_ranks_choose(struct pl_setup *s, struct pl_ranks *out);

/* Gives rank 0's options, with the number of workers that the ranks allow, to all ranks. `rc` is
 * rank 0's status so far. */
int pl_ranks_share(struct pl_setup *s, struct pl_ranks *r, int rc);

/* All ranks continue, or none does. Without MPI they return rc. */
int pl_ranks_ready(struct pl_setup *s, const struct pl_ranks *r, int rc);
int pl_ranks_end(struct pl_setup *s, const struct pl_ranks *r, int rc);

/* Runs a rank other than 0 until the run is over: a worker, or a server that follows. */
int pl_ranks_work(struct pl_setup *s, const struct pl_ranks *r, const struct pl_job *job);

/* Checks that the vector can be divided among the servers. */
int pl_ranks_cut(struct pl_setup *s, const struct pl_ranks *r, const struct pl_built *b);

#endif
