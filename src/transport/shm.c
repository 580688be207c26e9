#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/segment.h"
#include "transport/link.h"
#include "transport/liveness.h"
#include "transport/shm_layout.h"
#include "transport/transport.h"

/* What the server knows of a worker. Believed alone; what lies in the segment is a claim. */
struct seat {
    atomic_bool taken;   /* expected, or a guest: from then on until its PL_NEWS_GONE */
    atomic_uint owner;   /* number of the present owner, or of the next one */
    bool expected, here; /* by expect(); PL_NEWS_JOINED is on its way or was given */
    bool leaving;        /* PL_NEWS_GONE is on its way */
    uint64_t task;       /* of the latest order; 0: none, or it was cancelled */
    unsigned seq;        /* of the result that was read last */
};

struct pl_port {
    bool processes;
    struct pl_shape shape;
    struct pl_segment segment;
    struct pl_head *head;
    struct pl_mailbox *mailbox; /* [n_workers] */
    struct seat *seat;
    int n_workers, n_words; /* words of bits, one per worker */
    size_t n_versions, n_slots;
    struct pl_liveness *liveness; /* NULL where workers are threads */

    _Atomic uint64_t *gone; /* [n_words] set by the watcher, or by detach() of a thread */
    atomic_bool woken;
    uint64_t opened_ns, looked_ns; /* looked: at all boxes */

    struct pl_news *queue; /* [3 * n_workers] what the last look found */
    int next, n_queued;
};

/* --- opening ----------------------------------------------------------------------------- */

static void port_close(struct pl_port *p);

/* Whatever the server's own threads have to tell. */
static void port_ring(struct pl_port *p) {
    pl_futex_ring(&p->head->wake_server);
}

static void port_gone(void *ctx, int worker) {
    struct pl_port *p = ctx;
    atomic_fetch_or(&p->gone[worker / 64], UINT64_C(1) << (worker % 64));
    port_ring(p);
}

static int port_seat(void *ctx, unsigned *owner) {
    struct pl_port *p = ctx;
    for (int w = 0; w < p->n_workers; w++) {
        bool taken = false;
        if (!atomic_compare_exchange_strong(&p->seat[w].taken, &taken, true)) continue;
        *owner = atomic_load(&p->seat[w].owner);
        return w;
    }
    return -1;
}

static int port_allocate(struct pl_port *p, struct pl_why *why) {
    size_t n = (size_t)p->n_workers;
    p->n_words = (p->n_workers + 63) / 64;
    p->seat = calloc(n, sizeof *p->seat);
    p->gone = calloc((size_t)p->n_words, sizeof *p->gone);
    p->queue = calloc(3 * n, sizeof *p->queue);
    if (!p->seat || !p->gone || !p->queue ||
        pl_segment_new(p->shape.size, p->processes, &p->segment))
        return pl_fail(why, PL_ENOMEM,
                       "no room for %d workers, %llu versions and %llu slots of %llu parameters "
                       "each",
                       p->n_workers, (unsigned long long)p->shape.n_versions,
                       (unsigned long long)p->shape.n_slots, (unsigned long long)p->shape.dim);
    p->head = p->segment.at;
    p->mailbox = (struct pl_mailbox *)(void *)((char *)p->segment.at + p->shape.boxes);
    for (size_t w = 0; w < n; w++) atomic_store(&p->seat[w].owner, 1);
    return PL_OK;
}

static int port_open(const struct pl_port_conf *conf, bool processes, struct pl_port **out,
                     struct pl_why *why) {
    struct pl_shape shape = {.dim = conf->dim};
    if (conf->n_workers > 0) shape.n_workers = (uint64_t)conf->n_workers;
    if (conf->n_versions > 0) shape.n_versions = (uint64_t)conf->n_versions;
    if (conf->n_slots > 0) shape.n_slots = (uint64_t)conf->n_slots;
    if (!pl_shape_of(&shape))
        return pl_fail(why, PL_EUSAGE,
                       "a port has 1 to 2^20 workers, versions and slots, of 1 to 2^38 parameters; "
                       "not %d, %d, %d, of %zu",
                       conf->n_workers, conf->n_versions, conf->n_slots, conf->dim);
    struct pl_port *p = calloc(1, sizeof *p);
    if (!p) return pl_fail(why, PL_ENOMEM, "out of memory");
    p->processes = processes;
    p->shape = shape;
    p->n_workers = conf->n_workers;
    p->opened_ns = p->looked_ns = pl_now_ns();
    int rc = port_allocate(p, why);
    if (!rc && processes) {
        struct pl_liveness_conf liveness = {.n_workers = conf->n_workers,
                                            .listen = conf->listen,
                                            .segment = p->segment.fd,
                                            .shape = shape,
                                            .seat = port_seat,
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

static int inproc_open_port(const struct pl_port_conf *conf, struct pl_port **out,
                            struct pl_why *why) {
    if (conf->listen)
        return pl_fail(why, PL_EUSAGE,
                       "workers that are threads cannot come from outside; use shm to listen");
    return port_open(conf, false, out, why);
}

static void port_close(struct pl_port *p) {
    if (!p) return;
    pl_liveness_close(p->liveness);
    pl_segment_free(&p->segment);
    free(p->seat);
    free(p->gone);
    free(p->queue);
    free(p);
}

static float *port_version(struct pl_port *p) {
    if (p->n_versions == p->shape.n_versions) return NULL;
    size_t at = p->shape.versions + p->n_versions++ * p->shape.stride;
    return (float *)(void *)((char *)p->segment.at + at);
}

static float *port_slot(struct pl_port *p) {
    if (p->n_slots == p->shape.n_slots) return NULL;
    size_t at = p->shape.slots + p->n_slots++ * p->shape.stride;
    return (float *)(void *)((char *)p->segment.at + at);
}

/* --- orders ------------------------------------------------------------------------------ */

static bool seat_known(const struct seat *s) {
    return s->expected || s->here;
}

static void port_order(struct pl_port *p, int worker, const struct pl_order *o) {
    uint64_t word[PL_SEQLOCK_WORDS] = {0};
    p->seat[worker].task = o ? o->task : 0;
    if (o) {
        word[PL_ORDER_TASK] = o->task;
        word[PL_ORDER_VERSION] = o->version;
        word[PL_ORDER_LR] = pl_bits_of(o->lr);
        word[PL_ORDER_W] = o->w ? (uint64_t)((const char *)o->w - (char *)p->segment.at) : 0;
        word[PL_ORDER_ACKED] = o->acked;
        word[PL_ORDER_APPLIED] = o->applied;
        word[PL_ORDER_PART] = o->part;
        word[PL_ORDER_OUT] = (uint64_t)((char *)o->out - (char *)p->segment.at);
    }
    pl_seqlock_write(&p->mailbox[worker].order, word);
}

static uint64_t port_offset(const struct pl_port *p, const float *vector) {
    return vector ? (uint64_t)((const char *)vector - (char *)p->segment.at) : 0;
}

/* The order is void while its summands are written. */
static void port_sum(struct pl_port *p, int worker, const struct pl_order *o) {
    struct pl_mailbox_sum *sum = &p->mailbox[worker].sum;
    port_order(p, worker, NULL);
    atomic_store(&sum->n, (uint64_t)o->n_summands);
    atomic_store(&sum->base, port_offset(p, o->base));
    for (int i = 0; i < o->n_summands && i < PL_TERMS; i++) {
        atomic_store(&sum->at[i], port_offset(p, o->summand[i].v));
        atomic_store(&sum->c[i], pl_bits_of(o->summand[i].c));
    }
}

static void port_tell(struct pl_port *p, int worker, const struct pl_order *o) {
    if (!seat_known(&p->seat[worker])) return;
    if (o->n_summands > 0) port_sum(p, worker, o);
    port_order(p, worker, o);
    pl_futex_ring(&p->mailbox[worker].wake_worker);
}

/* First void, then the flag: a worker clears the flag before it reads, so it finds either. */
static void port_cancel(struct pl_port *p, int worker) {
    if (!seat_known(&p->seat[worker])) return;
    port_order(p, worker, NULL);
    atomic_store(&p->mailbox[worker].cancel, true);
    pl_futex_ring(&p->mailbox[worker].wake_worker);
}

/* A worker says what it holds, then looks whether the order is still the same; the server changes
 * the order, then looks what is held. One of the two sees the other. */
static uint64_t port_holds(const struct pl_port *p, int worker) {
    const struct seat *s = &p->seat[worker];
    if (!seat_known(s)) return 0;
    uint64_t held = atomic_load(&p->mailbox[worker].held);
    return held != s->task ? held : 0;
}

static uint64_t port_based(const struct pl_port *p, int worker) {
    return seat_known(&p->seat[worker]) ? atomic_load(&p->mailbox[worker].based) : 0;
}

static bool port_came(const struct pl_port *p, int worker) {
    return atomic_load(&p->mailbox[worker].here) == atomic_load(&p->seat[worker].owner);
}

static enum pl_phase port_phase(struct pl_port *p, int worker) {
    if (!seat_known(&p->seat[worker]) || !port_came(p, worker)) return PL_PHASE_AWAY;
    unsigned phase = atomic_load_explicit(&p->mailbox[worker].phase, memory_order_relaxed);
    return phase <= PL_PHASE_COMPUTING ? (enum pl_phase)phase : PL_PHASE_AWAY;
}

/* --- news -------------------------------------------------------------------------------- */

/* What a worker claims, made harmless: a result that cannot be is one that was not computed. */
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
    return (struct pl_result){
        .task = r.task, .defect = PL_NOT_COMPUTED, .loss = NAN, .pulled_ns = now, .pushed_ns = now};
}

static void port_enqueue(struct pl_port *p, enum pl_news_kind kind, int worker,
                         const struct pl_result *r) {
    struct pl_news *n = &p->queue[p->n_queued++];
    *n = (struct pl_news){.kind = kind, .worker = worker};
    if (r) n->result = *r;
}

/* The seat is free, and nothing in the box is left for its next owner. */
static void port_vacate(struct pl_port *p, int worker) {
    struct seat *s = &p->seat[worker];
    struct pl_mailbox *b = &p->mailbox[worker];
    port_order(p, worker, NULL);
    atomic_store(&b->cancel, false);
    atomic_store(&b->here, 0);
    atomic_store(&b->phase, PL_PHASE_AWAY);
    atomic_store(&b->held, 0);
    atomic_store(&b->based, 0);
    atomic_store(&b->result.seq, 0);
    s->seq = 0;
    s->expected = s->here = s->leaving = false;
    unsigned owner = atomic_load(&s->owner) + 1;
    atomic_store(&s->owner, owner ? owner : 1);
    atomic_store(&s->taken, false);
}

static void port_look_at(struct pl_port *p, int worker, bool gone) {
    struct seat *s = &p->seat[worker];
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    if (!atomic_load(&s->taken) || s->leaving) return;
    if (!s->here && port_came(p, worker)) {
        s->here = true;
        port_enqueue(p, PL_NEWS_JOINED, worker, NULL);
    }
    if (s->here && pl_seqlock_read(&p->mailbox[worker].result, word, &seq) && seq != s->seq) {
        s->seq = seq;
        if (word[PL_RESULT_OWNER] == atomic_load(&s->owner)) {
            struct pl_result r = port_judge(p, word);
            port_enqueue(p, PL_NEWS_RESULT, worker, &r);
        }
    }
    if (!gone) return;
    if (seat_known(s)) {
        s->leaving = true;
        port_enqueue(p, PL_NEWS_GONE, worker, NULL);
    } else {
        port_vacate(p, worker); /* a guest that nobody has heard of */
    }
}

static uint64_t news_time(const struct pl_news *n) {
    return n->kind == PL_NEWS_JOINED ? 0
           : n->kind == PL_NEWS_GONE ? PL_FOREVER
                                     : n->result.pushed_ns;
}

static int news_compare(const void *a, const void *b) {
    const struct pl_news *x = a, *y = b;
    uint64_t s = news_time(x), t = news_time(y);
    if (s != t) return s < t ? -1 : 1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

static bool port_look(struct pl_port *p, uint64_t now) {
    bool all = now - p->looked_ns >= PL_LOOK_NS;
    if (all) p->looked_ns = now;
    p->next = p->n_queued = 0;
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
    if (p->n_queued > 1) qsort(p->queue, (size_t)p->n_queued, sizeof *p->queue, news_compare);
    return p->n_queued > 0;
}

/* From here on a worker that has something to tell rings; what it told before is found by another
 * look. Returns what to sleep on. */
static unsigned port_doze(struct pl_port *p) {
    unsigned door = atomic_load(&p->head->wake_server);
    atomic_store(&p->head->asleep, 1);
    return door;
}

static bool port_wait(struct pl_port *p, uint64_t wait_ns) {
    uint64_t now = pl_now_ns(), end = pl_until(now, wait_ns);
    bool found = port_look(p, now);
    while (!found && now < end) {
        unsigned door = port_doze(p);
        if ((found = port_look(p, now)) || atomic_load(&p->woken)) break;
        now = pl_sleep_on(&p->head->wake_server, door, now, end);
        atomic_store(&p->head->asleep, 0);
        if ((found = port_look(p, now)) || atomic_load(&p->woken)) break;
    }
    atomic_store_explicit(&p->head->asleep, 0, memory_order_relaxed);
    return found;
}

static void port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out) {
    *out = (struct pl_news){.kind = PL_NEWS_NONE, .worker = -1};
    bool found = p->next < p->n_queued;
    if (!found && !atomic_load(&p->woken)) found = port_wait(p, wait_ns);
    if (atomic_exchange(&p->woken, false) || !found) return;
    *out = p->queue[p->next++];
    if (out->kind == PL_NEWS_GONE) port_vacate(p, out->worker);
}

static void port_wake(struct pl_port *p) {
    atomic_store(&p->woken, true);
    port_ring(p);
}

/* --- the end ----------------------------------------------------------------------------- */

/* A thread that was expected may never have been made; a process that was is seen by its socket. */
static bool port_anybody(const struct pl_port *p) {
    for (int w = 0; w < p->n_workers; w++) {
        bool gone = atomic_load(&p->gone[w / 64]) >> (w % 64) & 1;
        if (atomic_load(&p->seat[w].taken) && !p->seat[w].leaving && !gone &&
            (p->processes || port_came(p, w)))
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
        unsigned door = port_doze(p);
        if (!port_anybody(p)) break;
        now = pl_sleep_on(&p->head->wake_server, door, now, end);
    }
    atomic_store(&p->head->asleep, 0);
}

/* --- making workers ---------------------------------------------------------------------- */

static int port_expect(struct pl_port *p, int worker, struct pl_why *why) {
    if (worker < 0 || worker >= p->n_workers)
        return pl_fail(why, PL_EUSAGE, "there is no worker %d; there are 1 to %d", worker + 1,
                       p->n_workers);
    struct seat *s = &p->seat[worker];
    bool taken = false;
    if (!atomic_compare_exchange_strong(&s->taken, &taken, true) &&
        (p->processes || port_came(p, worker)))
        return pl_fail(why, PL_EUSAGE, "worker %d is there already", worker + 1);
    int rc = p->liveness ? pl_liveness_expect(p->liveness, worker, why) : PL_OK;
    s->expected = rc == PL_OK;
    if (rc) atomic_store(&s->taken, false);
    return rc;
}

static void port_made(struct pl_port *p, int worker) {
    if (p->liveness) pl_liveness_made(p->liveness, worker);
}

static int port_attach(struct pl_port *p, int worker, struct pl_link **out) {
    struct pl_link_conf conf = {.shape = &p->shape,
                                .at = p->segment.at,
                                .worker = worker,
                                .owner = atomic_load(&p->seat[worker].owner),
                                .sock = -1};
    if (!atomic_load(&p->seat[worker].taken)) return PL_EUSAGE;
    if (p->liveness) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        conf.sock = pl_liveness_keep(p->liveness, worker);
        if (conf.sock < 0) return PL_EUSAGE;
        close(p->segment.fd);
        p->segment.fd = -1;
        pl_segment_protect(&p->segment, p->shape.versions, p->shape.slots - p->shape.versions);
    } else {
        conf.left = port_gone;
        conf.ctx = p;
    }
    return pl_link_open(&conf, out);
}

#define PORT_OPS                                                                                   \
    .shutdown = port_shutdown, .close = port_close, .version = port_version, .slot = port_slot,    \
    .tell = port_tell, .cancel = port_cancel, .based = port_based, .holds = port_holds,            \
    .phase = port_phase, .news = port_news, .wake = port_wake, .expect = port_expect,              \
    .attach = port_attach, .made = port_made

#define LINK_OPS                                                                                   \
    .pull = pl_link_pull, .cancelled = pl_link_cancelled, .base = pl_link_base,                    \
    .sleep = pl_link_sleep, .push = pl_link_push, .detach = pl_link_detach

const struct pl_transport pl_inproc = {.name = "inproc",
                                       .brief = "workers are threads of the server",
                                       .processes = false,
                                       .shared = true,
                                       .port = {.open = inproc_open_port, PORT_OPS},
                                       .link = {LINK_OPS}};

const struct pl_transport pl_shm = {.name = "shm",
                                    .brief = "workers are processes of the same machine, over "
                                             "shared memory",
                                    .processes = true,
                                    .shared = true,
                                    .port = {.open = shm_open_port, PORT_OPS},
                                    .link = {LINK_OPS}};
