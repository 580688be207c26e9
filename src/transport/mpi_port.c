/* A port over MPI: opening and closing it, and orders. Messages from workers are in mpi_news.c.
 *
 * Threads: the one that owns the port executes everything, except that any thread may call
 * port_wake(). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/mpi_link.h"
#include "transport/mpi_module.h"
#include "transport/mpi_port.h"

#define FETCH_GRACE_NS 60000000000u /* within which a worker that is asked must answer */
/* Clients leave when their programs look at the run next: what these do meanwhile is theirs. */
#define SHUTDOWN_CLIENTS_NS UINT64_C(600000000000)

int pl_mpi_port_rank(const struct pl_port *p, int worker) {
    return p->n_servers + worker;
}

static bool port_follows(void) {
    return pl_mpi_rank() > 0;
}

/* --- opening ----------------------------------------------------------------------------- */

static void port_free(struct pl_port *p) {
    free(p->worker);
    free(p->mail);
    free(p->request);
    free(p->which);
    free(p->queue.news);
    pl_port_memory_free(&p->memory);
    free(p);
}

static int port_allocate(struct pl_port *p, const struct pl_port_conf *conf, struct pl_why *why) {
    bool shared = pl_mpi_memory_wanted(p->n_servers, p->n_workers);
    int rc = pl_port_memory_new(conf, shared, &p->memory, why);
    if (rc) return rc;
    if (shared) pl_mpi_memory_begin(&p->memory);
    size_t n = (size_t)p->n_workers;
    p->worker = calloc(n, sizeof *p->worker);
    p->mail = calloc(n, sizeof *p->mail);
    p->request = calloc(3 * n, sizeof(*p->request));
    p->which = calloc(3 * n, sizeof *p->which);
    /* of each worker: joined, two bases and results (one of an order that was replaced), a word,
     * gone */
    if (!pl_port_queue_new(&p->queue, 7 * p->n_workers) || !p->worker || !p->mail || !p->request ||
        !p->which || pl_group_open(p))
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", p->n_workers);
    return PL_OK;
}

static void port_listen(struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++) {
        pl_outbox_new(&p->mail[w].outbox, pl_mpi_port_rank(p, w), WIRE_DOWN);
        pl_chunks_new(&p->mail[w].chunks);
        p->mail[w].final = MPI_REQUEST_NULL;
        p->request[w] = MPI_REQUEST_NULL;
        p->request[p->n_workers + w] = MPI_REQUEST_NULL;
        p->request[2 * p->n_workers + w] = MPI_REQUEST_NULL;
        if (port_follows()) continue;
        MPI_Recv_init(&p->mail[w].in, sizeof p->mail->in, MPI_BYTE, pl_mpi_port_rank(p, w), WIRE_UP,
                      pl_mpi_comm(), &p->request[w]);
        MPI_Start(&p->request[w]);
    }
}

static int port_check(const struct pl_port_conf *conf, int rank, int size, struct pl_why *why) {
    int n_servers = conf->range ? conf->n_servers : 1;
    if (conf->dim > INT_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "vectors of %zu parameters are too long for MPI; use at most 2^31 - 1",
                       conf->dim);
    if (n_servers < 1 || n_servers > PL_MAX_SERVERS || rank >= n_servers ||
        conf->n_workers > size - n_servers || pl_mpi_broken())
        return pl_fail(why, PL_ERUN, "rank %d of %d cannot be one of %d servers for %d workers",
                       rank, size, n_servers, conf->n_workers);
    return PL_OK;
}

static int port_open(const struct pl_port_conf *conf, struct pl_port **out, struct pl_why *why) {
    int rank, size, rc = pl_mpi_begin(&rank, &size, why);
    if (!rc) rc = port_check(conf, rank, size, why);
    if (rc) return rc;
    struct pl_port *p = calloc(1, sizeof *p);
    if (!p) return pl_fail(why, PL_ENOMEM, "out of memory");
    p->n_workers = conf->n_workers;
    p->dim = conf->dim;
    p->conf = *conf;
    p->shown = -1;
    p->over = conf->over;
    p->over_ctx = conf->over_ctx;
    p->n_servers = conf->range ? conf->n_servers : 1;
    p->range[0].n = conf->dim;
    p->cut = pl_cut_vector(conf->dim, p->n_servers);
    for (int i = 0; conf->range && i < p->n_servers; i++) p->range[i] = conf->range[i];
    rc = port_allocate(p, conf, why);
    if (rc) {
        port_free(p);
        return rc;
    }
    port_listen(p);
    *out = p;
    return PL_OK;
}

static float *port_vector(struct pl_port *p, int writer) {
    return pl_port_memory_vector(&p->memory, writer);
}

/* --- sending and receiving --------------------------------------------------------------- */

void pl_mpi_port_send(struct pl_port *p, int worker, const struct pl_wire *w) {
    pl_outbox_send(&p->mail[worker].outbox, w);
}

/* The request for what is sent to a worker. It is free: the worker has answered its last order, so
 * it has received that. */
static MPI_Request *port_sending(struct pl_port *p, int worker) {
    MPI_Request *request = &p->request[2 * p->n_workers + worker];
    if (*request == MPI_REQUEST_NULL)
        p->n_moving++;
    else
        pl_wire_finish(request, 1, pl_mpi_port_rank(p, worker));
    return request;
}

void pl_mpi_port_send_vector(struct pl_port *p, int worker, const struct pl_order *o,
                             const float *v) {
    int rank = pl_mpi_port_rank(p, worker);
    if (o->n_strips > 0)
        pl_wire_send_strips(o->strip, o->n_strips, rank, port_sending(p, worker));
    else
        pl_wire_send(v, p->dim, rank, port_sending(p, worker));
}

void pl_mpi_port_receive_vector(struct pl_port *p, int worker, const struct pl_order *o) {
    int rank = pl_mpi_port_rank(p, worker);
    MPI_Request *request = &p->request[p->n_workers + worker];
    p->n_moving++;
    if (o->n_strips > 0)
        pl_wire_receive_strips(o->strip, o->n_strips, rank, request);
    else
        pl_wire_receive(o->out, p->dim, rank, request);
}

void pl_mpi_port_send_tail(struct pl_port *p, int worker, const struct pl_wire *w) {
    pl_mpi_port_send(p, worker, w);
    MPI_Isend(&p->mail[worker].down, (int)w->n_tail, MPI_BYTE, pl_mpi_port_rank(p, worker),
              WIRE_TAIL, pl_mpi_comm(), port_sending(p, worker));
}

void pl_mpi_port_receive_tail(struct pl_port *p, int worker, const struct pl_wire *w) {
    p->n_moving++;
    MPI_Irecv(&p->mail[worker].up, (int)w->n_tail, MPI_BYTE, pl_mpi_port_rank(p, worker), WIRE_TAIL,
              pl_mpi_comm(), &p->request[p->n_workers + worker]);
}

static void port_send_chunks(struct pl_port *p, int worker, const float *v, size_t n) {
    if (pl_chunks_send(&p->mail[worker].chunks, &p->cut, pl_mpi_port_rank(p, worker), v, n))
        p->n_moving++;
}

/* A worker that has answered is sent what is complete of its next vector. */
static void port_forward(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    w->upcoming = p->cut.n > 0 && w->presence == PL_MPI_JOINED && w->work == PL_MPI_IDLE &&
                  !w->waiting && !w->shares;
}

static void port_written(struct pl_port *p, const float *v, size_t n) {
    for (int w = 0; w < p->n_workers && !pl_mpi_broken(); w++) {
        if (!p->worker[w].upcoming) continue;
        if (!v)
            p->mail[w].chunks.is_void = p->mail[w].chunks.v != NULL;
        else if (!p->mail[w].chunks.is_void)
            port_send_chunks(p, w, v, n);
    }
}

/* --- orders ------------------------------------------------------------------------------ */

/* What the server has, for a worker that asks. */
static float *port_own_vector(void *ctx, uint32_t number) {
    const struct pl_port *p = ctx;
    return pl_port_memory_at(&p->memory, number);
}

/* Keeps the terms of an order that may be sent later. */
static void port_keep_terms(struct pl_port *p, int worker, const struct pl_order *o) {
    MPI_Request *sending = &p->request[2 * p->n_workers + worker];
    if (*sending != MPI_REQUEST_NULL) { /* the last order's; they are few bytes */
        if (!pl_wire_finish(sending, 1, pl_mpi_port_rank(p, worker))) return;
        p->n_moving--;
    }
    struct pl_wire_terms *t = &p->mail[worker].terms;
    t->n = (uint64_t)o->n_inputs;
    for (int i = 0; i < o->n_inputs; i++) {
        int writer = o->input[i].writer;
        t->term[i].vector = pl_port_memory_number(&p->memory, o->input[i].v);
        t->term[i].rank = writer < 0 ? 0 : pl_mpi_port_rank(p, writer);
        t->term[i].c = o->input[i].c;
    }
}

/* Keeps an order; false: out of memory. A plain order on a vector of the server's is sent with the
 * vector; for others the worker is sent terms and asks for the vectors. */
static bool port_keep(struct pl_port *p, int worker, const struct pl_order *o) {
    struct pl_mpi_worker *w = &p->worker[worker];
    bool terms = o->n_strips == 0 && (!pl_order_is_plain(o) || o->input[0].writer >= 0);
    if ((terms || o->stays) && !pl_exchange_open(&p->exchange, p->dim, port_own_vector, p))
        return false;
    if (terms) port_keep_terms(p, worker, o);
    w->input = terms || o->n_strips > 0 ? (struct pl_input){.v = NULL} : o->input[0];
    w->order = *o;
    w->order.input = NULL; /* the caller's */
    w->waiting = true;
    return true;
}

/* Whether chunks that the worker was sent before its order are not those of v: they are void. What
 * it had is overwritten in part. What is still being sent may change meanwhile: it is not used. */
static bool port_void_chunks(struct pl_port *p, int worker, const float *v) {
    struct pl_chunks_out *o = &p->mail[worker].chunks;
    if (!o->v || (o->v == v && !o->is_void)) return false;
    if (pl_chunks_void(o, &p->cut, pl_mpi_port_rank(p, worker))) p->n_moving++;
    p->worker[worker].stamp = 0;
    return true;
}

/* A vector is not sent to a worker that has it already, or reads it where it is. */
void pl_mpi_port_send_order(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    const struct pl_order *o = &w->order;
    const struct pl_input *input = &w->input;
    if (!w->waiting || w->presence != PL_MPI_JOINED || w->work != PL_MPI_IDLE) return;
    bool voided = port_void_chunks(p, worker, input->v);
    bool strips = o->n_strips > 0, terms = !strips && !input->v;
    bool shared = w->shares && !terms && !o->stays;
    bool has = !strips && input->stamp != 0 && input->stamp == w->stamp;
    bool vector = !terms && !shared && !has;
    bool chunks = vector && !strips && p->cut.n > 0 && !voided;
    uint32_t flags = (chunks || voided ? WIRE_WITH_CHUNKS : 0) |
                     (vector && !chunks ? WIRE_WITH_VECTOR : 0) | (terms ? WIRE_WITH_TERMS : 0) |
                     (o->stays ? WIRE_STAYS : 0) | (shared ? WIRE_SHARED : 0);
    struct pl_wire m = {.kind = WIRE_ORDER,
                        .flags = flags,
                        .task = o->task,
                        .in = shared ? pl_port_memory_number(&p->memory, input->v) : 0,
                        .out = o->stays || shared ? pl_port_memory_number(&p->memory, o->out) : 0,
                        .base = pl_port_memory_number(&p->memory, o->base),
                        .n_strips = (uint32_t)o->n_strips};
    for (int i = 0; i < o->n_strips; i++)
        m.strip[i] = (struct pl_wire_strip){
            shared ? pl_port_memory_offset(&p->memory, o->strip[i].in) : 0,
            shared ? pl_port_memory_offset(&p->memory, o->strip[i].out) : 0, o->strip[i].n};
    for (int i = 0; i < PL_NOTE_WORDS; i++) m.note[i] = o->note[i];
    if (shared) pl_mpi_memory_sync(&p->memory);
    pl_mpi_port_send(p, worker, &m);
    pl_group_log_own(p, ENTRY_SENT, worker, vector);
    if (vector) {
        if (chunks)
            port_send_chunks(p, worker, input->v, p->dim);
        else
            pl_mpi_port_send_vector(p, worker, o, input->v);
        p->mail[worker].chunks.v = NULL;
        w->stamp = strips ? 0 : input->stamp;
    } else if (terms) {
        MPI_Isend(&p->mail[worker].terms, sizeof p->mail->terms, MPI_BYTE,
                  pl_mpi_port_rank(p, worker), WIRE_TERMS, pl_mpi_comm(), port_sending(p, worker));
    }
    if (o->stays || terms) p->mail[worker].exchanges = true;
    w->sent = *o;
    w->sent_ns = pl_now_ns();
    w->work = PL_MPI_BUSY;
    w->waiting = w->upcoming = false;
    w->phase = PL_PHASE_COMPUTING;
}

static void port_tell(struct pl_port *p, int worker, const struct pl_order *o) {
    if (p->worker[worker].presence >= PL_MPI_LEAVING) return;
    if (!port_keep(p, worker, o)) {
        pl_mpi_break(0);
        return;
    }
    /* at a follower, where no worker ever joins, the log tells when it is sent */
    pl_mpi_port_send_order(p, worker);
}

static void port_cancel(struct pl_port *p, int worker) {
    struct pl_mpi_worker *w = &p->worker[worker];
    uint64_t task = w->order.task;
    w->order.task = 0;
    w->waiting = false;
    if (w->presence != PL_MPI_JOINED || w->work != PL_MPI_BUSY || task == 0) return;
    w->work = PL_MPI_CANCELLING;
    pl_mpi_port_send(p, worker, &(struct pl_wire){.kind = WIRE_CANCEL, .task = w->sent.task});
}

static int port_fetch(struct pl_port *p, const struct pl_input *what, int n) {
    struct pl_group_wait wait = pl_group_wait_new(FETCH_GRACE_NS);
    int waits_for = 0;
    if (!pl_exchange_room(&p->exchange, n)) return PL_ENOMEM;
    for (int i = 0; i < n && !pl_mpi_broken(); i++) {
        if (what[i].writer < 0) continue;
        if (!p->exchange.open) return PL_ERUN; /* nothing has stayed anywhere */
        waits_for = pl_mpi_port_rank(p, what[i].writer);
        pl_exchange_ask(&p->exchange, waits_for, pl_port_memory_number(&p->memory, what[i].v),
                        (float *)(uintptr_t)what[i].v);
    }
    while (!pl_exchange_received(&p->exchange)) {
        pl_mpi_port_poll(p);
        uint64_t now = pl_now_ns();
        if (pl_group_wait_is_over(p, &wait, now)) pl_mpi_break(waits_for);
        pl_wire_pause(&p->wake_server, atomic_load(&p->wake_server), now - wait.began,
                      FETCH_GRACE_NS, true);
    }
    return pl_mpi_broken() ? PL_ERUN : PL_OK;
}

static uint64_t port_holds(const struct pl_port *p, int worker) {
    const struct pl_mpi_worker *w = &p->worker[worker];
    return w->work != PL_MPI_IDLE && w->sent.task != w->order.task ? w->sent.task : 0;
}

static enum pl_phase port_phase(struct pl_port *p, int worker) {
    pl_mpi_port_poll(p);
    return p->worker[worker].phase;
}

static bool port_progress(struct pl_port *p) {
    if (pl_mpi_broken()) return false;
    if (port_follows()) return pl_group_moves(p);
    pl_mpi_port_poll(p);
    return p->n_moving > 0;
}

static void port_wake(struct pl_port *p) {
    atomic_store(&p->woken, true);
    pl_futex_ring(&p->wake_server);
}

/* --- shutting down ----------------------------------------------------------------------- */

static bool port_final_sent(struct pl_mpi_mail *m) {
    int done = 0;
    MPI_Test(&m->final, &done, MPI_STATUS_IGNORE);
    return done;
}

/* The rank of a worker that has not left, or to or from which something is still being sent; 0: the
 * exchange is not settled; -1: all are done. */
static int port_unsettled(struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++)
        if (pl_mpi_is_here(&p->worker[w]) || !pl_outbox_sent(&p->mail[w].outbox) ||
            !port_final_sent(&p->mail[w]) || p->mail[w].chunks.moving ||
            p->request[p->n_workers + w] != MPI_REQUEST_NULL ||
            p->request[2 * p->n_workers + w] != MPI_REQUEST_NULL)
            return pl_mpi_port_rank(p, w);
    return pl_exchange_settled(&p->exchange) ? -1 : 0;
}

/* When all have said BYE, no vector is asked for any more. */
static void port_close_exchange(struct pl_port *p) {
    if (!p->exchange.open || p->closed) return;
    for (int w = 0; w < p->n_workers; w++)
        if (pl_mpi_is_here(&p->worker[w])) return;
    p->closed = true;
    for (int w = 0; w < p->n_workers; w++)
        if (p->mail[w].exchanges) pl_mpi_port_send(p, w, &(struct pl_wire){.kind = WIRE_CLOSE});
}

static void port_shutdown(struct pl_port *p, uint64_t wait_ns) {
    uint64_t began = pl_now_ns(), now = began;
    if (p->conf.about) wait_ns = SHUTDOWN_CLIENTS_NS;
    for (;; now = pl_now_ns()) {
        for (int w = 0; w < p->n_workers; w++)
            if (pl_mpi_is_here(&p->worker[w])) pl_mpi_port_shut_worker(p, w);
        pl_mpi_port_poll(p);
        p->queue.n = 0;
        for (int w = 0; w < p->n_workers; w++) pl_mpi_port_release(p, w);
        port_close_exchange(p);
        if (pl_mpi_broken() || port_unsettled(p) < 0 || now - began >= wait_ns) return;
        pl_wire_pause(&p->wake_server, atomic_load(&p->wake_server), now - began, wait_ns,
                      p->n_moving > 0);
    }
}

/* Memory that something may still be sent from or received into is not freed: the job ends soon. */
static void port_close(struct pl_port *p) {
    if (!p) return;
    int late = port_follows() ? -1 : port_unsettled(p);
    if (late >= 0) pl_mpi_break(late);
    if (pl_mpi_broken() || !pl_group_close(p)) return;
    pl_exchange_close(&p->exchange);
    for (int w = 0; w < p->n_workers; w++) {
        pl_outbox_free(&p->mail[w].outbox);
        if (port_follows()) continue;
        MPI_Cancel(&p->request[w]);
        MPI_Wait(&p->request[w], MPI_STATUS_IGNORE);
        MPI_Request_free(&p->request[w]);
    }
    port_free(p);
}

static const struct pl_stream_ops port_stream = {
    .forward = port_forward, .written = port_written, .progress = port_progress};
static const struct pl_stay_ops port_stay = {.fetch = port_fetch};

/* --- clients: all workers are, or none is; each has the number of its rank ---------------- */

static void port_offer(struct pl_port *p, int worker) {
    (void)p, (void)worker;
}

static bool port_is_client(const struct pl_port *p, int worker) {
    return p->conf.about && worker < p->n_workers;
}

static bool port_show(struct pl_port *p, int evaluator, const float *version,
                      const uint64_t note[PL_NOTE_WORDS]) {
    (void)p, (void)evaluator, (void)version, (void)note;
    return false; /* there are none */
}

static bool port_hang_up(struct pl_port *p, int worker, bool again, const char *sentence) {
    (void)p, (void)worker, (void)again, (void)sentence;
    return false; /* a rank cannot be replaced */
}

static bool port_final(struct pl_port *p, const float *version,
                       const uint64_t note[PL_NOTE_WORDS]) {
    uint32_t number = pl_port_memory_number(&p->memory, version);
    if (!p->conf.about || pl_port_memory_at(&p->memory, number) != version) return false;
    p->final_w = version;
    memcpy(p->final_note, note, sizeof p->final_note);
    return true;
}

static const struct pl_client_ops port_clients = {.offer = port_offer,
                                                  .is_client = port_is_client,
                                                  .show = port_show,
                                                  .hang_up = port_hang_up,
                                                  .final = port_final};

const struct pl_transport pl_mpi = {.name = "mpi",
                                    .brief = "workers are ranks of a job started by mpirun or srun",
                                    .port = {.open = port_open,
                                             .shutdown = port_shutdown,
                                             .close = port_close,
                                             .vector = port_vector,
                                             .tell = port_tell,
                                             .cancel = port_cancel,
                                             .holds = port_holds,
                                             .phase = port_phase,
                                             .news = pl_mpi_port_news,
                                             .wake = port_wake},
                                    .link = {.pull = pl_mpi_pull,
                                             .cancelled = pl_mpi_cancelled,
                                             .sleep = pl_mpi_sleep,
                                             .push = pl_mpi_push,
                                             .detach = pl_mpi_detach},
                                    .stream = &port_stream,
                                    .stay = &port_stay,
                                    .clients = &port_clients,
                                    .join = &pl_mpi_join,
                                    .group = &pl_mpi_group};
