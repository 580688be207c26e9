/* A worker's end of a port over shared memory.
 *
 * Threads: the worker's own thread, or the only one of its process, executes everything here. */
#include "transport/link.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/private_fd.h"
#include "sys/segment.h"
#include "transport/liveness.h"

static void link_phase(struct pl_link *l, enum pl_phase phase) {
    atomic_store_explicit(&l->mailbox->phase, (unsigned)phase, memory_order_relaxed);
}

/* The server looks at the mailboxes of clients whenever it looks. */
static void link_mark_ready(struct pl_link *l) {
    if (l->client) return;
    atomic_fetch_or(&l->head->ready[l->worker / 64], UINT64_C(1) << (l->worker % 64));
}

bool pl_link_send(struct pl_link *l, int what, const void *data, size_t n) {
    char said[1 + PL_WORD_MAX] = {(char)what};
    if (n >= sizeof said) return false;
    if (n > 0) memcpy(said + 1, data, n);
    return send(l->sock, said, 1 + n, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 + (ssize_t)n;
}

static void link_wake_server(struct pl_link *l) {
    link_mark_ready(l);
    if (!atomic_load(&l->head->asleep)) return;
    if (l->client)
        pl_link_send(l, PL_SAID_READY, NULL, 0);
    else
        pl_futex_ring(&l->head->wake_server);
}

int pl_link_open(const struct pl_link_conf *conf, struct pl_link **out) {
    struct pl_link *l = calloc(1, sizeof *l);
    if (!l) return PL_ENOMEM;
    l->shape = *conf->shape;
    l->at = conf->at;
    l->head = conf->at;
    l->mailbox = pl_shape_mailbox(&l->shape, l->at, conf->worker);
    l->client = conf->client;
    l->peers = conf->peers;
    l->cancel.flag = &l->mailbox->cancel;
    l->worker = conf->worker;
    l->sock = conf->sock;
    l->owner = conf->owner;
    l->left = conf->left;
    l->ctx = conf->ctx;
    l->segment = conf->segment;
    l->pulled_ns = pl_now_ns();
    atomic_init(&l->looked_ns, l->pulled_ns);
    link_phase(l, PL_PHASE_WAITING);
    atomic_store(&l->mailbox->joined, l->owner);
    link_wake_server(l);
    *out = l;
    return PL_OK;
}

void pl_link_detach(struct pl_link *l) {
    if (!l) return;
    atomic_store(&l->mailbox->held, 0);
    link_phase(l, PL_PHASE_AWAY);
    pl_segment_free(&l->segment);
    if (l->sock >= 0) pl_private_fd_close(l->sock);
    void (*left)(void *ctx, int worker) = l->left;
    void *ctx = l->ctx;
    int worker = l->worker;
    free(l);
    if (left) left(ctx, worker);
}

/* --- orders ------------------------------------------------------------------------------ */

/* Whether the server has shut down or is gone; checks the socket from time to time. */
bool pl_link_disconnected(struct pl_link *l, uint64_t now) {
    if (l->sock >= 0 && !l->lost && now - l->looked_ns >= PL_LOOK_NS) {
        l->looked_ns = now;
        l->lost = pl_liveness_lost(l->sock);
    }
    return l->lost || atomic_load(&l->head->shutdown);
}

/* The worker may write there, or NULL. */
static float *link_own_slot(const struct pl_link *l, uint64_t offset) {
    int owner = pl_shape_slot_owner(&l->shape, offset);
    bool own = owner == -1 || owner == l->worker || (owner >= 0 && !l->client);
    return own ? (float *)(void *)(l->at + offset) : NULL;
}

/* False if there is no such vector, or factor, or the worker cannot read it. */
static bool link_input(struct pl_link *l, int i, uint64_t offset, double c) {
    int owner = pl_shape_slot_owner(&l->shape, offset);
    bool other = owner >= 0 && (l->peers || !l->client);
    if (!pl_shape_is_version(&l->shape, offset) && !other && !link_own_slot(l, offset))
        return false;
    const float *v = (const float *)(const void *)(l->at + offset);
    l->input[i] = (struct pl_input){.v = v, .c = c, .writer = -1};
    return isfinite(c);
}

/* Reads the inputs of an order; false if they are impossible. */
static bool link_inputs(struct pl_link *l, uint64_t only, struct pl_order *o) {
    struct pl_mailbox_inputs *inputs = &l->mailbox->inputs;
    o->input = l->input;
    o->n_inputs = 1;
    if (only != 0) return link_input(l, 0, only, 1);
    uint64_t n = atomic_load(&inputs->n), base = atomic_load(&inputs->base);
    if (n < 1 || n > PL_TERMS || (base == 0 && n != 1)) return false;
    for (int i = 0; i < (int)n; i++)
        if (!link_input(l, i, atomic_load(&inputs->at[i]), pl_of_bits(atomic_load(&inputs->c[i]))))
            return false;
    o->n_inputs = (int)n;
    o->base = base ? link_own_slot(l, base) : NULL;
    return base == 0 || o->base;
}

/* Reads the strips of an order; false if they are impossible. */
static bool link_strips(const struct pl_link *l, const uint64_t *word, int n, struct pl_order *o) {
    for (int i = 0; i < n; i++) {
        const uint64_t *strip = &word[PL_ORDER_STRIP + 3 * i];
        if (!pl_shape_in_slots(&l->shape, strip[0], strip[2]) ||
            !pl_shape_in_slots(&l->shape, strip[1], strip[2]))
            return false;
        o->strip[i] = (struct pl_strip){(const float *)(const void *)(l->at + strip[0]),
                                        (float *)(void *)(l->at + strip[1]), strip[2]};
    }
    o->n_strips = n;
    return true;
}

/* Reads the input and the output of an order; false if they are impossible. */
static bool link_vectors(struct pl_link *l, const uint64_t *word, struct pl_order *o) {
    uint64_t n_strips = word[PL_ORDER_FLAGS] >> PL_FLAG_BITS;
    if (n_strips > 0) return n_strips <= PL_STRIPS && link_strips(l, word, (int)n_strips, o);
    o->out = link_own_slot(l, word[PL_ORDER_OUT]);
    return o->out && link_inputs(l, word[PL_ORDER_INPUT], o);
}

/* bfloat16, if the order says so and has one version as input. */
static void link_halves(const struct pl_link *l, const uint64_t *word, struct pl_order *o) {
    const struct pl_shape *s = &l->shape;
    uint64_t in = word[PL_ORDER_INPUT], flags = word[PL_ORDER_FLAGS];
    if (flags & PL_FLAG_HALF_OUT) o->half_out = (uint16_t *)(void *)o->out;
    if (!(flags & PL_FLAG_HALF_IN) || !s->halves || !pl_shape_is_version(s, in)) return;
    size_t i = (in - s->versions) / s->stride;
    o->half_in = (const uint16_t *)(const void *)(l->at + s->halves + i * s->half_stride);
}

/* What a look at the order can find: nothing to do, an order, or that it changed meanwhile. */
enum link_look { LINK_NOTHING, LINK_ORDER, LINK_CHANGED };

/* An order is held first and then checked again: if nothing has changed by then, the server knows
 * that it is held. A cancel flag that is set by then belongs to an earlier order, and the next look
 * clears it; or it belongs to this order, and the next look finds it void. */
static enum link_look link_look(struct pl_link *l, struct pl_order *o) {
    struct pl_mailbox *b = l->mailbox;
    uint64_t word[PL_SEQLOCK_WORDS];
    unsigned seq;
    atomic_store(&b->cancel, false);
    if (!pl_seqlock_read(&b->order, word, &seq)) return LINK_NOTHING;
    uint64_t task = word[PL_ORDER_TASK];
    if (task == 0 || task == l->answered) return LINK_NOTHING;
    *o = (struct pl_order){.task = task, .stays = word[PL_ORDER_FLAGS] & PL_FLAG_STAYS};
    memcpy(o->note, &word[PL_ORDER_NOTE], sizeof o->note);
    if (!link_vectors(l, word, o)) return LINK_NOTHING;
    link_halves(l, word, o);
    atomic_store(&b->held, task);
    if (atomic_load(&b->order.seq) == seq && !atomic_load(&b->cancel)) {
        l->task = task;
        return LINK_ORDER;
    }
    atomic_store(&b->held, 0);
    return LINK_CHANGED;
}

/* Obtains the memory of a result that is written for the first time. */
static void link_populate(struct pl_link *l, const struct pl_order *o) {
    if (l->client || !o->out) return;
    for (int i = 0; i < PL_LINK_READY; i++)
        if (l->ready[i] == o->out) return;
    l->ready[l->n_ready++ % PL_LINK_READY] = o->out;
    pl_segment_populate(o->out, l->shape.dim * sizeof *o->out);
}

/* The worker has no order any more. */
static void link_forget(struct pl_link *l) {
    atomic_store(&l->mailbox->held, 0);
    l->task = 0;
}

int pl_link_pull_until(struct pl_link *l, uint64_t end, struct pl_order *out) {
    struct pl_mailbox *b = l->mailbox;
    bool interrupted = false;
    link_phase(l, PL_PHASE_WAITING);
    link_forget(l);
    uint64_t now = pl_now_ns();
    for (;;) {
        unsigned seen = atomic_load(&b->wake_worker);
        enum link_look found = link_look(l, out);
        if (atomic_exchange(&l->interrupted, false)) interrupted = true;
        if (pl_link_disconnected(l, now)) break; /* after the look, which cleared the cancel flag */
        if (found == LINK_ORDER) {
            l->pulled_ns = now;
            link_phase(l, PL_PHASE_COMPUTING);
            link_populate(l, out);
            return PL_OK;
        }
        if (interrupted || now >= end) {
            link_forget(l);
            return interrupted ? PL_EINTR : PL_ETIMEDOUT;
        }
        if (found == LINK_NOTHING) now = pl_nap_on(&b->wake_worker, seen, now, end, &interrupted);
    }
    link_forget(l);
    return PL_ECANCELLED;
}

int pl_link_pull(struct pl_link *l, struct pl_order *out) {
    int rc;
    do rc = pl_link_pull_until(l, PL_FOREVER, out);
    while (rc == PL_EINTR);
    return rc;
}

const struct pl_cancel *pl_link_cancelled(const struct pl_link *l) {
    return &l->cancel;
}

int pl_link_sleep(struct pl_link *l, uint64_t ns) {
    struct pl_mailbox *b = l->mailbox;
    uint64_t now = pl_now_ns(), end = pl_until(now, ns);
    int rc = PL_OK;
    link_phase(l, PL_PHASE_SLEEPING);
    for (;;) {
        unsigned seen = atomic_load(&b->wake_worker);
        if (atomic_load(&b->cancel) || pl_link_disconnected(l, now)) rc = PL_ECANCELLED;
        if (rc || now >= end) break;
        now = pl_sleep_on(&b->wake_worker, seen, now, end);
    }
    link_phase(l, PL_PHASE_COMPUTING);
    return rc;
}

/* A base does not wake the server. What was held is let go before the result can be seen. */
void pl_link_push(struct pl_link *l, const struct pl_result *r) {
    if (r->is_base) {
        atomic_store(&l->mailbox->base_ready, r->task);
        link_mark_ready(l);
        return;
    }
    if (l->client) {
        struct pl_area_head *area = (struct pl_area_head *)l->mailbox;
        for (uint32_t i = 0; i < r->n_absent; i++) atomic_store(&area->absent[i], r->absent[i]);
    }
    uint64_t word[PL_SEQLOCK_WORDS] = {
        [PL_RESULT_OWNER] = l->owner,
        [PL_RESULT_TASK] = r->task,
        [PL_RESULT_SIZE] = (uint64_t)r->defect << 32 | r->samples,
        [PL_RESULT_LOSS] = pl_bits_of(r->loss),
        [PL_RESULT_PULLED] = l->pulled_ns,
        [PL_RESULT_PUSHED] = pl_now_ns(),
        [PL_RESULT_LR] = r->sets_lr ? ~pl_bits_of(r->lr) : 0,
        [PL_RESULT_ABSENT] = r->n_absent,
        [PL_RESULT_SAID] = atomic_load(&l->n_said),
        [PL_RESULT_WAIT] = r->tells_waits ? r->wait_ns + 1 : 0,
    };
    if (l->task) l->answered = l->task;
    l->task = 0;
    link_phase(l, PL_PHASE_WAITING);
    atomic_store(&l->mailbox->held, 0);
    pl_seqlock_write(&l->mailbox->result, word);
    link_wake_server(l);
}
