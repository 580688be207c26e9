/* Threads: the thread of the rank, which makes all calls to MPI. */
#include "transport/mpi_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/clock.h"

/* At the beginning of the segment, where other transports have a struct pl_head. */
struct memory_head {
    _Alignas(64) _Atomic uint64_t drawn;
    _Alignas(64) atomic_uint sync;
};

_Static_assert(sizeof(struct memory_head) <= sizeof(struct pl_head), "there is room for it");

static struct memory_head *memory_head(const struct pl_port_memory *m) {
    return m->segment.at;
}

bool pl_mpi_memory_wanted(int n_servers, int n_workers) {
    const char *shared = getenv("PACELINE_MPI_SHARED");
    bool near = false;
    for (int w = 0; w < n_workers; w++) near = near || pl_mpi_near(n_servers + w);
    /* with several servers, a worker's vector is made of slices from each */
    return near && n_servers == 1 && !(shared && strcmp(shared, "no") == 0);
}

void pl_mpi_memory_begin(const struct pl_port_memory *m) {
    uint64_t drawn = pl_now_ns() ^ (uint64_t)getpid() << 40;
    atomic_store(&memory_head(m)->drawn, drawn ? drawn : 1);
}

struct pl_wire pl_mpi_memory_offer(const struct pl_port_memory *m) {
    const struct pl_shape *s = &m->shape;
    return (struct pl_wire){.kind = WIRE_MEMORY,
                            .task = atomic_load(&memory_head(m)->drawn),
                            .dim = s->dim,
                            .note = {(uint64_t)getpid(), (uint64_t)m->segment.fd, s->n_workers,
                                     s->n_versions, s->n_slots}};
}

bool pl_mpi_memory_map(const struct pl_wire *offer, size_t dim, struct pl_port_memory *out) {
    struct pl_port_memory m = {.shape = {.dim = dim,
                                         .n_workers = offer->note[2],
                                         .n_versions = offer->note[3],
                                         .n_slots = offer->note[4]},
                               .segment = {.fd = -1}};
    struct pl_shape *s = &m.shape;
    *out = m;
    if (offer->dim != dim || !pl_shape_of(s) ||
        pl_segment_find((int)offer->note[0], (int)offer->note[1], s->size, &m.segment))
        return false;
    if (atomic_load(&memory_head(&m)->drawn) != offer->task) {
        pl_segment_free(&m.segment);
        return false;
    }
    pl_segment_protect(&m.segment, s->versions, s->versions_end - s->versions);
    m.n_versions = s->n_versions;
    m.n_slots = s->n_slots;
    *out = m;
    return true;
}

float *pl_mpi_memory_at(const struct pl_port_memory *m, uint32_t number) {
    return m->segment.at ? pl_port_memory_at(m, number) : NULL;
}

/* The message itself makes the other rank come later, in whichever way the MPI library moves it. */
void pl_mpi_memory_sync(const struct pl_port_memory *m) {
    atomic_fetch_add_explicit(&memory_head(m)->sync, 1, memory_order_acq_rel);
}
