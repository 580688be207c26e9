/* A worker's end of a port over MPI.
 *
 * Threads: the worker's thread executes everything. link_glance() is called from within a task,
 * between layers, in the same thread. */
#include "transport/mpi_link.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/mpi.h"

#define LINK_GRACE_NS 5000000000u /* within which the server must send its last message, */
#define LINK_CLIENTS_NS UINT64_C(600000000000) /* for which it may wait for other clients */
#define LINK_VECTORS (1u << 21)                /* numbers of vectors are not higher */

static void link_send(struct pl_link *l, const struct pl_wire *w) {
    pl_outbox_send(&l->outbox, w);
}

static float *link_floats(const struct pl_segment *s) {
    return s->at;
}

static float *link_vector(size_t dim) {
    size_t bytes = (dim * sizeof(float) + 63) & ~(size_t)63;
    float *v = aligned_alloc(64, bytes);
    if (v) memset(v, 0, bytes);
    return v;
}

static size_t link_dim(const struct pl_link *l) {
    return l->range[l->n_servers - 1].from + l->range[l->n_servers - 1].n;
}

/* --- vectors that stay: see mpi_exchange.h ----------------------------------------------- */

/* The memory of a vector that this rank writes; NULL: there is none. */
static float *link_own(void *ctx, uint32_t number) {
    struct pl_link *l = ctx;
    if (number < 1 || number > LINK_VECTORS) return NULL;
    if (number > l->n_own) {
        uint32_t n = l->n_own ? l->n_own : 64;
        while (n < number) n *= 2;
        if (!PL_RESIZE(l->own, n)) return NULL;
        memset(l->own + l->n_own, 0, (n - l->n_own) * sizeof *l->own);
        l->n_own = n;
    }
    if (!l->own[number - 1]) l->own[number - 1] = link_vector(link_dim(l));
    return l->own[number - 1];
}

/* Asks for the inputs that others wrote; false: out of memory, or the order is impossible. */
static bool link_ask(struct pl_link *l) {
    const struct pl_wire_terms *t = &l->terms;
    if (t->n < 1 || t->n > PL_TERMS || (t->n > 1 && !l->order.base)) return false;
    if (!pl_exchange_room(&l->exchange, PL_TERMS)) return false;
    for (uint64_t i = 0; i < t->n; i++) {
        int rank = t->term[i].rank;
        bool own = rank == pl_mpi_rank();
        if (rank < 0 || rank >= pl_mpi_size()) return false;
        if (!own && !l->foreign[i] && !(l->foreign[i] = link_vector(link_dim(l)))) return false;
        const float *v = own ? link_own(l, t->term[i].vector) : l->foreign[i];
        if (!v) return false;
        l->input[i] = (struct pl_input){.v = v, .c = t->term[i].c, .writer = rank - l->n_servers};
    }
    for (uint64_t i = 0; i < t->n; i++)
        if (t->term[i].rank != pl_mpi_rank())
            pl_exchange_ask(&l->exchange, t->term[i].rank, t->term[i].vector, l->foreign[i]);
    return true;
}

/* Whether all inputs of the order are here. */
static bool link_has_inputs(struct pl_link *l) {
    if (!(l->order.flags & WIRE_WITH_TERMS)) return true;
    if (!l->asked && !link_ask(l)) pl_mpi_break(pl_mpi_rank());
    l->asked = true;
    return pl_exchange_received(&l->exchange);
}

/* --- messages from the server ------------------------------------------------------------ */

/* Elements of an order's input, or of its result. */
static size_t link_n(const struct pl_link *l) {
    size_t n = 0;
    for (uint32_t i = 0; i < l->order.n_strips; i++) n += l->order.strip[i].n;
    return l->order.n_strips > 0 ? n : link_dim(l);
}

/* Whether the vectors or strips of an order are in memory that this rank has. */
static bool link_is_possible(const struct pl_link *l) {
    const struct pl_wire *o = &l->order;
    bool shared = o->flags & WIRE_SHARED;
    if (o->n_strips > PL_STRIPS || (!shared && link_n(l) > link_dim(l))) return false;
    for (uint32_t i = 0; shared && i < o->n_strips; i++)
        if (!pl_port_memory_in_slots(&l->memory, o->strip[i].in, o->strip[i].n) ||
            !pl_port_memory_in_slots(&l->memory, o->strip[i].out, o->strip[i].n))
            return false;
    return !shared || o->n_strips > 0 ||
           (pl_mpi_memory_at(&l->memory, o->in) && pl_mpi_memory_at(&l->memory, o->out));
}

static void link_receive_vector(struct pl_link *l) {
    float *w = link_floats(&l->w);
    if (l->n_servers == 1) pl_wire_receive(w, link_n(l), 0, l->receive);
    for (int i = 0; l->n_servers > 1 && i < l->n_servers; i++)
        pl_wire_receive(w + l->range[i].from, l->range[i].n, i, &l->receive[i]);
}

static void link_receive_order(struct pl_link *l) {
    const struct pl_wire *o = &l->order;
    if (o->flags & (WIRE_WITH_TERMS | WIRE_STAYS)) {
        bool room = pl_exchange_open(&l->exchange, link_dim(l), link_own, l) &&
                    (!o->out || link_own(l, o->out)) && (!o->base || link_own(l, o->base));
        if (!room) pl_mpi_break(pl_mpi_rank());
    }
    if (!link_is_possible(l)) pl_mpi_break(pl_mpi_rank());
    if (o->flags & WIRE_WITH_TERMS) {
        l->asked = false;
        MPI_Irecv(&l->terms, sizeof l->terms, MPI_BYTE, 0, WIRE_TERMS, pl_mpi_comm(),
                  &l->receive[0]);
    }
    l->after_chunks = o->flags & WIRE_WITH_VECTOR && o->flags & WIRE_WITH_CHUNKS;
    if (o->flags & WIRE_WITH_VECTOR && !l->after_chunks) link_receive_vector(l);
}

/* Allocates the vectors that are sent, now that their length is known. False if that fails. */
static bool link_vectors(struct pl_link *l) {
    size_t bytes = link_dim(l) * sizeof(float);
    return pl_segment_new(bytes, false, &l->w) == 0 && pl_segment_new(bytes, false, &l->out) == 0;
}

static void link_listen_for_chunks(struct pl_link *l) {
    struct pl_cut_vector cut = pl_cut_vector(link_dim(l), l->n_servers);
    pl_chunks_listen(&l->chunks, link_floats(&l->w), &cut);
}

/* The server's answer to a client. */
static void link_answered(struct pl_link *l, const struct pl_wire *w) {
    bool welcome = w->kind == WIRE_WELCOME && w->dim > 0 && w->dim <= INT_MAX;
    if (l->answered || !l->answer || w->n_tail > sizeof *l->answer) return;
    l->answered = w->kind;
    l->agrees = w->kind == WIRE_REFUSED && w->flags;
    l->range[0].n = w->dim;
    if (welcome && link_vectors(l))
        link_listen_for_chunks(l);
    else if (w->kind == WIRE_WELCOME)
        pl_mpi_break(pl_mpi_rank());
    MPI_Irecv(l->answer, (int)w->n_tail, MPI_BYTE, 0, WIRE_TAIL, pl_mpi_comm(), &l->receive[0]);
}

static void link_map(struct pl_link *l, const struct pl_wire *offer) {
    bool mapped = !l->memory.segment.at && pl_mpi_memory_map(offer, link_dim(l), &l->memory);
    link_send(l, &(struct pl_wire){.kind = WIRE_MAPPED, .flags = mapped});
}

static void link_receive_final(struct pl_link *l) {
    l->final_w = link_vector(link_dim(l));
    if (!l->final_w)
        pl_mpi_break(pl_mpi_rank());
    else
        MPI_Irecv(l->final_w, (int)link_dim(l), MPI_FLOAT, 0, WIRE_FINAL, pl_mpi_comm(), &l->final);
}

static void link_read(struct pl_link *l) {
    const struct pl_wire w = l->in;
    switch (w.kind) {
    case WIRE_ORDER:
        l->order = w;
        l->fresh = true;
        link_receive_order(l);
        break;
    case WIRE_MEMORY: link_map(l, &w); break;
    case WIRE_WELCOME:
    case WIRE_REFUSED: link_answered(l, &w); break;
    case WIRE_CANCEL:
        if (l->task && w.task == l->task) atomic_store(&l->flag, true);
        if (l->fresh && w.task == l->order.task) {
            l->fresh = false;
            l->unwanted = true;
        }
        break;
    case WIRE_SHUTDOWN:
        l->shutdown = true;
        l->n_chunks = w.task;
        l->last = w;
        if (w.flags & WIRE_WITH_VECTOR) link_receive_final(l);
        atomic_store(&l->flag, true);
        if (!l->exchange.open) return; /* the last message */
        break;
    case WIRE_CLOSE: l->closed = true; return; /* the last if there is an exchange */
    default: break;
    }
    MPI_Start(&l->request);
}

/* Whether the server's last message was read. */
static bool link_read_all(const struct pl_link *l) {
    return l->exchange.open ? l->closed : l->shutdown;
}

/* Reads all messages that have arrived. */
static void link_look(struct pl_link *l) {
    if (l->left) return;
    pl_exchange_answer(&l->exchange);
    for (int received = 1; received && !link_read_all(l) && !pl_mpi_broken();) {
        MPI_Test(&l->request, &received, MPI_STATUS_IGNORE);
        if (received) link_read(l);
    }
    if (pl_mpi_broken()) l->shutdown = true;
}

static void link_glance(void *ctx) {
    link_look(ctx);
}

static bool link_done(const struct pl_link *l, MPI_Request *request) {
    int done = 0;
    if (!pl_mpi_broken()) MPI_Testall(l->n_servers, request, &done, MPI_STATUSES_IGNORE);
    return done || pl_mpi_broken();
}

/* Whether all of the order's vector is here. */
static bool link_has_vector(struct pl_link *l) {
    bool chunks = pl_chunks_received(&l->chunks);
    if (chunks && l->after_chunks) {
        l->after_chunks = false;
        link_receive_vector(l);
    }
    return !l->after_chunks && link_done(l, l->receive) &&
           (chunks || !(l->fresh || l->unwanted) || !(l->order.flags & WIRE_WITH_CHUNKS));
}

static bool link_has_final(struct pl_link *l) {
    int done = 1;
    if (!pl_mpi_broken()) MPI_Test(&l->final, &done, MPI_STATUS_IGNORE);
    return done;
}

static bool link_has_sent(struct pl_link *l) {
    int said = 1;
    if (!pl_mpi_broken()) MPI_Test(&l->saying, &said, MPI_STATUS_IGNORE);
    return link_done(l, l->send) && said;
}

/* The next order is sent when this one is let go, so all that it brings must have arrived. */
static void link_let_go(struct pl_link *l, bool received) {
    if (!l->unwanted || !received || !pl_exchange_received(&l->exchange)) return;
    l->unwanted = false;
    pl_chunks_again(&l->chunks);
    link_send(l, &(struct pl_wire){.kind = WIRE_FREE, .task = l->order.task});
}

/* --- connecting and leaving -------------------------------------------------------------- */

static void link_free(struct pl_link *l) {
    pl_exchange_close(&l->exchange);
    for (int i = 0; i < PL_TERMS; i++) free(l->foreign[i]);
    for (uint32_t i = 0; i < l->n_own; i++) free(l->own[i]);
    free(l->own);
    pl_segment_free(&l->w);
    pl_segment_free(&l->out);
    pl_segment_free(&l->memory.segment);
    free(l->final_w);
    free(l->say);
    free(l->answer);
    free(l);
}

static struct pl_link *link_new(const struct pl_range *range, int n_servers) {
    struct pl_link *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->memory.segment.fd = -1;
    l->grace_ns = LINK_GRACE_NS;
    l->saying = l->final = MPI_REQUEST_NULL;
    l->n_servers = n_servers;
    for (int i = 0; i < n_servers; i++) {
        l->range[i] = range[i];
        l->receive[i] = l->send[i] = MPI_REQUEST_NULL;
    }
    l->cancel = (struct pl_cancel){.flag = &l->flag, .look = link_glance, .ctx = l};
    return l;
}

static void link_listen(struct pl_link *l) {
    pl_outbox_new(&l->outbox, 0, WIRE_UP);
    MPI_Recv_init(&l->in, sizeof l->in, MPI_BYTE, 0, WIRE_DOWN, pl_mpi_comm(), &l->request);
    MPI_Start(&l->request);
}

int pl_mpi_connect(const struct pl_range *range, int n_servers, struct pl_link **out, int *worker,
                   struct pl_why *why) {
    const struct pl_range *last = &range[n_servers - 1];
    size_t dim = last->from + last->n;
    bool valid = dim > 0 && n_servers <= PL_MAX_SERVERS && pl_mpi_rank() >= n_servers;
    for (int i = 0; i < n_servers; i++) valid = valid && range[i].n <= INT_MAX;
    if (!valid || pl_mpi_broken())
        return pl_fail(why, PL_EUSAGE, "rank %d cannot work on a vector of %zu parameters",
                       pl_mpi_rank(), dim);
    struct pl_link *l = link_new(range, n_servers);
    if (!l || !link_vectors(l)) {
        if (l) link_free(l);
        return pl_fail(why, PL_ENOMEM, "out of memory for two vectors of %zu parameters", dim);
    }
    link_listen(l);
    link_listen_for_chunks(l);
    link_send(l, &(struct pl_wire){.kind = WIRE_HELLO, .flags = WIRE_PROTOCOL, .dim = dim});
    *out = l;
    *worker = pl_mpi_rank() - n_servers;
    return PL_OK;
}

int pl_mpi_hello(const struct pl_newcomer *client, struct pl_link **out, struct pl_why *why) {
    const struct pl_range none = {0};
    struct pl_link *l = link_new(&none, 1);
    if (!l || !(l->say = calloc(1, sizeof *l->say)) ||
        !(l->answer = calloc(1, sizeof *l->answer))) {
        if (l) link_free(l);
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    l->grace_ns = LINK_CLIENTS_NS;
    link_listen(l);
    struct pl_wire hello = {.kind = WIRE_HELLO, .flags = WIRE_PROTOCOL, .dim = client->dim};
    pl_mpi_say(l, &hello, client, sizeof *client);
    *out = l;
    return PL_OK;
}

bool pl_mpi_answered(struct pl_link *l) {
    link_look(l);
    if (pl_mpi_broken() || (l->shutdown && !l->answered)) return true;
    return l->answered && link_done(l, l->receive);
}

void pl_mpi_say(struct pl_link *l, struct pl_wire *w, const void *tail, size_t n) {
    if (!pl_wire_finish(&l->saying, 1, 0)) return;
    memcpy(l->say, tail, n);
    w->n_tail = n;
    link_send(l, w);
    MPI_Isend(l->say, (int)n, MPI_BYTE, 0, WIRE_TAIL, pl_mpi_comm(), &l->saying);
}

/* Nothing is left for the next run. */
void pl_mpi_leave(struct pl_link *l) {
    uint64_t began = pl_now_ns(), now = began;
    for (bool bye = false; !l->left; now = pl_now_ns()) {
        link_look(l);
        l->fresh = false;
        if (!bye && pl_exchange_received(&l->exchange)) {
            link_send(l, &(struct pl_wire){.kind = WIRE_BYE});
            bye = true;
        }
        bool received = link_has_vector(l), sent = link_has_sent(l);
        if (l->shutdown && l->chunks.n_total < l->n_chunks) received = false;
        bool settled = bye && received && sent && link_has_final(l) && pl_outbox_sent(&l->outbox) &&
                       pl_exchange_settled(&l->exchange);
        l->left = settled && link_read_all(l);
        if (l->exchange.open && !l->shutdown) began = now; /* others still work, and may ask */
        if (now - began > l->grace_ns && !l->left) pl_mpi_break(0);
        if (pl_mpi_broken() || l->left) return;
        pl_wire_pause(&l->never, 0, now - began, l->grace_ns, !settled);
    }
}

void pl_mpi_detach(struct pl_link *l) {
    if (!l) return;
    pl_mpi_leave(l);
    if (pl_mpi_broken()) return; /* its memory may still be sent from or received into */
    MPI_Request_free(&l->request);
    pl_outbox_free(&l->outbox);
    pl_chunks_close(&l->chunks);
    link_free(l);
}

/* --- orders ------------------------------------------------------------------------------ */

/* Strips that were sent are one after the other, and so is what becomes of them. */
static void link_strips(struct pl_link *l, struct pl_order *o) {
    const struct pl_wire *w = &l->order;
    bool shared = w->flags & WIRE_SHARED;
    size_t at = 0;
    for (int i = 0; i < o->n_strips; at += o->strip[i++].n)
        o->strip[i] = (struct pl_strip){
            shared ? pl_port_memory_in_slots(&l->memory, w->strip[i].in, w->strip[i].n)
                   : link_floats(&l->w) + at,
            shared ? pl_port_memory_in_slots(&l->memory, w->strip[i].out, w->strip[i].n)
                   : link_floats(&l->out) + at,
            w->strip[i].n};
}

static struct pl_order link_order(struct pl_link *l) {
    const struct pl_wire *w = &l->order;
    bool terms = w->flags & WIRE_WITH_TERMS, shared = w->flags & WIRE_SHARED;
    struct pl_order o = {.task = w->task,
                         .n_inputs = terms ? (int)l->terms.n : 1,
                         .input = l->input,
                         .base = w->base ? link_own(l, w->base) : NULL,
                         .out = shared   ? pl_mpi_memory_at(&l->memory, w->out)
                                : w->out ? link_own(l, w->out)
                                         : link_floats(&l->out),
                         .stays = w->flags & WIRE_STAYS,
                         .n_strips = (int)w->n_strips};
    const float *v = shared ? pl_mpi_memory_at(&l->memory, w->in) : link_floats(&l->w);
    if (!terms) l->input[0] = (struct pl_input){.v = v, .c = 1, .writer = -1};
    link_strips(l, &o);
    memcpy(o.note, w->note, sizeof o.note);
    return o;
}

int pl_mpi_pull_until(struct pl_link *l, uint64_t wait_ns, struct pl_order *out) {
    uint64_t began = pl_now_ns(), now = began;
    if (l->task) {
        pl_chunks_again(&l->chunks);
        link_send(l, &(struct pl_wire){.kind = WIRE_FREE, .task = l->task});
    }
    l->task = 0;
    atomic_store(&l->flag, false);
    for (;; now = pl_now_ns()) {
        link_look(l);
        bool received = link_has_vector(l), sent = link_has_sent(l);
        if (l->shutdown) return PL_ECANCELLED;
        link_let_go(l, received);
        if (l->fresh && received && sent && link_has_inputs(l)) break;
        if (now - began >= wait_ns) return PL_ETIMEDOUT;
        bool moving = !received || !sent || l->fresh || pl_chunks_move(&l->chunks);
        pl_wire_pause(&l->never, 0, now - began, wait_ns - (now - began), moving);
    }
    l->fresh = false;
    l->task = l->order.task;
    l->pulled_ns = now;
    if (l->order.flags & WIRE_SHARED) pl_mpi_memory_sync(&l->memory);
    *out = link_order(l);
    return PL_OK;
}

int pl_mpi_pull(struct pl_link *l, struct pl_order *out) {
    return pl_mpi_pull_until(l, PL_FOREVER, out);
}

const struct pl_cancel *pl_mpi_cancelled(const struct pl_link *l) {
    return &l->cancel;
}

static void link_phase(struct pl_link *l, enum pl_phase phase) {
    link_send(l, &(struct pl_wire){.kind = WIRE_PHASE, .flags = phase});
}

int pl_mpi_sleep(struct pl_link *l, uint64_t ns) {
    uint64_t began = pl_now_ns(), now = began;
    link_phase(l, PL_PHASE_SLEEPING);
    for (;; now = pl_now_ns()) {
        if (pl_cancelled(&l->cancel)) return PL_ECANCELLED;
        if (now - began >= ns) break;
        pl_wire_pause(&l->never, 0, now - began, ns - (now - began), false);
    }
    link_phase(l, PL_PHASE_COMPUTING);
    return PL_OK;
}

static void link_send_result(struct pl_link *l) {
    const float *out = link_floats(&l->out);
    if (l->n_servers == 1) pl_wire_send(out, link_n(l), 0, l->send);
    for (int i = 0; l->n_servers > 1 && i < l->n_servers; i++)
        pl_wire_send(out + l->range[i].from, l->range[i].n, i, &l->send[i]);
}

/* A result of an order that was cancelled is not sent: the next pull lets the order go. */
void pl_mpi_push(struct pl_link *l, const struct pl_result *r) {
    if (!l->task || pl_cancelled(&l->cancel)) return;
    if (r->is_base) {
        link_send(l, &(struct pl_wire){.kind = WIRE_BASE, .task = r->task});
        return;
    }
    bool shared = l->order.flags & WIRE_SHARED;
    bool vector = r->defect == PL_NO_DEFECT && !shared && !(l->order.flags & WIRE_STAYS);
    if (shared) pl_mpi_memory_sync(&l->memory);
    pl_chunks_again(&l->chunks);
    uint32_t flags = (vector ? WIRE_WITH_VECTOR : 0) | (shared ? WIRE_SHARED : 0) |
                     (r->sets_lr ? WIRE_SETS_LR : 0) | (r->tells_waits ? WIRE_WAITS : 0);
    struct pl_wire w = {.kind = WIRE_RESULT,
                        .flags = flags,
                        .task = r->task,
                        .loss = r->loss,
                        .lr = r->lr,
                        .samples = r->samples,
                        .defect = r->defect,
                        .pull_wait_ns = r->pull_wait_ns,
                        .wait_ns = r->wait_ns,
                        .took_ns = pl_now_ns() - l->pulled_ns};
    if (r->n_absent > 0 && l->say)
        pl_mpi_say(l, &w, r->absent, r->n_absent * sizeof *r->absent);
    else
        link_send(l, &w);
    if (vector) link_send_result(l);
    l->task = 0;
    atomic_store(&l->flag, false);
}
