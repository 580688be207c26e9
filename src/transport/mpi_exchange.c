/* Threads: the thread of the rank, which makes all calls to MPI. */
#include "transport/mpi_exchange.h"

#include <stdlib.h>

#include "base/grow.h"

bool pl_exchange_open(struct pl_exchange *e, size_t dim, float *(*at)(void *ctx, uint32_t number),
                      void *ctx) {
    if (e->open) return true;
    *e = (struct pl_exchange){.open = true, .dim = dim, .at = at, .ctx = ctx};
    e->room_send = (size_t)pl_mpi_size();
    e->send = calloc(e->room_send, sizeof(*e->send));
    if (!e->send) {
        e->open = false;
        return false;
    }
    MPI_Recv_init(&e->asked, sizeof e->asked, MPI_BYTE, MPI_ANY_SOURCE, WIRE_ASK, pl_mpi_comm(),
                  &e->ask);
    MPI_Start(&e->ask);
    return true;
}

/* Removes those that have been sent from the list. */
static void exchange_tidy(struct pl_exchange *e) {
    int n = 0;
    for (int i = 0; i < e->n_send; i++) {
        int sent = 0;
        MPI_Test(&e->send[i], &sent, MPI_STATUS_IGNORE);
        if (!sent) e->send[n++] = e->send[i];
    }
    e->n_send = n;
}

static bool exchange_grow(struct pl_exchange *e) {
    return PL_GROW(e->send, e->room_send, e->n_send + 1);
}

static void exchange_answer(struct pl_exchange *e, int rank, uint32_t number) {
    const float *v = exchange_grow(e) ? e->at(e->ctx, number) : NULL;
    if (!v) {
        pl_mpi_break(rank); /* it would wait for ever */
        return;
    }
    MPI_Isend(v, (int)e->dim, MPI_FLOAT, rank, WIRE_STAYED, pl_mpi_comm(), &e->send[e->n_send++]);
}

void pl_exchange_answer(struct pl_exchange *e) {
    for (int asked = 1; e->open && asked && !pl_mpi_broken();) {
        MPI_Status status;
        MPI_Test(&e->ask, &asked, &status);
        if (!asked) break;
        exchange_answer(e, status.MPI_SOURCE, e->asked);
        MPI_Start(&e->ask);
    }
    if (e->n_send > 0 && !pl_mpi_broken()) exchange_tidy(e);
}

bool pl_exchange_room(struct pl_exchange *e, int n) {
    e->n_receive = 0;
    if (2 * n <= e->room_receive) return true;
    if (!PL_RESIZE(e->receive, 2 * n) || !PL_RESIZE(e->question, n)) return false;
    e->room_receive = 2 * n;
    return true;
}

void pl_exchange_ask(struct pl_exchange *e, int rank, uint32_t number, float *into) {
    uint32_t *question = &e->question[e->n_receive / 2];
    *question = number;
    MPI_Irecv(into, (int)e->dim, MPI_FLOAT, rank, WIRE_STAYED, pl_mpi_comm(),
              &e->receive[e->n_receive++]);
    MPI_Isend(question, sizeof *question, MPI_BYTE, rank, WIRE_ASK, pl_mpi_comm(),
              &e->receive[e->n_receive++]);
}

bool pl_exchange_received(struct pl_exchange *e) {
    int done = 1;
    if (e->n_receive > 0 && !pl_mpi_broken())
        MPI_Testall(e->n_receive, e->receive, &done, MPI_STATUSES_IGNORE);
    if (done) e->n_receive = 0;
    return done || pl_mpi_broken();
}

bool pl_exchange_settled(struct pl_exchange *e) {
    return !e->open || (pl_exchange_received(e) && e->n_send == 0) || pl_mpi_broken();
}

void pl_exchange_close(struct pl_exchange *e) {
    if (e->open && !pl_mpi_broken()) {
        MPI_Cancel(&e->ask);
        MPI_Wait(&e->ask, MPI_STATUS_IGNORE);
        MPI_Request_free(&e->ask);
    }
    if (pl_mpi_broken()) return; /* something may still be sent from or received into its memory */
    free(e->send);
    free(e->receive);
    free(e->question);
    *e = (struct pl_exchange){0};
}
