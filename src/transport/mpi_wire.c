/* Threads: the thread of a rank that makes all calls to MPI. */
#include "transport/mpi_wire.h"

#include "sys/futex.h"
#include "sys/thread.h"

#define PAUSE_YIELD 100000u    /* ns of yielding before the first sleep */
#define PAUSE_MOVING 10000000u /* the same while a vector is moving */
#define PAUSE_LEAST 50000u
#define PAUSE_MOST 2000000u

static MPI_Datatype wire_type(const struct pl_range *range, int n) {
    int from[PL_RANGES], length[PL_RANGES];
    MPI_Datatype type;
    for (int i = 0; i < n; i++) {
        from[i] = (int)range[i].from; /* vectors over MPI have at most INT_MAX elements */
        length[i] = (int)range[i].n;
    }
    MPI_Type_indexed(n, length, from, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
}

void pl_wire_send(const float *v, const struct pl_range *range, int n, int rank, MPI_Request *out) {
    if (n == 1) {
        MPI_Isend(v + range->from, (int)range->n, MPI_FLOAT, rank, WIRE_VECTOR, pl_mpi_comm(), out);
        return;
    }
    MPI_Datatype type = wire_type(range, n);
    MPI_Isend(v, 1, type, rank, WIRE_VECTOR, pl_mpi_comm(), out);
    MPI_Type_free(&type);
}

void pl_wire_receive(float *v, const struct pl_range *range, int n, int rank, MPI_Request *out) {
    if (n == 1) {
        MPI_Irecv(v + range->from, (int)range->n, MPI_FLOAT, rank, WIRE_VECTOR, pl_mpi_comm(), out);
        return;
    }
    MPI_Datatype type = wire_type(range, n);
    MPI_Irecv(v, 1, type, rank, WIRE_VECTOR, pl_mpi_comm(), out);
    MPI_Type_free(&type);
}

void pl_outbox_new(struct pl_outbox *o, int rank, int tag) {
    for (int i = 0; i < WIRE_ROOM; i++)
        MPI_Send_init(&o->wire[i], sizeof o->wire[i], MPI_BYTE, rank, tag, pl_mpi_comm(),
                      &o->request[i]);
    o->next = 0;
}

void pl_outbox_free(struct pl_outbox *o) {
    for (int i = 0; i < WIRE_ROOM; i++) MPI_Request_free(&o->request[i]);
}

void pl_outbox_send(struct pl_outbox *o, const struct pl_wire *w) {
    int at = o->next;
    o->next = (at + 1) % WIRE_ROOM;
    MPI_Wait(&o->request[at], MPI_STATUS_IGNORE); /* was sent long ago, see WIRE_ROOM */
    o->wire[at] = *w;
    MPI_Start(&o->request[at]);
}

bool pl_outbox_sent(struct pl_outbox *o) {
    int done = 0;
    MPI_Testall(WIRE_ROOM, o->request, &done, MPI_STATUSES_IGNORE);
    return done;
}

void pl_wire_pause(atomic_uint *word, unsigned seen, uint64_t waited_ns, uint64_t left_ns,
                   bool moving) {
    if (waited_ns < (moving ? PAUSE_MOVING : PAUSE_YIELD)) {
        pl_yield();
        return;
    }
    uint64_t ns = waited_ns / 32;
    if (ns < PAUSE_LEAST || moving) ns = PAUSE_LEAST;
    if (ns > PAUSE_MOST) ns = PAUSE_MOST;
    pl_futex_wait(word, seen, ns < left_ns ? ns : left_ns);
}
