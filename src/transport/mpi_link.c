#include "transport/mpi_link.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/mpi.h"
#include "transport/mpi_peers.h"
#include "transport/server_group.h"
#include "transport/shm_layout.h"

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

    /* of peers */
    struct pl_exchange exchange;
    struct pl_wire_sum sum; /* of the order */
    struct pl_summand summand[PL_TERMS];
    float *foreign[PL_TERMS]; /* where others' vectors come */
    float **mine;             /* [n_mine] slots that were written here; NULL: none */
    uint32_t n_mine;
    bool asked, closed; /* the order's summands were asked for; the server has said CLOSE */

    struct pl_wire order; /* that has come, if `fresh`: not pulled yet */
    bool fresh, over;
    bool unwanted; /* the order that has come was cancelled; its vector may still be on its way */
    uint64_t task; /* that was pulled and not answered; 0: none */
    uint64_t pulled_ns;
    atomic_bool flag;
    struct pl_cancel cancel;
    atomic_uint wake_worker; /* nobody rings it: this thread sleeps here */
};

static void link_say(struct pl_link *l, const struct pl_wire *w) {
    pl_outbox_send(&l->outbox, 0, WIRE_UP, w);
}

static void link_listen(struct pl_link *l) {
    MPI_Start(&l->request);
}

/* --- peers: see mpi_peers.h -------------------------------------------------------------- */

static float *link_vector(size_t dim) {
    size_t bytes = (dim * sizeof(float) + 63) & ~(size_t)63;
    float *v = aligned_alloc(64, bytes);
    if (v) memset(v, 0, bytes);
    return v;
}

static size_t link_dim(const struct pl_link *l) {
    return l->range[l->n_servers - 1].from + l->range[l->n_servers - 1].n;
}

/* The memory of a slot that is this rank's to write. */
static float *link_slot(void *ctx, uint32_t slot) {
    struct pl_link *l = ctx;
    if (slot < 1 || slot > 1u << 20) return NULL;
    if (slot > l->n_mine) {
        uint32_t n = l->n_mine ? l->n_mine : 64;
        while (n < slot) n *= 2;
        float **grown = realloc(l->mine, n * sizeof(*grown));
        if (!grown) return NULL;
        memset(grown + l->n_mine, 0, (n - l->n_mine) * sizeof *grown);
        l->mine = grown;
        l->n_mine = n;
    }
    if (!l->mine[slot - 1]) l->mine[slot - 1] = link_vector(link_dim(l));
    return l->mine[slot - 1];
}

/* Asks for what others wrote; false: out of memory, or no such order can be. */
static bool link_ask(struct pl_link *l) {
    const struct pl_wire_sum *p = &l->sum;
    if (p->n < 1 || p->n > PL_TERMS || (p->n > 1 && !p->base)) return false;
    if (!link_slot(l, p->out) || (p->base && !link_slot(l, p->base))) return false;
    if (!pl_exchange_room(&l->exchange, PL_TERMS)) return false;
    for (uint32_t i = 0; i < p->n; i++) {
        int rank = p->term[i].rank;
        bool mine = rank == pl_mpi_rank();
        if (rank < 0 || rank >= pl_mpi_size()) return false;
        if (!mine && !l->foreign[i] && !(l->foreign[i] = link_vector(link_dim(l)))) return false;
        l->summand[i] =
            (struct pl_summand){.v = mine ? link_slot(l, p->term[i].slot) : l->foreign[i],
                                .c = p->term[i].c,
                                .writer = rank - l->n_servers};
        if (!l->summand[i].v) return false;
    }
    for (uint32_t i = 0; i < p->n; i++)
        if (p->term[i].rank != pl_mpi_rank())
            pl_exchange_ask(&l->exchange, p->term[i].rank, p->term[i].slot, l->foreign[i]);
    return true;
}

/* Whether all summands of the order are here. */
static bool link_sum(struct pl_link *l) {
    if (!(l->order.flags & WIRE_WITH_SUM)) return true;
    if (!l->asked && !link_ask(l)) pl_mpi_break(pl_mpi_rank());
    l->asked = true;
    return pl_exchange_came(&l->exchange);
}

static void link_order_sum(struct pl_link *l, struct pl_order *o) {
    if (!(l->order.flags & WIRE_WITH_SUM)) return;
    o->n_summands = (int)l->sum.n;
    o->summand = l->summand;
    o->base = l->sum.base ? link_slot(l, l->sum.base) : NULL;
    o->out = link_slot(l, l->sum.out);
    o->w = o->base ? o->base : l->summand[0].v;
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
        if (w.flags & WIRE_WITH_SUM) {
            l->asked = false;
            if (!pl_exchange_open(&l->exchange, link_dim(l), link_slot, l))
                pl_mpi_break(pl_mpi_rank());
            MPI_Irecv(&l->sum, sizeof l->sum, MPI_BYTE, 0, WIRE_SUM, pl_mpi_comm(), &l->vector[0]);
        }
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
        if (!l->exchange.open) return; /* its last word */
        break;
    case WIRE_CLOSE: l->closed = true; return; /* the last where there are peers */
    default: break;
    }
    link_listen(l);
}

/* The server's last word was heard. */
static bool link_heard_all(const struct pl_link *l) {
    return l->exchange.open ? l->closed : l->over;
}

/* Reads all that has come; true where there was anything. */
static bool link_look(struct pl_link *l) {
    bool any = false;
    pl_exchange_look(&l->exchange);
    for (int came = 1; came && !link_heard_all(l) && !pl_mpi_broken();) {
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
    pl_exchange_close(&l->exchange);
    for (int i = 0; i < PL_TERMS; i++) free(l->foreign[i]);
    for (uint32_t i = 0; i < l->n_mine; i++) free(l->mine[i]);
    free(l->mine);
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
    for (bool said = false;; now = pl_now_ns()) {
        link_look(l);
        l->fresh = false;
        /* whoever still waits for a peer's vector is not done */
        if (!said && pl_exchange_came(&l->exchange)) {
            link_say(l, &(struct pl_wire){.kind = WIRE_BYE});
            said = true;
        }
        bool came = link_done(l, l->vector), went = link_done(l, l->answer);
        bool moved =
            said && came && went && pl_outbox_sent(&l->outbox) && pl_exchange_settled(&l->exchange);
        if (moved && link_heard_all(l)) break;
        if (l->exchange.open && !l->over) began = now; /* peers go on, and may ask */
        if (now - began > LINK_PATIENCE) pl_mpi_break(0);
        if (pl_mpi_broken()) return; /* something may still go to or from its memory */
        pl_wire_pause(&l->wake_worker, 0, now - began, LINK_PATIENCE, !moved);
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
        if (l->fresh && came && went && link_sum(l)) break;
        pl_wire_pause(&l->wake_worker, 0, now - began, PL_FOREVER, !came || !went || l->fresh);
    }
    l->fresh = false;
    l->task = l->order.task;
    l->pulled_ns = now;
    *out = (struct pl_order){.task = l->order.task,
                             .version = l->order.version,
                             .acked = l->order.acked,
                             .applied = l->order.applied,
                             .lr = l->order.number,
                             .part = l->order.part,
                             .w = l->w,
                             .out = l->out};
    link_order_sum(l, out);
    return PL_OK;
}

const struct pl_cancel *pl_mpi_cancelled(const struct pl_link *l) {
    return &l->cancel;
}

static void link_phase(struct pl_link *l, enum pl_phase phase) {
    link_say(l, &(struct pl_wire){.kind = WIRE_PHASE, .flags = phase});
}

void pl_mpi_base(struct pl_link *l) {
    if (l->task) link_say(l, &(struct pl_wire){.kind = WIRE_BASE, .task = l->task});
}

int pl_mpi_sleep(struct pl_link *l, uint64_t ns) {
    uint64_t began = pl_now_ns(), now = began;
    link_phase(l, PL_PHASE_SLEEPING);
    for (;; now = pl_now_ns()) {
        if (pl_cancelled(&l->cancel)) return PL_ECANCELLED;
        if (now - began >= ns) break;
        pl_wire_pause(&l->wake_worker, 0, now - began, ns - (now - began), false);
    }
    link_phase(l, PL_PHASE_COMPUTING);
    return PL_OK;
}

/* A result that nobody wants is not sent: the next pull says so. */
void pl_mpi_push(struct pl_link *l, const struct pl_result *r) {
    if (!l->task || pl_cancelled(&l->cancel)) return;
    /* among peers it is left where it lies */
    bool send = r->defect == PL_NO_DEFECT && !(l->order.flags & WIRE_WITH_SUM);
    link_say(l, &(struct pl_wire){.kind = WIRE_RESULT,
                                  .flags = send ? WIRE_WITH_VECTOR : 0,
                                  .task = r->task,
                                  .number = r->loss,
                                  .samples = r->samples,
                                  .defect = r->defect,
                                  .took_ns = pl_now_ns() - l->pulled_ns});
    if (send && l->order.n_ranges > 0) link_move_part(l, true);
    for (int i = 0; send && l->order.n_ranges == 0 && i < l->n_servers; i++)
        MPI_Isend(l->out + l->range[i].from, (int)l->range[i].n, MPI_FLOAT, i, WIRE_VECTOR,
                  pl_mpi_comm(), &l->answer[i]);
    l->task = 0;
    atomic_store(&l->flag, false);
}
