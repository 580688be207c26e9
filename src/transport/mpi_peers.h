/* Vectors from rank to rank, where workers have models of their own.
 *
 *   who reads                     who wrote
 *   ASK  slot               ──▶
 *                           ◀──   the vector
 *
 * A slot has the same number everywhere and memory where it was written. Whoever is asked answers
 * whenever it looks: between layers, while it rests and while it waits. What is asked for stays as
 * it is until the one who asked has answered its order, so nobody waits for more than a look.
 *
 * At the end workers say BYE when nothing they asked for is missing, and go on answering until the
 * server says CLOSE, which it does when all have said BYE. */
#ifndef PL_TRANSPORT_MPI_PEERS_H
#define PL_TRANSPORT_MPI_PEERS_H

#include "transport/mpi_wire.h"
#include "transport/transport.h"

/* What follows an order with WIRE_WITH_SUM. Slots are counted from 1; 0: none. */
struct pl_wire_sum {
    uint32_t n, base, out, unused;
    struct {
        uint32_t slot;
        int32_t rank;
        double c;
    } term[PL_TERMS];
};

struct pl_exchange {
    bool open;
    size_t dim;
    float *(*at)(void *ctx, uint32_t slot); /* its memory; NULL: out of memory */
    void *ctx;
    uint32_t in; /* slot that somebody asks for */
    MPI_Request ask;
    MPI_Request *send; /* [n_send] vectors that go */
    int n_send, room_send;
    MPI_Request *come; /* [n_come] vectors that come, and questions that go */
    uint32_t *slot;    /* [n_come / 2] what was asked for */
    int n_come, room_come;
};

/* Opens it where it is not; false: out of memory. */
bool pl_exchange_open(struct pl_exchange *e, size_t dim, float *(*at)(void *ctx, uint32_t slot),
                      void *ctx);
void pl_exchange_look(struct pl_exchange *e); /* answers who has asked */

/* Room for n questions at a time; false: out of memory. All that came before must have come. */
bool pl_exchange_room(struct pl_exchange *e, int n);
void pl_exchange_ask(struct pl_exchange *e, int rank, uint32_t slot, float *into);
bool pl_exchange_came(struct pl_exchange *e);    /* all that was asked for */
bool pl_exchange_settled(struct pl_exchange *e); /* and all that was answered has gone */
void pl_exchange_close(struct pl_exchange *e);   /* must be settled */

#endif
