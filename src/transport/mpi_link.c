#include "transport/mpi_link.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/box.h"
#include "transport/mpi.h"
#include "transport/mpi_wire.h"
#include "transport/shards.h"

#define LINK_PATIENCE 5000000000u /* ns that the server has for its last word */

struct pl_link {
    float *w, *out; /* whole vectors */
    struct pl_wire in;
    struct pl_outbox outbox;
    int n_servers;
    struct pl_range range[PL_MAX_SERVERS];
    MPI_Request request;                /* persistent, for small messages */
    MPI_Request vector[PL_MAX_SERVERS]; /* the version that comes, from each server its range */
    MPI_Request answer[PL_MAX_SERVERS]; /* the result that goes */

    struct pl_wire order; /* that has come, if `fresh`: not pulled yet */
    bool fresh, over;
    bool unwanted; /* the order that has come was cancelled; its vector may still be on its way */
    uint64_t task; /* that was pulled and not answered; 0: none */
    uint64_t pulled_ns;
    atomic_bool flag;
    struct pl_cancel cancel;
    atomic_uint bell; /* nobody rings it: this thread sleeps here */
};

static void link_say(struct pl_link *l, const struct pl_wire *w) {
    pl_outbox_send(&l->outbox, 0, WIRE_UP, w);
}

static void link_listen(struct pl_link *l) {
    MPI_Start(&l->request);
}

/* --- what the server says ---------------------------------------------------------------- */

/* The ranges of the version that comes, or of the result that goes; one server has all of them. */
static void link_move_part(struct pl_link *l, bool out) {
    const struct pl_wire *o = &l->order;
    MPI_Datatype type = pl_wire_ranges(o->range, (int)o->n_ranges);
    if (out)
        MPI_Isend(l->out, 1, type, 0, WIRE_VECTOR, pl_mpi_comm(), &l->answer[0]);
    else
        MPI_Irecv(l->w, 1, type, 0, WIRE_VECTOR, pl_mpi_comm(), &l->vector[0]);
    MPI_Type_free(&type);
}

static void link_hear(struct pl_link *l) {
    const struct pl_wire w = l->in;
    switch (w.kind) {
    case WIRE_ORDER:
        l->order = w;
        l->fresh = true;
        if (w.n_ranges > 0)
            link_move_part(l, false);
        else if (w.flags & WIRE_WITH_VECTOR)
            for (int i = 0; i < l->n_servers; i++)
                MPI_Irecv(l->w + l->range[i].from, (int)l->range[i].n, MPI_FLOAT, i, WIRE_VECTOR,
                          pl_mpi_comm(), &l->vector[i]);
        break;
    case WIRE_CANCEL:
        if (l->task && w.task == l->task) atomic_store(&l->flag, true);
        if (l->fresh && w.task == l->order.task) {
            l->fresh = false;
            l->unwanted = true;
        }
        break;
    case WIRE_OVER:
        l->over = true;
        atomic_store(&l->flag, true);
        return; /* its last word */
    default: break;
    }
    link_listen(l);
}

/* Reads all that has come; true where there was anything. */
static bool link_look(struct pl_link *l) {
    bool any = false;
    for (int came = 1; came && !l->over && !pl_mpi_broken();) {
        MPI_Test(&l->request, &came, MPI_STATUS_IGNORE);
        if (came) link_hear(l);
        any = any || came;
    }
    if (pl_mpi_broken()) l->over = true;
    return any;
}

/* The next order comes when this one is let go, so its vector must have come by then. */
static void link_let_go(struct pl_link *l, bool came) {
    if (!l->unwanted || !came) return;
    l->unwanted = false;
    link_say(l, &(struct pl_wire){.kind = WIRE_FREE, .task = l->order.task});
}

static void link_glance(void *ctx) {
    link_look(ctx);
}

static bool link_done(const struct pl_link *l, MPI_Request *request) {
    int done = 0;
    if (!pl_mpi_broken()) MPI_Testall(l->n_servers, request, &done, MPI_STATUSES_IGNORE);
    return done || pl_mpi_broken();
}

/* --- coming and going -------------------------------------------------------------------- */

static void link_free(struct pl_link *l) {
    free(l->w);
    free(l->out);
    free(l);
}

int pl_mpi_connect(const struct pl_range *range, int n_servers, struct pl_link **out, int *worker,
                   struct pl_why *why) {
    struct pl_link *l = calloc(1, sizeof *l);
    const struct pl_range *last = &range[n_servers - 1];
    size_t dim = last->from + last->n, bytes = (dim * sizeof *l->w + 63) & ~(size_t)63;
    bool sane = dim > 0 && n_servers <= PL_MAX_SERVERS && pl_mpi_rank() >= n_servers;
    for (int i = 0; i < n_servers; i++) sane = sane && range[i].n <= INT_MAX;
    if (!sane || pl_mpi_broken()) {
        free(l);
        return pl_fail(why, PL_EUSAGE, "rank %d cannot work on a vector of %zu parameters",
                       pl_mpi_rank(), dim);
    }
    if (l) {
        l->w = aligned_alloc(64, bytes);
        l->out = aligned_alloc(64, bytes);
    }
    if (!l || !l->w || !l->out) {
        if (l) link_free(l);
        return pl_fail(why, PL_ENOMEM, "out of memory for two vectors of %zu parameters", dim);
    }
    memset(l->w, 0, bytes);
    memset(l->out, 0, bytes);
    l->n_servers = n_servers;
    for (int i = 0; i < n_servers; i++) {
        l->range[i] = range[i];
        l->vector[i] = l->answer[i] = MPI_REQUEST_NULL;
    }
    l->cancel = (struct pl_cancel){.flag = &l->flag, .look = link_glance, .ctx = l};
    pl_outbox_new(&l->outbox);
    MPI_Recv_init(&l->in, sizeof l->in, MPI_BYTE, 0, WIRE_DOWN, pl_mpi_comm(), &l->request);
    link_listen(l);
    link_say(l, &(struct pl_wire){.kind = WIRE_HELLO, .flags = WIRE_PROTOCOL, .version = dim});
    *out = l;
    *worker = pl_mpi_rank() - n_servers;
    return PL_OK;
}

/* Reads on until the server's last word: what it sent before it knew must not be left for the next
 * run. */
void pl_mpi_detach(struct pl_link *l) {
    if (!l) return;
    uint64_t began = pl_now_ns(), now = began;
    link_say(l, &(struct pl_wire){.kind = WIRE_BYE});
    for (;; now = pl_now_ns()) {
        link_look(l);
        l->fresh = false;
        bool came = link_done(l, l->vector), went = link_done(l, l->answer);
        bool moved = came && went && pl_outbox_sent(&l->outbox);
        if (moved && l->over) break;
        if (now - began > LINK_PATIENCE) pl_mpi_break(0);
        if (pl_mpi_broken()) return; /* something may still go to or from its memory */
        pl_wire_pause(&l->bell, 0, now - began, LINK_PATIENCE, !moved);
    }
    if (pl_mpi_broken()) return;
    MPI_Request_free(&l->request);
    link_free(l);
}

/* --- orders ------------------------------------------------------------------------------ */

int pl_mpi_pull(struct pl_link *l, struct pl_order *out) {
    uint64_t began = pl_now_ns(), now = began;
    if (l->task) link_say(l, &(struct pl_wire){.kind = WIRE_FREE, .task = l->task});
    l->task = 0;
    atomic_store(&l->flag, false);
    for (;; now = pl_now_ns()) {
        link_look(l);
        bool came = link_done(l, l->vector), went = link_done(l, l->answer);
        if (l->over) return PL_ECANCELLED;
        link_let_go(l, came);
        if (l->fresh && came && went) break;
        pl_wire_pause(&l->bell, 0, now - began, PL_FOREVER, !came || !went);
    }
    l->fresh = false;
    l->task = l->order.task;
    l->pulled_ns = now;
    *out = (struct pl_order){.task = l->order.task,
                             .version = l->order.version,
                             .heard = l->order.heard,
                             .applied = l->order.applied,
                             .lr = l->order.number,
                             .part = l->order.part,
                             .w = l->w,
                             .out = l->out};
    return PL_OK;
}

const struct pl_cancel *pl_mpi_cancelled(const struct pl_link *l) {
    return &l->cancel;
}

static void link_phase(struct pl_link *l, enum pl_phase phase) {
    link_say(l, &(struct pl_wire){.kind = WIRE_PHASE, .flags = phase});
}

int pl_mpi_rest(struct pl_link *l, uint64_t ns) {
    uint64_t began = pl_now_ns(), now = began;
    link_phase(l, PL_PHASE_RESTING);
    for (;; now = pl_now_ns()) {
        if (pl_cancelled(&l->cancel)) return PL_ECANCELLED;
        if (now - began >= ns) break;
        pl_wire_pause(&l->bell, 0, now - began, ns - (now - began), false);
    }
    link_phase(l, PL_PHASE_COMPUTING);
    return PL_OK;
}

/* A result that nobody wants is not sent: the next pull says so. */
void pl_mpi_push(struct pl_link *l, const struct pl_result *r) {
    if (!l->task || pl_cancelled(&l->cancel)) return;
    bool send = r->flaw == PL_SOUND;
    link_say(l, &(struct pl_wire){.kind = WIRE_RESULT,
                                  .flags = send ? WIRE_WITH_VECTOR : 0,
                                  .task = r->task,
                                  .number = r->loss,
                                  .samples = r->samples,
                                  .flaw = r->flaw,
                                  .took_ns = pl_now_ns() - l->pulled_ns});
    if (send && l->order.n_ranges > 0) link_move_part(l, true);
    for (int i = 0; send && l->order.n_ranges == 0 && i < l->n_servers; i++)
        MPI_Isend(l->out + l->range[i].from, (int)l->range[i].n, MPI_FLOAT, i, WIRE_VECTOR,
                  pl_mpi_comm(), &l->answer[i]);
    l->task = 0;
    atomic_store(&l->flag, false);
}
