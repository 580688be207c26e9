/* Long vectors of the server's, sent in chunks, so that computing and sending overlap: the server
 * can send the first chunks of a version before it has computed the last.
 *
 * A worker has receives posted for all chunks of its next vector from when it connects, and again
 * before it answers an order: they are persistent requests, and what was received stays as it is
 * until the server sends another vector. The server sends to workers that have answered. Vectors of
 * one chunk, ranges of vectors, vectors of several servers, and results are single messages
 * (mpi_wire.h).
 *
 * If the version is written again after some chunks were sent, these are void. The server completes
 * the set with empty messages, and the order says that the vector follows as a single message. The
 * worker receives that when it has received the set.
 *
 * The server's last message tells how many chunks it has sent, and the worker reads them all.
 *
 * Threads: the thread of the rank, which makes all calls to MPI. */
#ifndef PL_TRANSPORT_MPI_CHUNKS_H
#define PL_TRANSPORT_MPI_CHUNKS_H

#include "transport/mpi_wire.h"

#define PL_CHUNKS 32

/* How a vector is cut (n == 0 if it is not). */
struct pl_cut_vector {
    size_t dim, step;
    int n;
};
struct pl_cut_vector pl_cut_vector(size_t dim, int n_servers);

/* The server, for one worker. */
struct pl_chunks_out {
    MPI_Request request[PL_CHUNKS];
    const float *v;   /* that is sent; NULL: all of it was, with its order */
    int n_sent;       /* of the latest vector */
    bool moving;      /* not all of these have been received, as far as is known */
    bool is_void;     /* what was sent of v is not what v is now */
    uint64_t n_total; /* sent since it connected */
};

void pl_chunks_new(struct pl_chunks_out *o);
/* Sends the chunks that are complete if the first n elements are, of a vector of which perhaps some
 * were sent before. After the last, the caller sets v to NULL. True if something moves, and nothing
 * did before. */
bool pl_chunks_send(struct pl_chunks_out *o, const struct pl_cut_vector *cut, int rank,
                    const float *v, size_t n);
/* True if something moved, and nothing does any more. */
bool pl_chunks_sent(struct pl_chunks_out *o);
/* Completes the set of a vector of which some were sent, and which is void. True if something
 * moves, and nothing did before. */
bool pl_chunks_void(struct pl_chunks_out *o, const struct pl_cut_vector *cut, int rank);

/* A worker. */
struct pl_chunks_in {
    struct pl_cut_vector cut;
    MPI_Request request[PL_CHUNKS]; /* persistent; not active if `here` */
    bool here[PL_CHUNKS];           /* n_here chunks of the vector that is received, or was */
    int n_here;
    uint64_t n_total;
};

void pl_chunks_listen(struct pl_chunks_in *i, float *into, const struct pl_cut_vector *cut);
void pl_chunks_again(struct pl_chunks_in *i); /* for the next vector, if the last has arrived */
/* Looks what has arrived; true if a vector is complete. */
bool pl_chunks_received(struct pl_chunks_in *i);
bool pl_chunks_move(const struct pl_chunks_in *i); /* some have arrived, and not all */
void pl_chunks_close(struct pl_chunks_in *i);      /* nothing more will be sent */

#endif
