/* News of a port over shared memory: what the server finds in the mailboxes, and what was said over
 * the sockets.
 *
 * Threads: the one that owns the port.
 *
 * Prefix: news_ */
#include <stdlib.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "transport/shm_port.h"

/* The tensors that a client's result does not have are copied, because it can still write there. */
static bool news_absent(struct pl_port *p, int worker, const uint64_t *word, struct pl_result *r) {
    struct pl_seat *w = &p->seat[worker];
    uint64_t n = word[PL_RESULT_ABSENT];
    if (n == 0) return true;
    if (n > PL_ABSENT_WORDS || !pl_port_is_client(p, worker)) return false;
    if (!w->absent && !(w->absent = calloc(PL_ABSENT_WORDS, sizeof *w->absent))) return false;
    struct pl_area_head *area = (struct pl_area_head *)pl_port_mailbox(p, worker);
    for (uint64_t i = 0; i < n; i++) w->absent[i] = atomic_load(&area->absent[i]);
    r->absent = w->absent;
    r->n_absent = (uint32_t)n;
    return true;
}

/* What a worker claims; an implausible claim counts as a result that was not computed. */
static struct pl_result news_judge(struct pl_port *p, int worker, const uint64_t *word) {
    uint64_t now = pl_now_ns(), defect = word[PL_RESULT_SIZE] >> 32;
    struct pl_result r = {.task = word[PL_RESULT_TASK],
                          .samples = (uint32_t)word[PL_RESULT_SIZE],
                          .loss = pl_of_bits(word[PL_RESULT_LOSS]),
                          .sets_lr = word[PL_RESULT_LR] != 0,
                          .lr = pl_of_bits(~word[PL_RESULT_LR]),
                          .tells_waits = word[PL_RESULT_WAIT] > 0,
                          .wait_ns = word[PL_RESULT_WAIT] - 1,
                          .pulled_ns = word[PL_RESULT_PULLED],
                          .pushed_ns = word[PL_RESULT_PUSHED]};
    if (defect <= PL_NOT_COMPUTED && r.samples <= INT32_MAX && r.pulled_ns >= p->opened_ns &&
        r.pulled_ns <= r.pushed_ns && r.pushed_ns <= now && news_absent(p, worker, word, &r)) {
        r.defect = (enum pl_defect)defect;
        return r;
    }
    pl_port_spoil(&r);
    r.pulled_ns = r.pushed_ns = now;
    return r;
}

/* The number is free, and nothing in the mailbox is left for its next owner. */
static void news_vacate(struct pl_port *p, int worker) {
    struct pl_seat *w = &p->seat[worker];
    struct pl_mailbox *b = pl_port_mailbox(p, worker);
    const uint64_t none[PL_SEQLOCK_WORDS] = {0};
    pl_port_write_order(p, worker, none);
    atomic_store(&b->cancel, false);
    atomic_store(&b->joined, 0);
    atomic_store(&b->phase, PL_PHASE_AWAY);
    atomic_store(&b->held, 0);
    atomic_store(&b->base_ready, 0);
    atomic_store(&b->result.seq, 0);
    w->base_ready = 0;
    w->seq = 0;
    w->task = w->answered = w->shown = 0;
    w->half_out = w->out = w->base = NULL;
    if (p->memory.areas) {
        atomic_store(&w->mailbox, pl_shape_mailbox(&p->memory.shape, p->head, worker));
        pl_areas_vacate(p->memory.areas, worker);
    }
    if (p->liveness) pl_liveness_clear(p->liveness, worker);
    atomic_store(&w->asked, 0);
    atomic_store(&w->done, 0);
    atomic_fetch_and(&p->clients[worker / 64], ~(UINT64_C(1) << (worker % 64)));
    atomic_store(&w->client, false);
    atomic_store(&w->speaks, false);
    w->expected = w->joined = w->leaving = false;
    unsigned owner = atomic_load(&w->owner) + 1;
    atomic_store(&w->owner, owner ? owner : 1);
    atomic_store(&w->taken, false);
}

/* Shows others what the worker has written for its latest order. */
static void news_publish(struct pl_port *p, int worker, uint64_t task, float *v) {
    if (p->memory.areas && v && task == p->seat[worker].told)
        pl_areas_publish(p->memory.areas, worker, v);
}

/* Whether everything that a client said before this result has been heard. */
static bool news_heard(const struct pl_port *p, int worker, const uint64_t *word) {
    uint64_t said = word[PL_RESULT_SAID];
    return said == 0 || !p->liveness || pl_liveness_heard(p->liveness, worker) >= said;
}

/* The base is read after the result, because a worker writes its base first. The queue is sorted
 * later. */
static void news_look_for_results(struct pl_port *p, int worker) {
    struct pl_seat *w = &p->seat[worker];
    struct pl_mailbox *b = pl_port_mailbox(p, worker);
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    if (pl_seqlock_read(&b->result, word, &seq) && seq != w->seq && news_heard(p, worker, word)) {
        w->seq = seq;
        if (word[PL_RESULT_OWNER] == atomic_load(&w->owner)) {
            struct pl_result r = news_judge(p, worker, word);
            r.sets_lr = r.sets_lr && atomic_load(&w->speaks);
            news_publish(p, worker, r.task, w->out);
            if (w->task != 0 && r.task == w->task) pl_port_half_result(p, worker);
            pl_port_enqueue(&p->queue, PL_NEWS_RESULT, worker, &r);
        }
    }
    struct pl_result base = {.task = atomic_load(&b->base_ready), .is_base = true};
    if (base.task != 0 && base.task != w->base_ready) {
        news_publish(p, worker, base.task, w->base);
        pl_port_enqueue(&p->queue, PL_NEWS_BASE, worker, &base);
    }
    w->base_ready = base.task;
}

/* There are as many of these in the queue as words wait, when it has just been filled. */
static void news_look_for_words(struct pl_port *p, int seat) {
    unsigned n = p->liveness ? pl_liveness_words(p->liveness, seat) : 0;
    for (unsigned i = 0; i < n; i++) pl_port_enqueue(&p->queue, PL_NEWS_WORD, seat, NULL);
}

/* A client that is given a place and never says that it has joined would keep it. */
static void news_expect_sign(struct pl_port *p, int worker, uint64_t now) {
    struct pl_seat *w = &p->seat[worker];
    if (!pl_port_is_client(p, worker) || now < atomic_load(&w->join_by)) return;
    atomic_store(&w->join_by, PL_FOREVER);
    pl_liveness_hang_up(p->liveness, worker, true, "it was given a place and did not join");
}

static void news_look_at(struct pl_port *p, int worker, bool gone, uint64_t now) {
    struct pl_seat *w = &p->seat[worker];
    if (!atomic_load(&w->taken) || w->leaving) return;
    if (worker >= p->n_workers) {
        news_look_for_words(p, worker);
        pl_port_poll_evaluator(p, worker, gone, now);
        return;
    }
    if (!w->joined && pl_port_is_joined(p, worker)) {
        w->joined = true;
        pl_port_enqueue(&p->queue, PL_NEWS_JOINED, worker, NULL);
    }
    if (w->joined) {
        news_look_for_results(p, worker);
        news_look_for_words(p, worker);
    } else { /* what a client says before it has joined would keep its seat taken when it leaves */
        while (p->liveness && pl_liveness_words(p->liveness, worker) > 0 &&
               pl_liveness_word(p->liveness, worker, p->word))
            continue;
        news_expect_sign(p, worker, now);
    }
    if (!gone) return;
    if (pl_port_knows(w)) {
        w->leaving = true;
        pl_port_enqueue(&p->queue, PL_NEWS_GONE, worker, NULL);
    } else {
        news_vacate(p, worker); /* it connected and left before it was announced */
    }
}

static uint64_t news_time(const struct pl_news *n) {
    switch (n->kind) {
    case PL_NEWS_RESULT: return n->result.pushed_ns;
    case PL_NEWS_GONE: return PL_FOREVER;
    default: return n->kind; /* JOINED first of all */
    }
}

static int news_compare(const void *a, const void *b) {
    const struct pl_news *x = a, *y = b;
    uint64_t s = news_time(x), t = news_time(y);
    if (s != t) return s < t ? -1 : 1;
    if (x->worker == y->worker) return (x->kind > y->kind) - (x->kind < y->kind);
    return (x->worker > y->worker) - (x->worker < y->worker);
}

/* The queue is empty. */
static bool news_look(struct pl_port *p, uint64_t now) {
    struct pl_port_queue *q = &p->queue;
    bool all = now - p->looked_ns >= PL_LOOK_NS;
    if (all) p->looked_ns = now;
    q->first = 0;
    for (int i = 0; i < p->n_words; i++) {
        /* first who is gone, then what they left */
        uint64_t gone = atomic_exchange(&p->gone[i], 0);
        uint64_t bits = gone | atomic_exchange(&p->head->ready[i], 0) | atomic_load(&p->clients[i]);
        if (all) bits = ~UINT64_C(0);
        for (; bits; bits &= bits - 1) {
            int bit = __builtin_ctzll(bits), worker = 64 * i + bit;
            if (worker >= p->n_seats) break;
            news_look_at(p, worker, gone >> bit & 1, now);
        }
    }
    if (q->n > 1) qsort(q->news, (size_t)q->n, sizeof *q->news, news_compare);
    return q->n > 0;
}

/* From here on a worker with news wakes the server; another look finds what was written before.
 * Returns the word's value to sleep on. */
unsigned pl_port_prepare_sleep(struct pl_port *p) {
    unsigned seen = atomic_load(&p->head->wake_server);
    atomic_store(&p->head->asleep, 1);
    return seen;
}

static void news_wait(struct pl_port *p, uint64_t wait_ns) {
    uint64_t now = pl_now_ns(), end = pl_until(now, wait_ns);
    bool found = news_look(p, now);
    while (!found && now < end) {
        unsigned seen = pl_port_prepare_sleep(p);
        if (news_look(p, now) || atomic_load(&p->woken)) break;
        now = pl_sleep_on(&p->head->wake_server, seen, now, end);
        atomic_store(&p->head->asleep, 0);
        found = news_look(p, now) || atomic_load(&p->woken);
    }
    atomic_store_explicit(&p->head->asleep, 0, memory_order_relaxed);
}

/* The next of the queue that the host is to know; false: there is none. */
static bool news_next(struct pl_port *p, struct pl_news *out) {
    while (pl_port_dequeue(&p->queue, out)) {
        if (out->kind == PL_NEWS_GONE) {
            news_vacate(p, out->worker);
            if (out->worker >= p->n_workers) continue; /* an evaluator just leaves */
        }
        if (out->kind != PL_NEWS_WORD) return true;
        out->word = p->word;
        if (pl_liveness_word(p->liveness, out->worker, p->word)) return true;
    }
    return false;
}

void pl_port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out) {
    const struct pl_news none = {.kind = PL_NEWS_NONE, .worker = -1};
    *out = none;
    if (p->queue.n == 0 && !atomic_load(&p->woken)) news_wait(p, wait_ns);
    if (atomic_exchange(&p->woken, false) || !news_next(p, out)) *out = none;
}
