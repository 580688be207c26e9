/* Where a real run runs: on this machine, or on all ranks that a launcher started. */
#ifndef PL_API_RANKS_H
#define PL_API_RANKS_H

#include "api/setup.h"
#include "transport/transport.h"

struct pl_ranks {
    const struct pl_transport *transport;
    bool mpi;       /* several ranks run this together */
    int rank, size; /* of this process; 0 of 1 where there are no others */
};

/* Chooses the transport, and begins MPI where that is it. */
int pl_ranks_choose(struct pl_setup *s, struct pl_ranks *out);

/* Every rank has rank 0's options afterwards, and as many workers as there are ranks for them. `rc`
 * is how rank 0 has fared so far. */
int pl_ranks_share(struct pl_setup *s, const struct pl_ranks *r, int rc);

/* All ranks go on, or none does. Nothing where there is but one. */
int pl_ranks_ready(struct pl_setup *s, const struct pl_ranks *r, int rc);
int pl_ranks_end(struct pl_setup *s, const struct pl_ranks *r, int rc);

/* What every rank but 0 does until the run is over: it works, or serves a part of the vector. */
int pl_ranks_work(struct pl_setup *s, const struct pl_ranks *r, const struct pl_job *job);

/* Whether the vector can be cut among the servers. */
int pl_ranks_cut(struct pl_setup *s, const struct pl_ranks *r, const struct pl_built *b);

#endif
