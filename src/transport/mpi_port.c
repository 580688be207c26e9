#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"
#include "transport/mpi_port.h"

#define PORT_BRING 60000000000u /* ns in which whoever is asked must look */

int pl_port_rank(const struct pl_port *p, int worker) {
    return p->n_servers + worker;
}

static bool port_follows(void) {
    return pl_mpi_rank() > 0;
}

/* --- opening ----------------------------------------------------------------------------- */

static void port_free(struct pl_port *p) {
    free(p->seat);
    free(p->in);
    free(p->outbox);
    free(p->request);
    free(p->which);
    free(p->queue);
    free(p->sum);
    free(p->told_sum);
    pl_segment_free(&p->memory);
    free(p);
}

static int port_allocate(struct pl_port *p, struct pl_why *why) {
    size_t n = (size_t)p->n_workers;
    p->room = 4 * p->n_workers;
    p->seat = calloc(n, sizeof *p->seat);
    p->in = calloc(n, sizeof *p->in);
    p->outbox = calloc(n, sizeof *p->outbox);
    p->request = calloc(3 * n, sizeof(*p->request));
    p->which = calloc(3 * n, sizeof *p->which);
    p->queue = calloc((size_t)p->room, sizeof *p->queue);
    if (!p->seat || !p->in || !p->outbox || !p->request || !p->which || !p->queue ||
        pl_segment_new(p->shape.size, false, &p->memory))
        return pl_fail(
            why, PL_ENOMEM,
            "no room for %d workers, %llu versions and %llu slots of %zu parameters each",
            p->n_workers, (unsigned long long)p->shape.n_versions,
            (unsigned long long)p->shape.n_slots, p->dim);
    return PL_OK;
}

static void port_listen(struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++) {
        pl_outbox_new(&p->outbox[w]);
        p->request[w] = MPI_REQUEST_NULL;
        p->request[p->n_workers + w] = MPI_REQUEST_NULL;
        p->request[2 * p->n_workers + w] = MPI_REQUEST_NULL;
        if (port_follows()) continue;
        MPI_Recv_init(&p->in[w], sizeof *p->in, MPI_BYTE, pl_port_rank(p, w), WIRE_UP,
                      pl_mpi_comm(), &p->request[w]);
        MPI_Start(&p->request[w]);
    }
}

static int port_open(const struct pl_port_conf *conf, struct pl_port **out, struct pl_why *why) {
    int rank, size, rc = pl_mpi_begin(&rank, &size, why);
    if (rc) return rc;
    struct pl_shape shape = {.dim = conf->dim};
    if (conf->n_workers > 0) shape.n_workers = (uint64_t)conf->n_workers;
    if (conf->n_versions > 0) shape.n_versions = (uint64_t)conf->n_versions;
    if (conf->n_slots > 0) shape.n_slots = (uint64_t)conf->n_slots;
    if (conf->listen || !pl_shape_of(&shape) || conf->dim > INT_MAX)
        return pl_fail(
            why, PL_EUSAGE,
            "a port over MPI has 1 to 2^20 workers, versions and slots, of 1 to 2^31 - 1 "
            "parameters, and listens nowhere else; not %d, %d, %d, of %zu",
            conf->n_workers, conf->n_versions, conf->n_slots, conf->dim);
    int n_servers = conf->range ? conf->n_servers : 1;
    if (n_servers < 1 || n_servers > PL_MAX_SERVERS || rank >= n_servers ||
        conf->n_workers > size - n_servers || pl_mpi_broken())
        return pl_fail(why, PL_ERUN, "rank %d of %d cannot be one of %d servers of %d workers",
                       rank, size, n_servers, conf->n_workers);
    struct pl_port *p = calloc(1, sizeof *p);
    if (!p) return pl_fail(why, PL_ENOMEM, "out of memory");
    p->n_workers = conf->n_workers;
    p->dim = conf->dim;
    p->shape = shape;
    p->n_servers = n_servers;
    p->range[0].n = conf->dim;
    for (int i = 0; conf->range && i < n_servers; i++) p->range[i] = conf->range[i];
    rc = port_allocate(p, why);
    if (!rc && pl_group_open(p)) rc = pl_fail(why, PL_ENOMEM, "out of memory");
    if (rc) {
        port_free(p);
        return rc;
    }
    port_listen(p);
    *out = p;
    return PL_OK;
}

static float *port_vector(const struct pl_port *p, size_t from, size_t i) {
    return (float *)(void *)((char *)p->memory.at + from + i * p->shape.stride);
}

static float *port_version(struct pl_port *p) {
    if (p->n_versions == p->shape.n_versions) return NULL;
    return port_vector(p, p->shape.versions, p->n_versions++);
}

static float *port_slot(struct pl_port *p) {
    if (p->n_slots == p->shape.n_slots) return NULL;
    return port_vector(p, p->shape.slots, p->n_slots++);
}

/* --- orders ------------------------------------------------------------------------------ */

static void port_small(struct pl_port *p, int worker, const struct pl_wire *w) {
    pl_outbox_send(&p->outbox[worker], pl_port_rank(p, worker), WIRE_DOWN, w);
}

void pl_port_move_out(struct pl_port *p, int worker, const float *w) {
    MPI_Isend(w, (int)p->dim, MPI_FLOAT, pl_port_rank(p, worker), WIRE_VECTOR, pl_mpi_comm(),
              &p->request[2 * p->n_workers + worker]);
    p->n_moving++;
}

void pl_port_move_in(struct pl_port *p, int worker, float *out) {
    MPI_Irecv(out, (int)p->dim, MPI_FLOAT, pl_port_rank(p, worker), WIRE_VECTOR, pl_mpi_comm(),
              &p->request[p->n_workers + worker]);
    p->n_moving++;
}

/* --- peers: see mpi_peers.h --- */

static uint32_t port_slot_number(const struct pl_port *p, const float *slot) {
    if (!slot) return 0;
    size_t at = (size_t)((const char *)slot - (const char *)p->memory.at) - p->shape.slots;
    return (uint32_t)(at / p->shape.stride) + 1;
}

/* What the server has in a slot, for whoever asks. */
static float *port_slot_at(void *ctx, uint32_t slot) {
    struct pl_port *p = ctx;
    return slot >= 1 && slot <= p->n_slots ? port_vector(p, p->shape.slots, slot - 1) : NULL;
}

/* Writes down the summands of an order that may go out later; false: out of memory. */
static bool port_note_sum(struct pl_port *p, int worker, const struct pl_order *o) {
    size_t n = (size_t)p->n_workers;
    MPI_Request *moving = &p->request[2 * p->n_workers + worker];
    if (!p->sum) p->sum = calloc(n, sizeof *p->sum);
    if (!p->told_sum) p->told_sum = calloc(n, sizeof *p->told_sum);
    if (!p->sum || !p->told_sum || !pl_exchange_open(&p->exchange, p->dim, port_slot_at, p))
        return false;
    if (*moving != MPI_REQUEST_NULL) { /* the last; it was answered, so it has come */
        MPI_Wait(moving, MPI_STATUS_IGNORE);
        p->n_moving--;
    }
    struct pl_wire_sum *w = &p->sum[worker];
    w->n = (uint32_t)o->n_summands;
    w->base = port_slot_number(p, o->base);
    w->out = port_slot_number(p, o->out);
    for (int i = 0; i < o->n_summands; i++) {
        int writer = o->summand[i].writer;
        w->term[i].slot = port_slot_number(p, o->summand[i].v);
        w->term[i].rank = writer < 0 ? 0 : pl_port_rank(p, writer);
        w->term[i].c = o->summand[i].c;
    }
    return true;
}

static void port_send_sum(struct pl_port *p, int worker) {
    p->told_sum[worker] = true;
    MPI_Isend(&p->sum[worker], sizeof *p->sum, MPI_BYTE, pl_port_rank(p, worker), WIRE_SUM,
              pl_mpi_comm(), &p->request[2 * p->n_workers + worker]);
    p->n_moving++;
}

/* The ranges of an order's version to its worker, or those of its result from it. */
static void port_move_part(struct pl_port *p, int worker, const struct pl_order *o, bool out) {
    MPI_Datatype type = pl_wire_ranges(o->range, o->n_ranges);
    MPI_Request *request = &p->request[(out ? 2 : 1) * p->n_workers + worker];
    int rank = pl_port_rank(p, worker);
    if (out)
        MPI_Isend(o->w, 1, type, rank, WIRE_VECTOR, pl_mpi_comm(), request);
    else
        MPI_Irecv(o->out, 1, type, rank, WIRE_VECTOR, pl_mpi_comm(), request);
    MPI_Type_free(&type);
    p->n_moving++;
}

/* The order goes out; its vector with it, unless the worker has that version. */
static void port_send(struct pl_port *p, int worker) {
    struct seat *s = &p->seat[worker];
    const struct pl_order *o = &s->order;
    bool part = o->n_ranges > 0, sum = o->n_summands > 0;
    bool send = !sum && (part || !s->has || s->version != o->version);
    struct pl_wire w = {.kind = WIRE_ORDER,
                        .flags = send  ? WIRE_WITH_VECTOR
                                 : sum ? WIRE_WITH_SUM
                                       : 0,
                        .task = o->task,
                        .version = o->version,
                        .acked = o->acked,
                        .applied = o->applied,
                        .number = o->lr,
                        .part = o->part,
                        .n_ranges = (uint32_t)o->n_ranges};
    for (int i = 0; i < o->n_ranges; i++) w.range[i] = o->range[i];
    port_small(p, worker, &w);
    pl_port_log(p, ENTRY_SENT, worker, send);
    if (part)
        port_move_part(p, worker, o, true);
    else if (send)
        pl_port_move_out(p, worker, o->w);
    else if (sum)
        port_send_sum(p, worker);
    s->has = !part && !sum;
    s->version = o->version;
    s->sent = *o;
    s->sent_ns = pl_now_ns();
    s->busy = true;
    s->waiting = s->cancelling = false;
    s->phase = PL_PHASE_COMPUTING;
}

static void port_tell(struct pl_port *p, int worker, const struct pl_order *o) {
    struct seat *s = &p->seat[worker];
    if (!port_follows() && ((!s->expected && !s->here) || s->told_over)) return;
    if (o->n_summands > 0 && !port_note_sum(p, worker, o)) {
        pl_mpi_break(0);
        return;
    }
    s->order = *o;
    s->waiting = true;
    if (port_follows()) return; /* the log tells when */
    if (s->here && !s->busy) port_send(p, worker);
}

static void port_cancel(struct pl_port *p, int worker) {
    struct seat *s = &p->seat[worker];
    uint64_t task = s->order.task;
    s->order.task = 0;
    s->waiting = false;
    if (!s->here || s->told_over || !s->busy || s->cancelling || task == 0) return;
    s->cancelling = true;
    if (port_follows()) return;
    port_small(p, worker, &(struct pl_wire){.kind = WIRE_CANCEL, .task = s->sent.task});
}

static uint64_t port_holds(const struct pl_port *p, int worker) {
    const struct seat *s = &p->seat[worker];
    return s->busy && s->sent.task != s->order.task ? s->sent.task : 0;
}

static uint64_t port_based(const struct pl_port *p, int worker) {
    return p->seat[worker].based;
}

/* --- what workers say -------------------------------------------------------------------- */

static void port_enqueue(struct pl_port *p, enum pl_news_kind kind, int worker,
                         const struct pl_result *r) {
    if (p->n_queued == p->room) return; /* a worker has at most: here, a result, gone */
    struct pl_news *n = &p->queue[(p->first + p->n_queued++) % p->room];
    *n = (struct pl_news){.kind = kind, .worker = worker};
    if (r) n->result = *r;
}

static void port_over_to(struct pl_port *p, int worker) {
    struct seat *s = &p->seat[worker];
    if (s->told_over) return;
    s->told_over = true;
    s->waiting = false;
    port_small(p, worker, &(struct pl_wire){.kind = WIRE_OVER});
}

/* The worker has nothing to do any more: what waits for it goes out. */
static void port_freed(struct pl_port *p, int worker) {
    struct seat *s = &p->seat[worker];
    s->busy = false;
    s->phase = PL_PHASE_WAITING;
    pl_port_log(p, ENTRY_FREED, worker, 0);
    if (s->waiting && !s->told_over) port_send(p, worker);
}

static void port_hello(struct pl_port *p, int worker, const struct pl_wire *w) {
    struct seat *s = &p->seat[worker];
    bool waiting = s->waiting;
    struct pl_order order = s->order;
    *s = (struct seat){.here = true, .phase = PL_PHASE_WAITING, .order = order};
    const struct pl_range *last = &p->range[p->n_servers - 1];
    if (w->version != last->from + last->n || w->flags != WIRE_PROTOCOL) {
        port_over_to(p, worker);
        return;
    }
    port_enqueue(p, PL_NEWS_JOINED, worker, NULL);
    s->waiting = waiting;
    if (waiting) port_send(p, worker);
}

/* When the worker took the order and when it answered, on this machine's clock: what was not
 * computing was on the way, there and back alike. */
static struct pl_result port_judge(const struct seat *s, const struct pl_wire *w) {
    uint64_t now = pl_now_ns(), all = now - s->sent_ns;
    uint64_t took = w->took_ns < all ? w->took_ns : all, way = (all - took) / 2;
    struct pl_result r = {.task = w->task,
                          .defect = (enum pl_defect)w->defect,
                          .samples = w->samples,
                          .loss = w->number,
                          .pulled_ns = s->sent_ns + way,
                          .pushed_ns = s->sent_ns + way + took};
    if (w->defect > PL_NOT_COMPUTED || w->samples > INT32_MAX || w->task != s->sent.task) {
        r.defect = PL_NOT_COMPUTED;
        r.samples = 0;
        r.loss = NAN;
    }
    return r;
}

/* True where its vector is still to come: nothing else of this worker is read before that. */
static bool port_result(struct pl_port *p, int worker, const struct pl_wire *w) {
    struct seat *s = &p->seat[worker];
    if (!s->busy) return false;
    s->result = port_judge(s, w);
    if (w->flags & WIRE_WITH_VECTOR) {
        pl_port_log(p, ENTRY_COMES, worker, 0);
        if (s->sent.n_ranges > 0)
            port_move_part(p, worker, &s->sent, false);
        else
            pl_port_move_in(p, worker, s->sent.out);
        return true;
    }
    port_enqueue(p, PL_NEWS_RESULT, worker, &s->result);
    port_freed(p, worker);
    return false;
}

/* What was let go and is still wanted comes again; its version is there. */
static void port_let_go(struct pl_port *p, int worker, const struct pl_wire *w) {
    struct seat *s = &p->seat[worker];
    if (!s->busy || w->task != s->sent.task) return;
    if (s->order.task == s->sent.task) s->waiting = true;
    port_freed(p, worker);
}

static void port_bye(struct pl_port *p, int worker) {
    struct seat *s = &p->seat[worker];
    bool known = s->here;
    port_over_to(p, worker);
    *s = (struct seat){.told_over = true};
    pl_port_log(p, ENTRY_RESET, worker, 0);
    if (known) port_enqueue(p, PL_NEWS_GONE, worker, NULL);
}

static void port_hear(struct pl_port *p, int worker) {
    const struct pl_wire w = p->in[worker];
    switch (w.kind) {
    case WIRE_HELLO: port_hello(p, worker, &w); break;
    case WIRE_RESULT:
        if (port_result(p, worker, &w)) return;
        break;
    case WIRE_FREE: port_let_go(p, worker, &w); break;
    case WIRE_PHASE:
        if (p->seat[worker].busy && w.flags <= PL_PHASE_COMPUTING)
            p->seat[worker].phase = (enum pl_phase)w.flags;
        break;
    case WIRE_BASE: p->seat[worker].based = w.task; break;
    case WIRE_BYE: port_bye(p, worker); break;
    default: break;
    }
    MPI_Start(&p->request[worker]);
}

/* A vector has come whole, after the small message about it. The way it took is no time of the
 * worker's. */
static void port_received(struct pl_port *p, int worker) {
    struct seat *s = &p->seat[worker];
    p->n_moving--;
    port_enqueue(p, PL_NEWS_RESULT, worker, &s->result);
    port_freed(p, worker);
    MPI_Start(&p->request[worker]);
}

static bool port_look(struct pl_port *p) {
    int n = 0;
    MPI_Testsome(3 * p->n_workers, p->request, &n, p->which, MPI_STATUSES_IGNORE);
    pl_exchange_look(&p->exchange);
    if (n == MPI_UNDEFINED || pl_mpi_broken()) return false;
    for (int i = 0; i < n; i++) {
        int worker = p->which[i] % p->n_workers;
        switch (p->which[i] / p->n_workers) {
        case 0: port_hear(p, worker); break;
        case 1: port_received(p, worker); break;
        default: p->n_moving--; break;
        }
    }
    return n > 0;
}

/* MPI itself has failed: nobody is there any more. */
static void port_lost(struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++) {
        if (!p->seat[w].here) continue;
        p->seat[w] = (struct seat){.told_over = true};
        port_enqueue(p, PL_NEWS_GONE, w, NULL);
    }
}

static enum pl_phase port_phase(struct pl_port *p, int worker) {
    port_look(p);
    return p->seat[worker].phase;
}

static void port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out) {
    uint64_t began = pl_now_ns(), quiet = began, now = began;
    *out = (struct pl_news){.kind = PL_NEWS_NONE, .worker = -1};
    for (;; now = pl_now_ns()) {
        unsigned seen = atomic_load(&p->wake_worker);
        if (atomic_exchange(&p->woken, false)) return;
        if (port_look(p)) quiet = now;
        if (pl_mpi_broken()) port_lost(p);
        if (p->n_queued > 0) break;
        if (now - began >= wait_ns) return;
        pl_wire_pause(&p->wake_worker, seen, now - quiet, wait_ns - (now - began), p->n_moving > 0);
    }
    *out = p->queue[p->first];
    p->first = (p->first + 1) % p->room;
    p->n_queued--;
}

static void port_wake(struct pl_port *p) {
    atomic_store(&p->woken, true);
    pl_futex_ring(&p->wake_worker);
}

/* --- peers' vectors ---------------------------------------------------------------------- */

static int port_bring(struct pl_port *p, const struct pl_summand *what, int n) {
    uint64_t began = pl_now_ns(), now = began;
    if (n == 0) return PL_OK;
    if (!pl_exchange_room(&p->exchange, n)) return PL_ENOMEM;
    for (int i = 0; i < n && !pl_mpi_broken(); i++)
        pl_exchange_ask(&p->exchange, pl_port_rank(p, what[i].writer),
                        port_slot_number(p, what[i].v), (float *)(uintptr_t)what[i].v);
    while (!pl_exchange_came(&p->exchange)) {
        port_look(p);
        now = pl_now_ns();
        if (now - began > PORT_BRING) pl_mpi_break(pl_port_rank(p, what[0].writer));
        pl_wire_pause(&p->wake_worker, atomic_load(&p->wake_worker), now - began, PORT_BRING, true);
    }
    return pl_mpi_broken() ? PL_ERUN : PL_OK;
}

/* --- the end ----------------------------------------------------------------------------- */

/* The rank of somebody who is not done; -1: all are. */
static int port_anybody(struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++)
        if (p->seat[w].here || !pl_outbox_sent(&p->outbox[w]) ||
            p->request[p->n_workers + w] != MPI_REQUEST_NULL ||
            p->request[2 * p->n_workers + w] != MPI_REQUEST_NULL)
            return pl_port_rank(p, w);
    return pl_exchange_settled(&p->exchange) ? -1 : 0;
}

/* When all have said BYE, nobody asks any more. */
static void port_close_peers(struct pl_port *p) {
    if (!p->told_sum || p->closed) return;
    for (int w = 0; w < p->n_workers; w++)
        if (p->seat[w].here) return;
    p->closed = true;
    for (int w = 0; w < p->n_workers; w++)
        if (p->told_sum[w]) port_small(p, w, &(struct pl_wire){.kind = WIRE_CLOSE});
}

static void port_shutdown(struct pl_port *p, uint64_t wait_ns) {
    uint64_t began = pl_now_ns(), now = began;
    for (;; now = pl_now_ns()) {
        for (int w = 0; w < p->n_workers; w++)
            if (p->seat[w].here) port_over_to(p, w);
        port_look(p);
        p->n_queued = 0;
        port_close_peers(p);
        if (pl_mpi_broken() || port_anybody(p) < 0 || now - began >= wait_ns) return;
        pl_wire_pause(&p->wake_worker, atomic_load(&p->wake_worker), now - began, wait_ns,
                      p->n_moving > 0);
    }
}

/* Memory that something may still be sent from or received into is not freed: the job ends soon. */
static void port_close(struct pl_port *p) {
    if (!p) return;
    int late = port_follows() ? -1 : port_anybody(p);
    if (late >= 0) pl_mpi_break(late);
    if (pl_mpi_broken() || !pl_group_close(p)) return;
    pl_exchange_close(&p->exchange);
    for (int w = 0; w < p->n_workers && !port_follows(); w++) {
        MPI_Cancel(&p->request[w]);
        MPI_Wait(&p->request[w], MPI_STATUS_IGNORE);
        MPI_Request_free(&p->request[w]);
    }
    port_free(p);
}

/* --- workers are the launcher's to make -------------------------------------------------- */

static int port_expect(struct pl_port *p, int worker, struct pl_why *why) {
    if (worker < 0 || worker >= p->n_workers)
        return pl_fail(why, PL_EUSAGE, "there is no worker %d; there are 1 to %d", worker + 1,
                       p->n_workers);
    if (p->seat[worker].here || p->seat[worker].expected)
        return pl_fail(why, PL_EUSAGE, "worker %d is there already", worker + 1);
    p->seat[worker] = (struct seat){.expected = true};
    return PL_OK;
}

static int port_attach(struct pl_port *p, int worker, struct pl_link **out) {
    (void)p;
    (void)worker;
    (void)out;
    return PL_EUSAGE; /* pl_mpi_connect is for other ranks */
}

static void port_made(struct pl_port *p, int worker) {
    (void)p;
    (void)worker;
}

const struct pl_transport pl_mpi = {.name = "mpi",
                                    .brief = "workers are ranks of a job that mpirun or srun made",
                                    .processes = true,
                                    .shared = false,
                                    .port = {.open = port_open,
                                             .shutdown = port_shutdown,
                                             .close = port_close,
                                             .version = port_version,
                                             .slot = port_slot,
                                             .tell = port_tell,
                                             .cancel = port_cancel,
                                             .based = port_based,
                                             .bring = port_bring,
                                             .holds = port_holds,
                                             .phase = port_phase,
                                             .news = port_news,
                                             .wake = port_wake,
                                             .expect = port_expect,
                                             .attach = port_attach,
                                             .made = port_made},
                                    .link = {.pull = pl_mpi_pull,
                                             .base = pl_mpi_base,
                                             .cancelled = pl_mpi_cancelled,
                                             .sleep = pl_mpi_sleep,
                                             .push = pl_mpi_push,
                                             .detach = pl_mpi_detach}};
