/* What a port over shared memory does for clients: seats, evaluators, bfloat16.
 *
 * Threads: pl_port_admit(), pl_port_reader() and pl_port_said() are called by the thread that
 * watches the sockets (liveness.h), everything else by the owner of the port. */
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "sys/clock.h"
#include "transport/shm_port.h"

/* --- joining ----------------------------------------------------------------------------- */

static uint64_t clients_bit(int seat) {
    return UINT64_C(1) << (seat % 64);
}

/* Whether the seat is free and open to clients; then it is taken. */
static bool clients_take(struct pl_port *p, int seat) {
    bool taken = false;
    if (seat < p->n_workers && !atomic_load(&p->seat[seat].offered)) return false;
    return atomic_compare_exchange_strong(&p->seat[seat].taken, &taken, true);
}

/* Takes the seat that the client would like to have, or the lowest of its kind; -1: there is none.
 */
static int clients_take_seat(struct pl_port *p, const struct pl_newcomer *client) {
    bool worker = client->kind == PL_CLIENT_WORKER;
    int end = worker ? p->n_workers : p->n_seats;
    if (worker && client->seat >= 1 && client->seat <= (uint64_t)end &&
        clients_take(p, (int)client->seat - 1))
        return (int)client->seat - 1;
    for (int i = worker ? 0 : p->n_workers; i < end; i++)
        if (clients_take(p, i)) return i;
    return -1;
}

static int clients_refuse_full(const struct pl_port *p, enum pl_client_kind kind,
                               struct pl_why *why) {
    int n = kind == PL_CLIENT_WORKER ? p->n_workers : p->n_seats - p->n_workers;
    if (n == 0) return pl_fail(why, PL_ERUN, "it takes no evaluators");
    return pl_fail(why, PL_ERUN, "it has all its %d %s already", n,
                   kind == PL_CLIENT_WORKER ? "workers" : "evaluators");
}

/* A seat for the client, and the memory that goes with it; -1: `why` has the reason. */
static int clients_seat(struct pl_port *p, const struct pl_newcomer *client, int fd[PL_GIVEN],
                        struct pl_why *why) {
    enum pl_admission admission = PL_MAY_SPEAK;
    size_t dim = p->memory.shape.dim;
    *why = (struct pl_why){.text = ""};
    if (client->dim != 0 && client->dim != dim) {
        pl_fail(why, PL_ERUN, "the model of the run has %zu parameters, and that of the client %zu",
                dim, client->dim);
        return -1;
    }
    if (p->admit) admission = p->admit(p->admit_ctx, client, why);
    if (admission == PL_REFUSED) {
        if (!why->text[0]) pl_fail(why, PL_ERUN, "it gave no reason");
        return -1;
    }
    int seat = clients_take_seat(p, client);
    if (seat < 0) {
        clients_refuse_full(p, client->kind, why);
    } else if (!pl_areas_give(p->memory.areas, seat, fd)) {
        atomic_store(&p->seat[seat].taken, false);
        pl_fail(why, PL_ERUN, "it is out of memory or descriptors");
        return -1;
    } else {
        atomic_store(&p->seat[seat].speaks, admission == PL_MAY_SPEAK);
    }
    return seat;
}

int pl_port_admit(void *port, const struct pl_newcomer *client, struct pl_answer *answer,
                  int fd[PL_GIVEN]) {
    struct pl_port *p = port;
    const struct pl_shape *s = &p->memory.shape;
    struct pl_why why;
    int seat = clients_seat(p, client, fd, &why);
    if (seat < 0) {
        snprintf(answer->text, sizeof answer->text, "%s", why.text);
        return -1;
    }
    answer->owner = atomic_load(&p->seat[seat].owner);
    answer->speaks = atomic_load(&p->seat[seat].speaks);
    answer->n_workers = s->n_workers;
    answer->n_evaluators = s->n_evaluators;
    answer->dim = s->dim;
    answer->n_versions = s->n_versions;
    answer->n_slots = s->n_slots;
    answer->n_own = s->n_own;
    answer->half = s->half;
    answer->size = s->size;
    answer->n_more =
        client->kind == PL_CLIENT_WORKER && pl_areas_peers(p->memory.areas) ? s->n_workers : 0;
    snprintf(answer->text, sizeof answer->text, "%s", p->about);
    atomic_store(&p->seat[seat].mailbox, pl_areas_mailbox(p->memory.areas, seat));
    p->seat[seat].seen = 0;
    atomic_store(&p->seat[seat].join_by, pl_now_ns() + p->join_ns);
    atomic_store(&p->seat[seat].client, true);
    atomic_fetch_or(&p->clients[seat / 64], clients_bit(seat));
    return seat;
}

int pl_port_reader(void *port, int seat) {
    struct pl_port *p = port;
    return pl_areas_reader(p->memory.areas, seat);
}

bool pl_port_said(void *port, int seat, int what, uint64_t number) {
    struct pl_port *p = port;
    struct pl_seat *s = &p->seat[seat];
    bool new = true;
    if (what == PL_SAID_ASK) atomic_store(&s->asked, number);
    if (what == PL_SAID_DONE) new = atomic_exchange(&s->done, number) != number;
    if (what == PL_SAID_READY) {
        const struct pl_mailbox *b = pl_port_mailbox(p, seat);
        uint64_t now = (uint64_t)atomic_load(&b->joined) << 32 | atomic_load(&b->result.seq);
        new = now != s->seen;
        s->seen = now;
    }
    if (!new) return false;
    atomic_fetch_or(&p->head->ready[seat / 64], clients_bit(seat));
    pl_port_wake_server(p);
    return true;
}

void pl_port_offer(struct pl_port *p, int worker) {
    atomic_store(&p->seat[worker].offered, true);
}

bool pl_port_is_client(const struct pl_port *p, int worker) {
    return atomic_load(&p->seat[worker].client);
}

bool pl_port_hang_up(struct pl_port *p, int worker, bool again, const char *sentence) {
    if (!pl_port_is_client(p, worker) || pl_areas_peers(p->memory.areas)) return false;
    pl_liveness_hang_up(p->liveness, worker, again, sentence);
    pl_port_ring(p, worker);
    return true;
}

/* --- evaluators ---------------------------------------------------------------------------- */

bool pl_port_show(struct pl_port *p, int evaluator, const float *version,
                  const uint64_t note[PL_NOTE_WORDS]) {
    uint64_t word[PL_SEQLOCK_WORDS] = {0}, offset = pl_port_offset(p, version);
    if (evaluator < p->n_workers || evaluator >= p->n_seats) return false;
    struct pl_seat *s = &p->seat[evaluator];
    if (!atomic_load(&s->taken) || s->leaving || s->shown || s->answered == 0 ||
        !pl_shape_is_version(&p->memory.shape, offset))
        return false;
    s->shown = s->answered;
    s->shown_ns = pl_now_ns();
    word[PL_ORDER_TASK] = s->shown;
    word[PL_ORDER_INPUT] = offset;
    for (int i = 0; note && i < PL_NOTE_WORDS; i++) word[PL_ORDER_NOTE + i] = note[i];
    pl_port_write_order(p, evaluator, word);
    pl_port_ring(p, evaluator);
    return true;
}

/* The order is void before the version can be written again: an evaluator that still copies it
 * finds that out at the end. */
static void clients_take_back(struct pl_port *p, int seat) {
    const uint64_t none[PL_SEQLOCK_WORDS] = {0};
    pl_port_write_order(p, seat, none);
    p->seat[seat].shown = 0;
    pl_port_enqueue(&p->queue, PL_NEWS_DONE, seat, NULL);
}

void pl_port_poll_evaluator(struct pl_port *p, int seat, bool gone, uint64_t now) {
    struct pl_seat *s = &p->seat[seat];
    uint64_t asked = atomic_load(&s->asked), done = atomic_load(&s->done);
    bool late = s->shown && now > s->shown_ns && now - s->shown_ns >= p->show_ns;
    if (s->shown && (gone || late || done >= s->shown)) {
        clients_take_back(p, seat);
        if (done > s->answered) s->answered = done;
    }
    /* a question that comes while it reads was repeated because the answer took long */
    if (!gone && !s->shown && asked != 0 && asked != s->answered) {
        s->answered = asked;
        pl_port_enqueue(&p->queue, PL_NEWS_ASK, seat, NULL);
    }
    if (!gone) return;
    s->leaving = true;
    pl_port_enqueue(&p->queue, PL_NEWS_GONE, seat, NULL);
}

/* --- the end ----------------------------------------------------------------------------- */

bool pl_port_final(struct pl_port *p, const float *version, const uint64_t note[PL_NOTE_WORDS]) {
    uint64_t offset = pl_port_offset(p, version);
    if (!pl_shape_is_version(&p->memory.shape, offset)) return false;
    for (int i = 0; i < PL_NOTE_WORDS; i++) atomic_store(&p->head->final_note[i], note[i]);
    atomic_store(&p->head->final, offset);
    return true;
}

/* --- bfloat16 ---------------------------------------------------------------------------- */

/* The version as bfloat16, made when the first client needs it. */
static void clients_narrow(struct pl_port *p, const struct pl_input *in) {
    const struct pl_shape *s = &p->memory.shape;
    size_t i = (pl_port_offset(p, in->v) - s->versions) / s->stride;
    if (in->stamp != 0 && p->half_stamp[i] == in->stamp) return;
    char *to = (char *)p->memory.segment.at + s->halves + i * s->half_stride;
    pl_bf16_narrow(in->v, s->dim, (uint16_t *)(void *)to);
    p->half_stamp[i] = in->stamp;
}

uint64_t pl_port_half_flags(struct pl_port *p, int worker, const struct pl_order *o) {
    const struct pl_shape *s = &p->memory.shape;
    struct pl_seat *w = &p->seat[worker];
    w->half_out = NULL;
    if (s->half == 0 || o->stays || !pl_order_is_plain(o) || !pl_port_is_client(p, worker))
        return 0;
    uint64_t flags = 0;
    if (s->half & PL_HALF_RESULT) {
        flags |= PL_FLAG_HALF_OUT;
        w->half_out = o->out;
    }
    if (p->half_stamp && pl_shape_is_version(s, pl_port_offset(p, o->input[0].v))) {
        flags |= PL_FLAG_HALF_IN;
        clients_narrow(p, &o->input[0]);
    }
    return flags;
}

void pl_port_half_result(struct pl_port *p, int worker) {
    struct pl_seat *w = &p->seat[worker];
    if (w->half_out) pl_bf16_widen_here(w->half_out, p->memory.shape.dim);
    w->half_out = NULL;
}
