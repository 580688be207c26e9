#include "transport/link.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/segment.h"
#include "transport/liveness.h"

struct pl_link {
    struct pl_shape shape;
    char *at; /* the segment */
    struct pl_head *head;
    struct pl_mailbox *mailbox;
    struct pl_cancel cancel; /* the flag is in the box */
    int worker, sock;
    unsigned owner;
    void (*left)(void *ctx, int worker);
    void *ctx;
    struct pl_segment segment; /* of a guest, who mapped it */

    struct pl_summand summand[PL_TERMS]; /* of the order that was pulled */
    uint64_t task;                       /* that was pulled and not answered; 0: none */
    uint64_t answered;                   /* the last that was */
    uint64_t pulled_ns, looked_ns;
    bool lost; /* the server is gone */
};

static void link_phase(struct pl_link *l, enum pl_phase phase) {
    atomic_store_explicit(&l->mailbox->phase, (unsigned)phase, memory_order_relaxed);
}

static void link_ring(struct pl_link *l) {
    atomic_fetch_or(&l->head->ready[l->worker / 64], UINT64_C(1) << (l->worker % 64));
    if (atomic_load(&l->head->asleep)) pl_futex_ring(&l->head->wake_server);
}

int pl_link_open(const struct pl_link_conf *conf, struct pl_link **out) {
    struct pl_link *l = calloc(1, sizeof *l);
    if (!l) return PL_ENOMEM;
    l->shape = *conf->shape;
    l->at = conf->at;
    l->head = conf->at;
    l->mailbox = (struct pl_mailbox *)(void *)(l->at + l->shape.boxes) + conf->worker;
    l->cancel.flag = &l->mailbox->cancel;
    l->worker = conf->worker;
    l->sock = conf->sock;
    l->owner = conf->owner;
    l->left = conf->left;
    l->ctx = conf->ctx;
    l->pulled_ns = l->looked_ns = pl_now_ns();
    link_phase(l, PL_PHASE_WAITING);
    atomic_store(&l->mailbox->here, l->owner);
    link_ring(l);
    *out = l;
    return PL_OK;
}

int pl_shm_connect(const char *path, struct pl_link **out, int *worker, size_t *dim,
                   struct pl_why *why) {
    struct pl_greeting g;
    struct pl_segment segment;
    int rc = pl_liveness_dial(path, &g, why);
    if (rc) return rc;
    rc = pl_segment_map(g.segment, g.shape.size, &segment);
    if (rc) {
        close(g.sock);
        return pl_fail(why, rc, "the memory of the server at '%.200s' cannot be mapped: %zu bytes",
                       path, g.shape.size);
    }
    pl_segment_protect(&segment, g.shape.versions, g.shape.slots - g.shape.versions);
    struct pl_link_conf conf = {
        .shape = &g.shape, .at = segment.at, .worker = g.worker, .owner = g.owner, .sock = g.sock};
    rc = pl_link_open(&conf, out);
    if (rc) {
        pl_segment_free(&segment);
        close(g.sock);
        return pl_fail(why, rc, "out of memory");
    }
    (*out)->segment = segment;
    *worker = g.worker;
    *dim = g.shape.dim;
    return PL_OK;
}

void pl_link_detach(struct pl_link *l) {
    if (!l) return;
    struct pl_link was = *l;
    atomic_store(&l->mailbox->held, 0);
    link_phase(l, PL_PHASE_AWAY);
    free(l);
    pl_segment_free(&was.segment);
    if (was.sock >= 0) close(was.sock);
    if (was.left) was.left(was.ctx, was.worker);
}

/* --- orders ------------------------------------------------------------------------------ */

/* The run is over, or there is no server any more; asks the socket now and then. */
static bool link_over(struct pl_link *l, uint64_t now) {
    if (l->sock >= 0 && !l->lost && now - l->looked_ns >= PL_LOOK_NS) {
        l->looked_ns = now;
        l->lost = pl_liveness_lost(l->sock);
    }
    return l->lost || atomic_load(&l->head->shutdown);
}

/* Where vector number 0 … n-1 of those that begin at `from` lies; NULL for an offset of none. */
static float *link_vector(const struct pl_link *l, uint64_t offset, size_t from, uint64_t n) {
    if (offset < from) return NULL;
    uint64_t i = (offset - from) / l->shape.stride;
    if (i >= n || i * l->shape.stride != offset - from) return NULL;
    return (float *)(void *)(l->at + offset);
}

/* Reads the summands of an order; false where they cannot be. */
static bool link_sum(struct pl_link *l, struct pl_order *o) {
    struct pl_mailbox_sum *p = &l->mailbox->sum;
    const struct pl_shape *s = &l->shape;
    uint64_t n = atomic_load(&p->n), base = atomic_load(&p->base);
    if (n < 1 || n > PL_TERMS || (base == 0 && n != 1)) return false;
    for (uint64_t i = 0; i < n; i++) {
        l->summand[i] =
            (struct pl_summand){.v = link_vector(l, atomic_load(&p->at[i]), s->slots, s->n_slots),
                                .c = pl_of_bits(atomic_load(&p->c[i])),
                                .writer = -1};
        if (!l->summand[i].v || !isfinite(l->summand[i].c)) return false;
    }
    o->n_summands = (int)n;
    o->summand = l->summand;
    o->base = base ? link_vector(l, base, s->slots, s->n_slots) : NULL;
    o->w = o->base ? o->base : o->summand[0].v;
    return base == 0 || o->base;
}

/* What a look at the order can come to: nothing to do, an order, or it changed meanwhile. */
enum link_look { LINK_NOTHING, LINK_ORDER, LINK_CHANGED };

/* An order is held first and then looked at again: if nothing has changed by then, the server knows
 * that it is held. A cancel flag that is up by then is that of an order before, and the next look
 * takes it down; or it is that of this order, and the next look finds it void. */
static enum link_look link_look(struct pl_link *l, struct pl_order *o) {
    struct pl_mailbox *b = l->mailbox;
    const struct pl_shape *s = &l->shape;
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    atomic_store(&b->cancel, false);
    if (!pl_seqlock_read(&b->order, word, &seq)) return LINK_NOTHING;
    uint64_t task = word[PL_ORDER_TASK];
    if (task == 0 || task == l->answered) return LINK_NOTHING;
    *o = (struct pl_order){.task = task,
                           .version = word[PL_ORDER_VERSION],
                           .lr = pl_of_bits(word[PL_ORDER_LR]),
                           .acked = word[PL_ORDER_ACKED],
                           .applied = word[PL_ORDER_APPLIED],
                           .part = word[PL_ORDER_PART],
                           .w = link_vector(l, word[PL_ORDER_W], s->versions, s->n_versions),
                           .out = link_vector(l, word[PL_ORDER_OUT], s->slots, s->n_slots)};
    if (word[PL_ORDER_W] == 0 && !link_sum(l, o)) return LINK_NOTHING;
    if (!o->w || !o->out) return LINK_NOTHING;
    atomic_store(&b->held, task);
    if (atomic_load(&b->order.seq) == seq && !atomic_load(&b->cancel)) {
        l->task = task;
        return LINK_ORDER;
    }
    atomic_store(&b->held, 0);
    return LINK_CHANGED;
}

int pl_link_pull(struct pl_link *l, struct pl_order *out) {
    struct pl_mailbox *b = l->mailbox;
    link_phase(l, PL_PHASE_WAITING);
    atomic_store(&b->held, 0);
    l->task = 0;
    uint64_t now = pl_now_ns();
    for (;;) {
        unsigned bell = atomic_load(&b->wake_worker);
        enum link_look found = link_look(l, out);
        if (link_over(l, now)) break; /* after the look, which took down the cancel flag */
        if (found == LINK_ORDER) {
            l->pulled_ns = now;
            link_phase(l, PL_PHASE_COMPUTING);
            return PL_OK;
        }
        if (found == LINK_NOTHING) now = pl_sleep_on(&b->wake_worker, bell, now, PL_FOREVER);
    }
    atomic_store(&b->held, 0);
    l->task = 0;
    return PL_ECANCELLED;
}

const struct pl_cancel *pl_link_cancelled(const struct pl_link *l) {
    return &l->cancel;
}

void pl_link_base(struct pl_link *l) {
    atomic_store(&l->mailbox->based, l->task);
}

int pl_link_sleep(struct pl_link *l, uint64_t ns) {
    struct pl_mailbox *b = l->mailbox;
    uint64_t now = pl_now_ns(), end = pl_until(now, ns);
    int rc = PL_OK;
    link_phase(l, PL_PHASE_SLEEPING);
    for (;;) {
        unsigned bell = atomic_load(&b->wake_worker);
        if (atomic_load(&b->cancel) || link_over(l, now)) rc = PL_ECANCELLED;
        if (rc || now >= end) break;
        now = pl_sleep_on(&b->wake_worker, bell, now, end);
    }
    link_phase(l, PL_PHASE_COMPUTING);
    return rc;
}

/* What was held is let go before the result is there to be seen. */
void pl_link_push(struct pl_link *l, const struct pl_result *r) {
    uint64_t word[PL_SEQLOCK_WORDS] = {
        [PL_RESULT_OWNER] = l->owner,
        [PL_RESULT_TASK] = r->task,
        [PL_RESULT_SIZE] = (uint64_t)r->defect << 32 | r->samples,
        [PL_RESULT_LOSS] = pl_bits_of(r->loss),
        [PL_RESULT_PULLED] = l->pulled_ns,
        [PL_RESULT_PUSHED] = pl_now_ns(),
    };
    if (l->task) l->answered = l->task;
    l->task = 0;
    link_phase(l, PL_PHASE_WAITING);
    atomic_store(&l->mailbox->held, 0);
    pl_seqlock_write(&l->mailbox->result, word);
    link_ring(l);
}
