/* Vectors that stay with their writers, sent from rank to rank.
 *
 *   reader                        writer
 *   ASK  number             ──▶
 *                           ◀──   the vector
 *
 * A vector has the same number at all ranks, and memory where it was written. The writer answers
 * whenever it looks: between layers, while it sleeps and while it waits. A vector does not change
 * until the reader has answered its order, so nothing waits for longer than one look.
 *
 * When the run ends, workers say BYE as soon as everything they asked for has arrived, and go on
 * answering until the server says CLOSE, which it does when all have said BYE.
 *
 * Threads: the thread of the rank, which makes all calls to MPI. */
#ifndef PL_TRANSPORT_MPI_EXCHANGE_H
#define PL_TRANSPORT_MPI_EXCHANGE_H

#include "transport/mpi_wire.h"

/* What follows an order with WIRE_WITH_TERMS. */
struct pl_wire_terms {
    uint64_t n;
    struct {
        uint32_t vector; /* its number, from 1 */
        int32_t rank;    /* where it lies */
        double c;
    } term[PL_TERMS];
};

struct pl_exchange {
    bool open;
    size_t dim;
    float *(*at)(void *ctx, uint32_t number); /* memory of a vector; NULL: there is none */
    void *ctx;
    uint32_t asked; /* number of the vector that another rank asks for */
    MPI_Request ask;
    MPI_Request *send; /* [n_send] vectors being sent */
    int n_send;
    size_t room_send;
    MPI_Request *receive; /* [n_receive] vectors being received, and questions being sent */
    uint32_t *question;   /* [n_receive / 2] */
    int n_receive, room_receive;
};

/* Opens it if it is not open; returns false if there is no memory. */
bool pl_exchange_open(struct pl_exchange *e, size_t dim, float *(*at)(void *ctx, uint32_t number),
                      void *ctx);
void pl_exchange_answer(struct pl_exchange *e); /* answers all that was asked */

/* Room for n questions at a time; returns false if there is no memory. Earlier questions must be
 * answered. */
bool pl_exchange_room(struct pl_exchange *e, int n);
void pl_exchange_ask(struct pl_exchange *e, int rank, uint32_t number, float *into);
bool pl_exchange_received(struct pl_exchange *e); /* all that was asked for is here */
bool pl_exchange_settled(struct pl_exchange *e);  /* and all answers were sent */
void pl_exchange_close(struct pl_exchange *e);    /* must be settled */

#endif
