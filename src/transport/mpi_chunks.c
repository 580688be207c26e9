/* Threads: the thread of the rank, which makes all calls to MPI. */
#include "transport/mpi_chunks.h"

#include <string.h>

#define CHUNKS_STEP 65536 /* elements of a chunk, at least */

struct pl_cut_vector pl_cut_vector(size_t dim, int n_servers) {
    struct pl_cut_vector c = {.dim = dim, .step = CHUNKS_STEP};
    size_t step = ((dim + PL_CHUNKS - 1) / PL_CHUNKS + 15) & ~(size_t)15;
    if (step > c.step) c.step = step;
    if (n_servers == 1 && dim > c.step) c.n = (int)((dim + c.step - 1) / c.step);
    return c;
}

/* Chunk i's length; *from is its first element. */
static int chunks_at(const struct pl_cut_vector *c, int i, size_t *from) {
    *from = (size_t)i * c->step;
    return (int)(c->dim - *from < c->step ? c->dim - *from : c->step);
}

/* --- the server -------------------------------------------------------------------------- */

void pl_chunks_new(struct pl_chunks_out *o) {
    *o = (struct pl_chunks_out){.v = NULL};
    for (int i = 0; i < PL_CHUNKS; i++) o->request[i] = MPI_REQUEST_NULL;
}

bool pl_chunks_send(struct pl_chunks_out *o, const struct pl_cut_vector *cut, int rank,
                    const float *v, size_t n) {
    bool moved = o->moving;
    if (o->v != v) {
        if (o->moving && !pl_wire_finish(o->request, o->n_sent, rank))
            return false; /* it has them */
        o->v = v;
        o->n_sent = 0;
        o->is_void = false;
    }
    for (size_t from; o->n_sent < cut->n; o->n_sent++) {
        int length = chunks_at(cut, o->n_sent, &from);
        if (from + (size_t)length > n) break;
        MPI_Isend(v + from, length, MPI_FLOAT, rank, WIRE_CHUNK, pl_mpi_comm(),
                  &o->request[o->n_sent]);
        o->n_total++;
        o->moving = true;
    }
    return o->moving && !moved;
}

bool pl_chunks_sent(struct pl_chunks_out *o) {
    int done = 0;
    if (!o->moving) return false;
    MPI_Testall(o->n_sent, o->request, &done, MPI_STATUSES_IGNORE);
    if (done) o->moving = false;
    return done;
}

bool pl_chunks_void(struct pl_chunks_out *o, const struct pl_cut_vector *cut, int rank) {
    bool moved = o->moving;
    for (; o->n_sent < cut->n; o->n_sent++, o->n_total++)
        MPI_Isend(o->v, 0, MPI_FLOAT, rank, WIRE_CHUNK, pl_mpi_comm(), &o->request[o->n_sent]);
    o->v = NULL;
    o->is_void = false;
    o->moving = true;
    return !moved;
}

/* --- a worker ---------------------------------------------------------------------------- */

static void chunks_start(struct pl_chunks_in *i) {
    i->n_here = 0;
    memset(i->here, 0, sizeof i->here);
    MPI_Startall(i->cut.n, i->request);
}

void pl_chunks_listen(struct pl_chunks_in *i, float *into, const struct pl_cut_vector *cut) {
    *i = (struct pl_chunks_in){.cut = *cut};
    for (int c = 0; c < cut->n; c++) {
        size_t from;
        int length = chunks_at(cut, c, &from);
        MPI_Recv_init(into + from, length, MPI_FLOAT, 0, WIRE_CHUNK, pl_mpi_comm(), &i->request[c]);
    }
    if (cut->n > 0) chunks_start(i);
}

void pl_chunks_again(struct pl_chunks_in *i) {
    if (i->cut.n > 0 && i->n_here == i->cut.n) chunks_start(i);
}

bool pl_chunks_received(struct pl_chunks_in *i) {
    int n = 0, which[PL_CHUNKS];
    if (i->n_here < i->cut.n && !pl_mpi_broken())
        MPI_Testsome(i->cut.n, i->request, &n, which, MPI_STATUSES_IGNORE);
    for (int k = 0; k < n; k++) i->here[which[k]] = true; /* MPI_UNDEFINED is negative */
    if (n > 0) i->n_here += n;
    if (n > 0) i->n_total += (uint64_t)n;
    return i->n_here == i->cut.n || pl_mpi_broken();
}

bool pl_chunks_move(const struct pl_chunks_in *i) {
    return i->n_here > 0 && i->n_here < i->cut.n;
}

void pl_chunks_close(struct pl_chunks_in *i) {
    for (int c = 0; c < i->cut.n; c++) {
        if (!i->here[c]) {
            MPI_Cancel(&i->request[c]);
            MPI_Wait(&i->request[c], MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&i->request[c]);
    }
    i->cut.n = 0;
}
