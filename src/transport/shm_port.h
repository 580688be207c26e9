/* The inside of a port over shared memory, which shm.c, shm_news.c and shm_clients.c share.
 *
 * Threads: see shm.c. */
#ifndef PL_TRANSPORT_SHM_PORT_H
#define PL_TRANSPORT_SHM_PORT_H

#include "sys/futex.h"
#include "transport/liveness.h"
#include "transport/port.h"

/* What the server knows about a worker or evaluator. Only this is trusted; the segment holds
 * claims. A member is the owner's of the port, unless it says otherwise. */
struct pl_seat {
    atomic_bool taken;        /* expected or connected, until its PL_NEWS_GONE was delivered */
    atomic_bool client;       /* connected; set by the watching thread */
    atomic_bool speaks;       /* it may say words and set rates; likewise */
    atomic_bool offered;      /* clients may have it; read by the watching thread */
    atomic_uint owner;        /* number of the present owner, or of the next one */
    _Atomic uint64_t join_by; /* of a client: without a sign of it until then, it is disconnected */
    bool expected, joined;    /* by expect(); PL_NEWS_JOINED is queued or was delivered */
    bool leaving;             /* PL_NEWS_GONE is queued */
    uint64_t task;            /* of the latest order; 0: none, or it was cancelled */
    uint64_t base_ready;      /* task of the base that was read last */
    unsigned seq;             /* of the result that was read last */
    uint64_t seen;            /* of its mailbox when it was last ready; the watching thread's */
    struct pl_mailbox *_Atomic mailbox; /* written by the watching thread while the seat is free */
    uint64_t told;                      /* task of the latest order, also if it was cancelled */
    float *out, *base;                  /* of that order; NULL: none */
    float *half_out;  /* where the latest order's result comes as bfloat16; NULL: as floats */
    uint64_t *absent; /* [PL_ABSENT_WORDS] of its result; NULL: it never lacked a tensor */
    /* an evaluator's */
    _Atomic uint64_t asked, done; /* numbers that it sent; written by the watching thread */
    uint64_t answered;            /* the last question that was passed on, or settled by `done` */
    uint64_t shown;               /* question whose answer it reads; 0: none */
    uint64_t shown_ns;
};

struct pl_port {
    bool processes;
    int starts; /* the first workers, which are not open to clients from the beginning */
    struct pl_port_memory memory;
    struct pl_head *head;
    struct pl_seat *seat;
    int n_workers, n_seats, n_words; /* words of bits, one per seat */
    struct pl_liveness *liveness;    /* NULL if workers are threads */

    _Atomic uint64_t *gone; /* [n_words] set by the watching thread, or by detach() of a thread */
    _Atomic uint64_t *clients; /* [n_words] seats that have one */
    atomic_bool woken;
    uint64_t opened_ns, looked_ns; /* looked: at all mailboxes */

    struct pl_port_queue queue; /* what the last look found */
    char word[PL_WORD_MAX];     /* that was delivered last */

    char about[PL_ABOUT_MAX];
    enum pl_admission (*admit)(void *ctx, const struct pl_newcomer *client, struct pl_why *why);
    void *admit_ctx;
    void (*told)(void *ctx);
    void *told_ctx;
    uint64_t show_ns, join_ns;
    uint64_t *half_stamp; /* [n_versions] of what is there as bfloat16; NULL: never */
};

static inline struct pl_mailbox *pl_port_mailbox(const struct pl_port *p, int seat) {
    return atomic_load_explicit(&p->seat[seat].mailbox, memory_order_acquire);
}

static inline bool pl_port_knows(const struct pl_seat *s) {
    return s->expected || s->joined;
}

static inline bool pl_port_is_joined(const struct pl_port *p, int seat) {
    return atomic_load(&pl_port_mailbox(p, seat)->joined) == atomic_load(&p->seat[seat].owner);
}

static inline uint64_t pl_port_offset(const struct pl_port *p, const void *vector) {
    return vector ? (uint64_t)((const char *)vector - (char *)p->memory.segment.at) : 0;
}

static inline void pl_port_wake_server(struct pl_port *p) {
    pl_futex_ring(&p->head->wake_server);
}

/* Wakes the worker or client in this seat: it has an order, a cancel or an answer. */
static inline void pl_port_ring(const struct pl_port *p, int seat) {
    pl_futex_ring(&pl_port_mailbox(p, seat)->wake_worker);
    if (p->told && atomic_load(&p->seat[seat].client)) p->told(p->told_ctx);
}

static inline void pl_port_write_order(struct pl_port *p, int seat,
                                       const uint64_t word[PL_SEQLOCK_WORDS]) {
    p->seat[seat].task = word[PL_ORDER_TASK];
    pl_seqlock_write(&pl_port_mailbox(p, seat)->order, word);
}

/* --- shm_news.c --- */
void pl_port_news(struct pl_port *p, uint64_t wait_ns, struct pl_news *out);
unsigned pl_port_prepare_sleep(struct pl_port *p); /* returns the value to sleep on */

/* --- shm_clients.c --- */
int pl_port_admit(void *port, const struct pl_newcomer *client, struct pl_answer *answer,
                  int fd[PL_GIVEN]);
int pl_port_reader(void *port, int seat);
bool pl_port_said(void *port, int seat, int what, uint64_t number);
void pl_port_offer(struct pl_port *p, int worker);
bool pl_port_is_client(const struct pl_port *p, int worker);
bool pl_port_hang_up(struct pl_port *p, int worker, bool again, const char *sentence);
bool pl_port_show(struct pl_port *p, int evaluator, const float *version,
                  const uint64_t note[PL_NOTE_WORDS]);
bool pl_port_final(struct pl_port *p, const float *version, const uint64_t note[PL_NOTE_WORDS]);
void pl_port_poll_evaluator(struct pl_port *p, int seat, bool gone, uint64_t now);
/* The flags of an order that a client gets; prepares what they promise. */
uint64_t pl_port_half_flags(struct pl_port *p, int worker, const struct pl_order *o);
/* A result has come for the latest order. */
void pl_port_half_result(struct pl_port *p, int worker);

#endif
