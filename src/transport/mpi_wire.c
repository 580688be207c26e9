/* Threads: the thread of a rank that makes all calls to MPI. */
#include "transport/mpi_wire.h"

#include "sys/clock.h"

#define FINISH_GRACE_NS 5000000000u

void pl_wire_send(const float *v, size_t n, int rank, MPI_Request *out) {
    MPI_Isend(v, (int)n, MPI_FLOAT, rank, WIRE_VECTOR, pl_mpi_comm(), out);
}

void pl_wire_receive(float *v, size_t n, int rank, MPI_Request *out) {
    MPI_Irecv(v, (int)n, MPI_FLOAT, rank, WIRE_VECTOR, pl_mpi_comm(), out);
}

/* The inputs or the outputs of strips, wherever they are. */
static MPI_Datatype wire_strips(const struct pl_strip *strip, int n, bool in) {
    int length[PL_STRIPS];
    MPI_Aint at[PL_STRIPS];
    MPI_Datatype type;
    for (int i = 0; i < n; i++) {
        length[i] = (int)strip[i].n; /* vectors over MPI have at most INT_MAX elements */
        MPI_Get_address(in ? strip[i].in : strip[i].out, &at[i]);
    }
    MPI_Type_create_hindexed(n, length, at, MPI_FLOAT, &type);
    MPI_Type_commit(&type);
    return type;
}

void pl_wire_send_strips(const struct pl_strip *strip, int n, int rank, MPI_Request *out) {
    MPI_Datatype type = wire_strips(strip, n, true);
    MPI_Isend(MPI_BOTTOM, 1, type, rank, WIRE_VECTOR, pl_mpi_comm(), out);
    MPI_Type_free(&type);
}

void pl_wire_receive_strips(const struct pl_strip *strip, int n, int rank, MPI_Request *out) {
    MPI_Datatype type = wire_strips(strip, n, false);
    MPI_Irecv(MPI_BOTTOM, 1, type, rank, WIRE_VECTOR, pl_mpi_comm(), out);
    MPI_Type_free(&type);
}

bool pl_wire_finish(MPI_Request *request, int n, int rank) {
    atomic_uint never = 0;
    uint64_t began = pl_now_ns();
    for (uint64_t now = began; !pl_mpi_broken(); now = pl_now_ns()) {
        int done = 0;
        MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
        if (done) return true;
        if (now - began >= FINISH_GRACE_NS) pl_mpi_break(rank);
        pl_wire_pause(&never, 0, now - began, FINISH_GRACE_NS, true);
    }
    return false;
}

void pl_outbox_new(struct pl_outbox *o, int rank, int tag) {
    for (int i = 0; i < WIRE_ROOM; i++)
        MPI_Send_init(&o->wire[i], sizeof o->wire[i], MPI_BYTE, rank, tag, pl_mpi_comm(),
                      &o->request[i]);
    o->rank = rank;
    o->next = 0;
}

void pl_outbox_free(struct pl_outbox *o) {
    for (int i = 0; i < WIRE_ROOM; i++) MPI_Request_free(&o->request[i]);
}

void pl_outbox_send(struct pl_outbox *o, const struct pl_wire *w) {
    int at = o->next;
    o->next = (at + 1) % WIRE_ROOM;
    if (!pl_wire_finish(&o->request[at], 1, o->rank)) return; /* was sent long ago: see WIRE_ROOM */
    o->wire[at] = *w;
    MPI_Start(&o->request[at]);
}

bool pl_outbox_sent(struct pl_outbox *o) {
    int done = 0;
    MPI_Testall(WIRE_ROOM, o->request, &done, MPI_STATUSES_IGNORE);
    return done;
}
