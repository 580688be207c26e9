#include "transport/mpi_peers.h"

#include <stdlib.h>

bool pl_exchange_open(struct pl_exchange *e, size_t dim, float *(*at)(void *ctx, uint32_t slot),
                      void *ctx) {
    if (e->open) return true;
    *e = (struct pl_exchange){.open = true, .dim = dim, .at = at, .ctx = ctx};
    e->room_send = pl_mpi_size();
    e->send = calloc((size_t)e->room_send, sizeof(*e->send));
    if (!e->send) {
        e->open = false;
        return false;
    }
    MPI_Recv_init(&e->in, sizeof e->in, MPI_BYTE, MPI_ANY_SOURCE, WIRE_ASK, pl_mpi_comm(), &e->ask);
    MPI_Start(&e->ask);
    return true;
}

/* Drops those that have gone from the list. */
static void exchange_tidy(struct pl_exchange *e) {
    int n = 0;
    for (int i = 0; i < e->n_send; i++) {
        int gone = 0;
        MPI_Test(&e->send[i], &gone, MPI_STATUS_IGNORE);
        if (!gone) e->send[n++] = e->send[i];
    }
    e->n_send = n;
}

static bool exchange_grow(struct pl_exchange *e) {
    if (e->n_send < e->room_send) return true;
    MPI_Request *grown = realloc(e->send, 2 * (size_t)e->room_send * sizeof(*grown));
    if (!grown) return false;
    e->send = grown;
    e->room_send *= 2;
    return true;
}

static void exchange_answer(struct pl_exchange *e, int rank, uint32_t slot) {
    const float *v = exchange_grow(e) ? e->at(e->ctx, slot) : NULL;
    if (!v) {
        pl_mpi_break(rank); /* it would wait for ever */
        return;
    }
    MPI_Isend(v, (int)e->dim, MPI_FLOAT, rank, WIRE_PEER, pl_mpi_comm(), &e->send[e->n_send++]);
}

void pl_exchange_look(struct pl_exchange *e) {
    for (int came = 1; e->open && came && !pl_mpi_broken();) {
        MPI_Status status;
        MPI_Test(&e->ask, &came, &status);
        if (!came) break;
        exchange_answer(e, status.MPI_SOURCE, e->in);
        MPI_Start(&e->ask);
    }
    if (e->n_send > 0 && !pl_mpi_broken()) exchange_tidy(e);
}

bool pl_exchange_room(struct pl_exchange *e, int n) {
    e->n_come = 0;
    if (2 * n <= e->room_come) return true;
    MPI_Request *come = realloc(e->come, 2 * (size_t)n * sizeof(*come));
    if (come) e->come = come;
    uint32_t *slot = realloc(e->slot, (size_t)n * sizeof *slot);
    if (slot) e->slot = slot;
    if (!come || !slot) return false;
    e->room_come = 2 * n;
    return true;
}

void pl_exchange_ask(struct pl_exchange *e, int rank, uint32_t slot, float *into) {
    uint32_t *question = &e->slot[e->n_come / 2];
    *question = slot;
    MPI_Irecv(into, (int)e->dim, MPI_FLOAT, rank, WIRE_PEER, pl_mpi_comm(), &e->come[e->n_come++]);
    MPI_Isend(question, sizeof *question, MPI_BYTE, rank, WIRE_ASK, pl_mpi_comm(),
              &e->come[e->n_come++]);
}

bool pl_exchange_came(struct pl_exchange *e) {
    int done = 1;
    if (e->n_come > 0 && !pl_mpi_broken())
        MPI_Testall(e->n_come, e->come, &done, MPI_STATUSES_IGNORE);
    if (done) e->n_come = 0;
    return done || pl_mpi_broken();
}

bool pl_exchange_settled(struct pl_exchange *e) {
    return !e->open || (pl_exchange_came(e) && e->n_send == 0) || pl_mpi_broken();
}

void pl_exchange_close(struct pl_exchange *e) {
    if (e->open && !pl_mpi_broken()) {
        MPI_Cancel(&e->ask);
        MPI_Wait(&e->ask, MPI_STATUS_IGNORE);
        MPI_Request_free(&e->ask);
    }
    if (pl_mpi_broken()) return; /* something may still go to or from its memory */
    free(e->send);
    free(e->come);
    free(e->slot);
    *e = (struct pl_exchange){0};
}
