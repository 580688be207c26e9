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
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/link.h"
#include "transport/liveness.h"
#include "transport/port.h"

/* What the server knows about a worker. Only this is trusted; the segment holds claims. */
struct port_worker {
    atomic_bool taken;     /* expected or connected, until its PL_NEWS_GONE was delivered */
    atomic_uint owner;     /* number of the present owner, or of the next one */
    bool expected, joined; /* by expect(); PL_NEWS_JOINED is queued or was delivered */
    bool leaving;          /* PL_NEWS_GONE is queued */
    uint64_t task;         /* of the latest order; 0: none, or it was cancelled */
    uint64_t base_ready;   /* task of the base that was read last */
    unsigned seq;          /* of the result that was read last */
};

struct pl_port {
    bool processes;
    struct pl_port_memory memory;
    struct pl_head *head;
    struct pl_mailbox *mailbox; /* [n_workers] */
    struct port_worker *worker;
    int n_workers, n_words;       /* words of bits, one per worker */
    struct pl_liveness *liveness; /* NULL if workers are threads */

    _Atomic uint64_t *gone; /* [n_words] set by the watcher, or by detach() of a thread */
    atomic_bool woken;
    uint64_t opened_ns, looked_ns; /* looked: at all mailboxes */

    struct pl_port_queue queue; /* what the last look found */
};

/* --- opening ----------------------------------------------------------------------------- */

static void port_close(struct pl_port *p);

static void port_wake_server(struct pl_port *p) {
    pl_futex_ring(&p->head->wake_server);
}

static void port_gone(void *ctx, int worker) {
    struct pl_port *p = ctx;
    atomic_fetch_or(&p->gone[worker / 64], UINT64_C(1) << (worker % 64));
    port_wake_server(p);
}

/* Gives the lowest free number to a worker that connects. */
static int port_admit(void *ctx, unsigned *owner) {
    struct pl_port *p = ctx;
    for (int w = 0; w < p->n_workers; w++) {
        bool taken = false;
        if (!atomic_compare_exchange_strong(&p->worker[w].taken, &taken, true)) continue;
        *owner = atomic_load(&p->worker[w].owner);
        return w;
    }
    return -1;
}

static int port_allocate(struct pl_port *p, const struct pl_port_conf *conf, struct pl_why *why) {
    int rc = pl_port_memory_new(conf, p->processes, &p->memory, why);
    if (rc) return rc;
    size_t n = (size_t)conf->n_workers;
    p->n_workers = conf->n_workers;
    p->n_words = (p->n_workers + 63) / 64;
    p->worker = calloc(n, sizeof *p->worker);
    p->gone = calloc((size_t)p->n_words, sizeof *p->gone);
    /* of each worker: joined, a base, a result, gone */
    if (!pl_port_queue_new(&p->queue, 4 * p->n_workers) || !p->worker || !p->gone)
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", p->n_workers);
    char *at = p->memory.segment.at;
    p->head = (struct pl_head *)(void *)at;
    p->mailbox = (struct pl_mailbox *)(void *)(at + p->memory.shape.mailboxes);
    for (size_t w = 0; w < n; w++) atomic_store(&p->worker[w].owner, 1);
    return PL_OK;
}

static int port_open(const struct pl_port_conf *conf, bool processes, struct pl_port **out,
                     struct pl_why *why) {
    struct pl_port *p = calloc(1, sizeof *p);
    if (!p) return pl_fail(why, PL_ENOMEM, "out of memory");
    p->processes = processes;
    p->opened_ns = p->looked_ns = pl_now_ns();
    int rc = port_allocate(p, conf, why);
    if (!rc && processes) {
        struct pl_liveness_conf liveness = {.n_workers = conf->n_workers,
                                            .listen = conf->listen,
                                            .segment = p->memory.segment.fd,
                                            .shape = p->memory.shape,
                                            .admit = port_admit,
                                            .gone = port_gone,
                                            .ctx = p};
        rc = pl_liveness_open(&liveness, &p->liveness, why);
    }
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
    if (conf->listen)
        return pl_fail(why, PL_EUSAGE,
                       "workers that are threads cannot connect from outside; use transport shm to "
                       "listen");
    return port_open(conf, false, out, why);
}

static void port_close(struct pl_port *p) {
    if (!p) return;
    pl_liveness_close(p->liveness);
    pl_segment_free(&p->memory.segment);
    free(p->worker);
    free(p->gone);
    free(p->queue.news);
    free(p);
}

static float *port_vector(struct pl_port *p, int writer) {
    return pl_port_memory_vector(&p->memory, writer);
}

/* --- orders ------------------------------------------------------------------------------ */

static bool port_knows_worker(const struct port_worker *w) {
    return w->expected || w->joined;
}

static uint64_t port_offset(const struct pl_port *p, const float *vector) {
    return vector ? (uint64_t)((const char *)vector - (char *)p->memory.segment.at) : 0;
}

/* o is NULL: the order is void. */
static void port_write_order(struct pl_port *p, int worker, const struct pl_order *o) {
    uint64_t word[PL_SEQLOCK_WORDS] = {0};
    p->worker[worker].task = o ? o->task : 0;
    if (o) {
        word[PL_ORDER_TASK] = o->task;
        word[PL_ORDER_INPUT] = pl_order_is_plain(o) ? port_offset(p, o->input[0].v) : 0;
        word[PL_ORDER_OUT] = port_offset(p, o->out);
        word[PL_ORDER_FLAGS] = (uint64_t)o->n_ranges << 1 | o->stays;
        for (int i = 0; i < PL_RANGES && i < o->n_ranges; i++) {
            word[PL_ORDER_RANGE + 2 * i] = o->range[i].from;
            word[PL_ORDER_RANGE + 2 * i + 1] = o->range[i].n;
        }
        for (int i = 0; i < PL_NOTE_WORDS; i++) word[PL_ORDER_NOTE + i] = o->note[i];
    }
    pl_seqlock_write(&p->mailbox[worker].order, word);
}

/* The order is void while its inputs are written. */
static void port_write_inputs(struct pl_port *p, int worker, const struct pl_order *o) {
    struct pl_mailbox_inputs *inputs = &p->mailbox[worker].inputs;
    port_write_order(p, worker, NULL);
    atomic_store(&inputs->n, (uint64_t)o->n_inputs);
    atomic_store(&inputs->base, port_offset(p, o->base));
    for (int i = 0; i < o->n_inputs && i < PL_TERMS; i++) {
        atomic_store(&inputs->at[i], port_offset(p, o->input[i].v));
        atomic_store(&inputs->c[i], pl_bits_of(o->input[i].c));
    }
}

static void port_tell(struct pl_port *p, int worker, const struct pl_order *o) {
    if (!port_knows_worker(&p->worker[worker])) return;
    if (!pl_order_is_plain(o)) port_write_inputs(p, worker, o);
    port_write_order(p, worker, o);
    pl_futex_ring(&p->mailbox[worker].wake_worker);
}

/* First void, then the flag: a worker clears the flag before it reads, so it finds either. */
static void port_cancel(struct pl_port *p, int worker) {
    if (!port_knows_worker(&p->worker[worker])) return;
    port_write_order(p, worker, NULL);
    atomic_store(&p->mailbox[worker].cancel, true);
    pl_futex_ring(&p->mailbox[worker].wake_worker);
}

/* Vectors are where the server reads them. */
static int port_fetch(struct pl_port *p, const struct pl_input *what, int n) {
    (void)p;
    (void)what;
    (void)n;
    return PL_OK;
}

/* A worker writes what it holds, then checks whether the order is still the same; the server
 * changes the order, then checks what is held. One of the two sees the other. */
static uint64_t port_holds(const struct pl_port *p, int worker) {
    const struct port_worker *w = &p->worker[worker];
    if (!port_knows_worker(w)) return 0;
    uint64_t held = atomic_load(&p->mailbox[worker].held);
    return held != w->task ? held : 0;
}

static bool port_has_joined(const struct pl_port *p, int worker) {
    return atomic_load(&p->mailbox[worker].joined) == atomic_load(&p->worker[worker].owner);
}

static enum pl_phase port_phase(struct pl_port *p, int worker) {
    if (!port_knows_worker(&p->worker[worker]) || !port_has_joined(p, worker)) return PL_PHASE_AWAY;
    unsigned phase = atomic_load_explicit(&p->mailbox[worker].phase, memory_order_relaxed);
    return phase <= PL_PHASE_COMPUTING ? (enum pl_phase)phase : PL_PHASE_AWAY;
}

/* --- news -------------------------------------------------------------------------------- */

/* What a worker claims; an implausible claim counts as a result that was not computed. */
static struct pl_result port_judge(const struct pl_port *p, const uint64_t *word) {
    uint64_t now = pl_now_ns(), defect = word[PL_RESULT_SIZE] >> 32;
    struct pl_result r = {.task = word[PL_RESULT_TASK],
                          .samples = (uint32_t)word[PL_RESULT_SIZE],
                          .loss = pl_of_bits(word[PL_RESULT_LOSS]),
                          .pulled_ns = word[PL_RESULT_PULLED],
                          .pushed_ns = word[PL_RESULT_PUSHED]};
    if (defect <= PL_NOT_COMPUTED && r.samples <= INT32_MAX && r.pulled_ns >= p->opened_ns &&
        r.pulled_ns <= r.pushed_ns && r.pushed_ns <= now) {
        r.defect = (enum pl_defect)defect;
        return r;
    }
    pl_port_spoil(&r);
    r.pulled_ns = r.pushed_ns = now;
    return r;
}

/* The number is free, and nothing in the mailbox is left for its next owner. */
static void port_vacate(struct pl_port *p, int worker) {
    struct port_worker *w = &p->worker[worker];
    struct pl_mailbox *b = &p->mailbox[worker];
    port_write_order(p, worker, NULL);
    atomic_store(&b->cancel, false);
    atomic_store(&b->joined, 0);
    atomic_store(&b->phase, PL_PHASE_AWAY);
    atomic_store(&b->held, 0);
    atomic_store(&b->base_ready, 0);
    atomic_store(&b->result.seq, 0);
    w->base_ready = 0;
    w->seq = 0;
    w->expected = w->joined = w->leaving = false;
    unsigned owner = atomic_load(&w->owner) + 1;
    atomic_store(&w->owner, owner ? owner : 1);
    atomic_store(&w->taken, false);
}

/* The base is read after the result, because a worker writes its base first. The queue is sorted
 * later. */
static void port_look_for_results(struct pl_port *p, int worker) {
    struct port_worker *w = &p->worker[worker];
    struct pl_mailbox *b = &p->mailbox[worker];
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    if (pl_seqlock_read(&b->result, word, &seq) && seq != w->seq) {
        w->seq = seq;
        if (word[PL_RESULT_OWNER] == atomic_load(&w->owner)) {
            struct pl_result r = port_judge(p, word);
            pl_port_enqueue(&p->queue, PL_NEWS_RESULT, worker, &r);
        }
    }
    struct pl_result base = {.task = atomic_load(&b->base_ready), .is_base = true};
    if (base.task != 0 && base.task != w->base_ready)
        pl_port_enqueue(&p->queue, PL_NEWS_BASE, worker, &base);
    w->base_ready = base.task;
}

static void port_look_at(struct pl_port *p, int worker, bool gone) {
    struct port_worker *w = &p->worker[worker];
    if (!atomic_load(&w->taken) || w->leaving) return;
    if (!w->joined && port_has_joined(p, worker)) {
        w->joined = true;
        pl_port_enqueue(&p->queue, PL_NEWS_JOINED, worker, NULL);
    }
    if (w->joined) port_look_for_results(p, worker);
    if (!gone) return;
    if (port_knows_worker(w)) {
        w->leaving = true;
        pl_port_enqueue(&p->queue, PL_NEWS_GONE, worker, NULL);
    } else {
        port_vacate(p, worker); /* it connected and left before it was announced */
    }
}

static uint64_t port_news_time(const struct pl_news *n) {
    switch (n->kind) {
    case PL_NEWS_RESULT: return n->result.pushed_ns;
    case PL_NEWS_GONE: return PL_FOREVER;
    default: return n->kind; /* JOINED, then BASE */
    }
}

static int port_news_compare(const void *a, const void *b) {
    const struct pl_news *x = a, *y = b;
    uint64_t s = port_news_time(x), t = port_news_time(y);
    if (s != t) return s < t ? -1 : 1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

/* The queue is empty. */
static bool port_look(struct pl_port *p, uint64_t now) {
    struct pl_port_queue *q = &p->queue;
    bool all = now - p->looked_ns >= PL_LOOK_NS;
    if (all) p->looked_ns = now;
    q->first = 0;
    for (int i = 0; i < p->n_words; i++) {
        /* first who is gone, then what they left */
        uint64_t gone = atomic_exchange(&p->gone[i], 0);
        uint64_t bits = gone | atomic_exchange(&p->head->ready[i], 0);
        if (all) bits = ~UINT64_C(0);
        for (; bits; bits &= bits - 1) {
            int bit = __builtin_ctzll(bits), worker = 64 * i + bit;
            if (worker >= p->n_workers) break;
            port_look_at(p, worker, gone >> bit & 1);
        }
    }
    if (q->n > 1) qsort(q->news, (size_t)q->n, sizeof *q->news, port_news_compare);
    return q->n > 0;
}

/* From here on a worker with news wakes the server; another look finds what was written before.
 * Returns the word's value to sleep on. */
static unsigned port_prepare_sleep(struct pl_port *p) {
    unsigned seen = atomic_load(&p->head->wake_server);
    atomic_store(&p->head->asleep, 1);
    return seen;
}

static void port_wait(struct pl_port *p, uint64_t wait_ns) {
    uint64_t now = pl_now_ns(), end = pl_until(now, wait_ns);
    bool found = port_look(p, now);
    while (!found && now < end) {
        unsigned seen = port_prepare_sleep(p);
        if (port_look(p, now) || atomic_load(&p->woken)) break;
        now = pl_sleep_on(&p->head->wake_server, seen, now, end);
        atomic_store(&p->head->asleep, 0);
        found = port_look(p, now) || atomic_load(&p->woken);
    }
    atomic_store_explicit(&p->head->asleep, 0, memory_order_relaxed);
}

static void port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out) {
    *out = (struct pl_news){.kind = PL_NEWS_NONE, .worker = -1};
    if (p->queue.n == 0 && !atomic_load(&p->woken)) port_wait(p, wait_ns);
    if (atomic_exchange(&p->woken, false) || !pl_port_dequeue(&p->queue, out)) return;
    if (out->kind == PL_NEWS_GONE) port_vacate(p, out->worker);
}

static void port_wake(struct pl_port *p) {
    atomic_store(&p->woken, true);
    port_wake_server(p);
}

/* --- shutting down ----------------------------------------------------------------------- */

/* A thread that was expected may never have been started; a process is seen by its socket. */
static bool port_has_workers(const struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++) {
        bool gone = atomic_load(&p->gone[w / 64]) >> (w % 64) & 1;
        if (atomic_load(&p->worker[w].taken) && !p->worker[w].leaving && !gone &&
            (p->processes || port_has_joined(p, w)))
            return true;
    }
    return false;
}

static void port_shutdown(struct pl_port *p, uint64_t wait_ns) {
    uint64_t now = pl_now_ns(), end = pl_until(now, wait_ns);
    atomic_store(&p->head->shutdown, 1);
    for (int w = 0; w < p->n_workers; w++) {
        atomic_store(&p->mailbox[w].cancel, true);
        pl_futex_ring(&p->mailbox[w].wake_worker);
    }
    while (now < end) {
        unsigned seen = port_prepare_sleep(p);
        if (!port_has_workers(p)) break;
        now = pl_sleep_on(&p->head->wake_server, seen, now, end);
    }
    atomic_store(&p->head->asleep, 0);
}

/* --- starting workers -------------------------------------------------------------------- */

static int port_expect(struct pl_port *p, int worker, struct pl_why *why) {
    int rc = pl_port_check_worker(worker, p->n_workers, false, why);
    if (rc) return rc;
    struct port_worker *w = &p->worker[worker];
    bool was = false;
    bool there = !atomic_compare_exchange_strong(&w->taken, &was, true) &&
                 (p->processes || port_has_joined(p, worker));
    rc = pl_port_check_worker(worker, p->n_workers, there, why);
    if (rc) return rc;
    if (p->liveness) rc = pl_liveness_expect(p->liveness, worker, why);
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
                                .owner = atomic_load(&p->worker[worker].owner),
                                .sock = -1};
    if (!atomic_load(&p->worker[worker].taken)) return PL_EUSAGE;
    if (p->liveness) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        conf.sock = pl_liveness_keep(p->liveness, worker);
        if (conf.sock < 0) return PL_EUSAGE;
        close(segment->fd);
        segment->fd = -1;
        pl_segment_protect(segment, shape->versions, shape->slots - shape->versions);
    } else {
        conf.left = port_gone;
        conf.ctx = p;
    }
    return pl_link_open(&conf, out);
}

#define PORT_OPS                                                                                   \
    .shutdown = port_shutdown, .close = port_close, .vector = port_vector, .tell = port_tell,      \
    .cancel = port_cancel, .fetch = port_fetch, .holds = port_holds, .phase = port_phase,          \
    .news = port_news, .wake = port_wake, .expect = port_expect, .attach = port_attach,            \
    .made = port_made

#define LINK_OPS                                                                                   \
    .pull = pl_link_pull, .cancelled = pl_link_cancelled, .sleep = pl_link_sleep,                  \
    .push = pl_link_push, .detach = pl_link_detach

const struct pl_transport pl_inproc = {.name = "inproc",
                                       .brief = "workers are threads of the server",
                                       .processes = false,
                                       .shared = true,
                                       .port = {.open = port_open_inproc, PORT_OPS},
                                       .link = {LINK_OPS}};

const struct pl_transport pl_shm = {.name = "shm",
                                    .brief = "workers are processes of the same machine, over "
                                             "shared memory",
                                    .processes = true,
                                    .shared = true,
                                    .port = {.open = shm_open_port, PORT_OPS},
                                    .link = {LINK_OPS}};
