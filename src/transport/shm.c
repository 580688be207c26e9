/* The port over memory that server and workers share: threads (inproc) and processes (shm).
 *
 * Threads: the one that owns the port executes everything here, except that port_gone() and
 * port_admit() are called by the thread that watches the workers' sockets (liveness.h), that
 * port_gone() is called by a worker's thread when it detaches, that port_attach() runs in the new
 * thread or process, and that any thread may call port_wake().
 *
 * Prefix: port_ */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/process.h"
#include "transport/client_link.h"
#include "transport/link.h"
#include "transport/shm_port.h"

/* --- opening ----------------------------------------------------------------------------- */

static void port_close(struct pl_port *p);

static void port_gone(void *ctx, int worker) {
    struct pl_port *p = ctx;
    atomic_fetch_or(&p->gone[worker / 64], UINT64_C(1) << (worker % 64));
    pl_port_wake_server(p);
}

static int port_allocate(struct pl_port *p, const struct pl_port_conf *conf, struct pl_why *why) {
    int rc = pl_port_memory_new(conf, p->processes, &p->memory, why);
    if (rc) return rc;
    const struct pl_shape *s = &p->memory.shape;
    size_t n = pl_shape_seats(s);
    p->n_workers = conf->n_workers;
    p->n_seats = (int)n;
    p->n_words = (p->n_seats + 63) / 64;
    p->seat = calloc(n, sizeof *p->seat);
    p->gone = calloc((size_t)p->n_words, sizeof *p->gone);
    p->clients = calloc((size_t)p->n_words, sizeof *p->clients);
    bool half = s->half & PL_HALF_MODEL;
    if (half) p->half_stamp = calloc(s->n_versions, sizeof *p->half_stamp);
    /* of each seat: joined, a base, a result, gone, and words; or done, asked, gone and words */
    if (!pl_port_queue_new(&p->queue, (4 + PL_LIVENESS_WORDS) * p->n_seats) || !p->seat ||
        !p->gone || !p->clients || (half && !p->half_stamp))
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", p->n_workers);
    p->head = p->memory.segment.at;
    p->starts = conf->starts;
    for (size_t i = 0; i < n; i++) {
        atomic_store(&p->seat[i].mailbox, pl_shape_mailbox(s, p->head, (int)i));
        atomic_store(&p->seat[i].owner, 1);
        atomic_store(&p->seat[i].offered, (int)i >= p->starts);
    }
    return PL_OK;
}

static int port_watch(struct pl_port *p, const struct pl_port_conf *conf, struct pl_why *why) {
    struct pl_liveness_conf liveness = {.n_seats = p->n_seats,
                                        .listen = conf->listen,
                                        .admit = pl_port_admit,
                                        .reader = pl_port_reader,
                                        .gone = port_gone,
                                        .said = pl_port_said,
                                        .ctx = p};
    snprintf(p->about, sizeof p->about, "%s", conf->about ? conf->about : "");
    p->admit = conf->admit;
    p->admit_ctx = conf->admit_ctx;
    p->told = conf->told;
    p->told_ctx = conf->told_ctx;
    p->show_ns = conf->show_ns ? conf->show_ns : PL_SHOW_NS;
    p->join_ns = conf->join_ns ? conf->join_ns : PL_JOIN_NS;
    return pl_liveness_open(&liveness, &p->liveness, why);
}

static int port_open(const struct pl_port_conf *conf, bool processes, struct pl_port **out,
                     struct pl_why *why) {
    struct pl_port *p = calloc(1, sizeof *p);
    if (!p) return pl_fail(why, PL_ENOMEM, "out of memory");
    p->processes = processes;
    p->opened_ns = p->looked_ns = pl_now_ns();
    int rc = port_allocate(p, conf, why);
    if (!rc && processes) rc = port_watch(p, conf, why);
    if (rc)
        port_close(p);
    else
        *out = p;
    return rc;
}

static int shm_open_port(const struct pl_port_conf *conf, struct pl_port **out,
                         struct pl_why *why) {
    return port_open(conf, true, out, why);
}

static int port_open_inproc(const struct pl_port_conf *conf, struct pl_port **out,
                            struct pl_why *why) {
    return port_open(conf, false, out, why);
}

static void port_close(struct pl_port *p) {
    if (!p) return;
    pl_liveness_close(p->liveness);
    pl_port_memory_free(&p->memory);
    for (int i = 0; p->seat && i < p->n_seats; i++) free(p->seat[i].absent);
    free(p->seat);
    free(p->gone);
    free(p->clients);
    free(p->half_stamp);
    free(p->queue.news);
    free(p);
}

static float *port_vector(struct pl_port *p, int writer) {
    return pl_port_memory_vector(&p->memory, writer);
}

/* --- orders ------------------------------------------------------------------------------ */

static void port_void_order(struct pl_port *p, int worker) {
    const uint64_t none[PL_SEQLOCK_WORDS] = {0};
    pl_port_write_order(p, worker, none);
}

static void port_write_order(struct pl_port *p, int worker, const struct pl_order *o) {
    uint64_t word[PL_SEQLOCK_WORDS] = {0}, flags = pl_port_half_flags(p, worker, o);
    word[PL_ORDER_TASK] = o->task;
    if (pl_order_is_plain(o)) word[PL_ORDER_INPUT] = pl_port_offset(p, o->input[0].v);
    word[PL_ORDER_OUT] = pl_port_offset(p, o->out);
    if (o->stays) flags |= PL_FLAG_STAYS;
    word[PL_ORDER_FLAGS] = (uint64_t)o->n_strips << PL_FLAG_BITS | flags;
    for (int i = 0; i < PL_STRIPS && i < o->n_strips; i++) {
        uint64_t *strip = &word[PL_ORDER_STRIP + 3 * i];
        strip[0] = pl_port_offset(p, o->strip[i].in);
        strip[1] = pl_port_offset(p, o->strip[i].out);
        strip[2] = o->strip[i].n;
    }
    for (int i = 0; i < PL_NOTE_WORDS; i++) word[PL_ORDER_NOTE + i] = o->note[i];
    pl_port_write_order(p, worker, word);
}

/* The order is void while its inputs are written. */
static void port_write_inputs(struct pl_port *p, int worker, const struct pl_order *o) {
    struct pl_mailbox_inputs *inputs = &pl_port_mailbox(p, worker)->inputs;
    port_void_order(p, worker);
    atomic_store(&inputs->n, (uint64_t)o->n_inputs);
    atomic_store(&inputs->base, pl_port_offset(p, o->base));
    for (int i = 0; i < o->n_inputs && i < PL_TERMS; i++) {
        atomic_store(&inputs->at[i], pl_port_offset(p, o->input[i].v));
        atomic_store(&inputs->c[i], pl_bits_of(o->input[i].c));
    }
}

static void port_tell(struct pl_port *p, int worker, const struct pl_order *o) {
    if (!pl_port_knows(&p->seat[worker])) return;
    if (o->n_strips == 0 && !pl_order_is_plain(o)) port_write_inputs(p, worker, o);
    port_write_order(p, worker, o);
    p->seat[worker].told = o->task;
    p->seat[worker].out = o->out;
    p->seat[worker].base = o->base;
    pl_port_ring(p, worker);
}

/* First void, then the flag: a worker clears the flag before it reads, so it finds either. */
static void port_cancel(struct pl_port *p, int worker) {
    if (!pl_port_knows(&p->seat[worker])) return;
    port_void_order(p, worker);
    atomic_store(&pl_port_mailbox(p, worker)->cancel, true);
    pl_port_ring(p, worker);
}

/* A worker writes what it holds, then checks whether the order is still the same; the server
 * changes the order, then checks what is held. One of the two sees the other. */
static uint64_t port_holds(const struct pl_port *p, int worker) {
    const struct pl_seat *w = &p->seat[worker];
    if (!pl_port_knows(w)) return 0;
    uint64_t held = atomic_load(&pl_port_mailbox(p, worker)->held);
    return held != w->task ? held : 0;
}

static bool port_answered(struct pl_port *p, int worker) {
    const struct pl_seat *w = &p->seat[worker];
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    return pl_port_knows(w) && w->task != 0 &&
           pl_seqlock_read(&pl_port_mailbox(p, worker)->result, word, &seq) &&
           word[PL_RESULT_OWNER] == atomic_load(&w->owner) && word[PL_RESULT_TASK] == w->task;
}

static enum pl_phase port_phase(struct pl_port *p, int worker) {
    if (!pl_port_knows(&p->seat[worker]) || !pl_port_is_joined(p, worker)) return PL_PHASE_AWAY;
    unsigned phase = atomic_load_explicit(&pl_port_mailbox(p, worker)->phase, memory_order_relaxed);
    return phase <= PL_PHASE_COMPUTING ? (enum pl_phase)phase : PL_PHASE_AWAY;
}

static void port_wake(struct pl_port *p) {
    atomic_store(&p->woken, true);
    pl_port_wake_server(p);
}

/* --- shutting down ----------------------------------------------------------------------- */

/* A thread that was expected may never have been started; a process is seen by its socket. */
static bool port_has_workers(const struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++) {
        bool gone = atomic_load(&p->gone[w / 64]) >> (w % 64) & 1;
        if (atomic_load(&p->seat[w].taken) && !p->seat[w].leaving && !gone &&
            (p->processes || pl_port_is_joined(p, w)))
            return true;
    }
    return false;
}

static void port_shutdown(struct pl_port *p, uint64_t wait_ns) {
    uint64_t now = pl_now_ns(), end = pl_until(now, wait_ns);
    atomic_store(&p->head->shutdown, 1);
    if (p->liveness) pl_liveness_deaf(p->liveness); /* whose words are not read would not be gone */
    for (int w = 0; w < p->n_seats; w++) {
        atomic_store(&pl_port_mailbox(p, w)->cancel, true);
        pl_port_ring(p, w);
    }
    while (now < end) {
        unsigned seen = pl_port_prepare_sleep(p);
        if (!port_has_workers(p)) break;
        now = pl_sleep_on(&p->head->wake_server, seen, now, end);
    }
    atomic_store(&p->head->asleep, 0);
}

/* --- starting workers -------------------------------------------------------------------- */

static int port_expect(struct pl_port *p, int worker, struct pl_why *why) {
    int rc = pl_port_check_worker(worker, p->n_workers, false, why);
    if (rc) return rc;
    struct pl_seat *w = &p->seat[worker];
    bool was = false;
    bool there = !atomic_compare_exchange_strong(&w->taken, &was, true) &&
                 (p->processes || pl_port_is_joined(p, worker));
    rc = pl_port_check_worker(worker, p->n_workers, there, why);
    if (rc) return rc;
    if (p->memory.areas && pl_areas_renew(p->memory.areas, worker))
        rc = pl_fail(why, PL_ENOMEM, "out of memory for worker %d", worker + 1);
    if (!rc && p->liveness) rc = pl_liveness_expect(p->liveness, worker, why);
    if (!rc) atomic_store(&w->offered, worker >= p->starts);
    w->expected = rc == PL_OK;
    if (rc) atomic_store(&w->taken, false);
    return rc;
}

static void port_made(struct pl_port *p, int worker) {
    if (p->liveness) pl_liveness_made(p->liveness, worker);
}

static int port_attach(struct pl_port *p, int worker, struct pl_link **out) {
    struct pl_segment *segment = &p->memory.segment;
    const struct pl_shape *shape = &p->memory.shape;
    struct pl_link_conf conf = {.shape = shape,
                                .at = segment->at,
                                .worker = worker,
                                .owner = atomic_load(&p->seat[worker].owner),
                                .sock = -1,
                                .segment = {.fd = -1}};
    if (!atomic_load(&p->seat[worker].taken)) return PL_EUSAGE;
    if (p->liveness) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        conf.sock = pl_liveness_close_in_child(p->liveness, worker);
        if (conf.sock < 0) return PL_EUSAGE;
        segment->fd = -1;
        if (p->memory.areas)
            pl_areas_close_in_child(p->memory.areas);
        else
            pl_segment_protect(segment, shape->versions, shape->versions_end - shape->versions);
        pl_process_keep_only(conf.sock);
    } else {
        conf.left = port_gone;
        conf.ctx = p;
    }
    return pl_link_open(&conf, out);
}

#define PORT_OPS                                                                                   \
    .shutdown = port_shutdown, .close = port_close, .vector = port_vector, .tell = port_tell,      \
    .cancel = port_cancel, .holds = port_holds, .phase = port_phase, .news = pl_port_news,         \
    .wake = port_wake

#define START_OPS .expect = port_expect, .attach = port_attach, .made = port_made

static const struct pl_start_ops port_threads = {.processes = false, START_OPS};
static const struct pl_start_ops port_processes = {.processes = true, START_OPS};
static const struct pl_shared_ops port_shared = {.answered = port_answered};
static const struct pl_client_ops port_clients = {.offer = pl_port_offer,
                                                  .is_client = pl_port_is_client,
                                                  .show = pl_port_show,
                                                  .hang_up = pl_port_hang_up,
                                                  .final = pl_port_final};

#define LINK_OPS                                                                                   \
    .pull = pl_link_pull, .cancelled = pl_link_cancelled, .sleep = pl_link_sleep,                  \
    .push = pl_link_push, .detach = pl_link_detach

const struct pl_transport pl_inproc = {.name = "inproc",
                                       .brief = "workers are threads of the server",
                                       .port = {.open = port_open_inproc, PORT_OPS},
                                       .link = {LINK_OPS},
                                       .start = &port_threads,
                                       .shared = &port_shared};

const struct pl_transport pl_shm = {.name = "shm",
                                    .brief = "workers are processes of the same machine, over "
                                             "shared memory",
                                    .port = {.open = shm_open_port, PORT_OPS},
                                    .link = {LINK_OPS},
                                    .start = &port_processes,
                                    .shared = &port_shared,
                                    .clients = &port_clients,
                                    .join = &pl_shm_join};
