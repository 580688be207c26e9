/* The layout of the memory that server and workers share, and how it is read and written.
 *
 *   [head, ready bits, one mailbox per worker | versions | slots]      | is a multiple of PL_PAGE
 *
 * If clients can join, every seat (of a worker or an evaluator) has its mailbox and its slots
 * together, in an area of its own:
 *
 *   [head, ready bits | mailbox | slots of worker 0 | mailbox | slots of worker 1 | … | versions |
 *    the same as bfloat16]
 *
 * The offsets mean the same in every process, but a client has no other memory there than the head
 * and the versions, which it can only read, and its area, which was made for it: what earlier
 * clients in its seat still have mapped is not it. If workers read what others write, a client can
 * read the other areas, and others do not read what the client writes, but what the server copied
 * from there when it was complete. So a client cannot set its ready bit or wake the server: the
 * server looks at the mailboxes of clients whenever it looks, and if it sleeps, they send
 * PL_SAID_READY over their sockets. Words and the questions of evaluators are sent there as well;
 * see liveness.h.
 *
 * A worker can write its slots at any time, also after it has pushed a result.
 *
 * Versions are vectors that the server writes, slots are vectors that workers write. A mailbox has
 * two seqlocks: the server writes the order, the worker writes the result. They are read without a
 * lock: the sequence is odd during a write, and a reader that finds it odd or changed has read
 * nothing, goes to sleep and is woken when the write is complete. Nothing spins, and nothing waits
 * for a writer that died half-way. Positions are stored as offsets.
 *
 * The server treats everything a worker wrote as a claim, which decides nothing but the fate of
 * that worker's results.
 *
 * Threads: any; the comments at the members say who writes them. */
#ifndef PL_TRANSPORT_SHM_LAYOUT_H
#define PL_TRANSPORT_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/combination.h"
#include "transport/transport.h"

/* Words of an order; task 0 is no order. */
enum {
    PL_ORDER_TASK,
    PL_ORDER_INPUT, /* offset of the only input; 0: the inputs are in pl_mailbox_inputs */
    PL_ORDER_OUT,
    PL_ORDER_FLAGS, /* PL_FLAG_…, and the number of strips shifted by PL_FLAG_BITS */
    PL_ORDER_STRIP, /* offsets of input and output, and n, of each strip */
    PL_ORDER_NOTE = PL_ORDER_STRIP + 3 * PL_STRIPS,
    PL_SEQLOCK_WORDS = PL_ORDER_NOTE + PL_NOTE_WORDS
};

enum { PL_FLAG_STAYS = 1, PL_FLAG_HALF_OUT = 2, PL_FLAG_HALF_IN = 4, PL_FLAG_BITS = 3 };

/* Words of a result; PL_RESULT_SIZE is the samples, and the defect shifted by 32. */
enum {
    PL_RESULT_OWNER,
    PL_RESULT_TASK,
    PL_RESULT_SIZE,
    PL_RESULT_LOSS,
    PL_RESULT_PULLED,
    PL_RESULT_PUSHED,
    PL_RESULT_LR,     /* complement of the bits; 0: none */
    PL_RESULT_ABSENT, /* words in the area's `absent` */
    PL_RESULT_SAID,   /* words that a client has said so far; they are heard first */
    PL_RESULT_WAIT    /* ns without a core, and 1; 0: not measured */
};

struct pl_seqlock {
    atomic_uint seq;
    _Atomic uint64_t word[PL_SEQLOCK_WORDS];
};

/* The inputs of an order that has several, or a base. They are written before the order, which is
 * void meanwhile, and read before the order is checked again. */
struct pl_mailbox_inputs {
    _Atomic uint64_t n, base; /* base: offset of the slot for their sum; 0: none */
    _Atomic uint64_t at[PL_TERMS], c[PL_TERMS];
};

/* Owners of a mailbox are numbered, so that nothing a former owner left is taken for the next
 * one's. */
struct pl_mailbox {
    /* the server writes */
    _Alignas(64) atomic_uint wake_worker; /* the worker sleeps here */
    atomic_bool cancel;                   /* the worker clears it */
    struct pl_seqlock order;
    struct pl_mailbox_inputs inputs;
    /* the worker writes */
    _Alignas(64) _Atomic uint64_t held; /* task whose vectors it may touch; 0: none */
    _Atomic uint64_t base_ready;        /* task whose base is complete; 0: none */
    struct pl_seqlock result;
    _Alignas(64) atomic_uint joined; /* number of the owner that connected */
    atomic_uint phase;
};

/* An area begins with it. */
struct pl_area_head {
    struct pl_mailbox mailbox;
    _Atomic uint64_t absent[PL_ABSENT_WORDS]; /* of the result; the worker writes it before */
};

struct pl_head {
    _Alignas(64) atomic_uint shutdown; /* read often, written once */
    _Atomic uint64_t final;            /* offset of the version that the run ends with, written
                                          before; 0: it is not there */
    _Atomic uint64_t final_note[PL_NOTE_WORDS];
    _Alignas(64) atomic_uint wake_server;  /* the server sleeps here */
    atomic_uint asleep;                    /* it is about to, or does */
    _Alignas(64) _Atomic uint64_t ready[]; /* a bit per worker: look at its mailbox */
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_BOOL_LOCK_FREE == 2,
               "processes share these words");

/* The size of a segment, and what follows from it. */
struct pl_shape {
    uint64_t n_workers, n_evaluators, dim, n_versions, n_slots;
    uint64_t n_own;                          /* slots in each area; 0: there are no areas */
    uint64_t half;                           /* PL_HALF_… */
    size_t mailboxes, versions, slots, size; /* offsets, and the total */
    size_t stride;                           /* bytes of a vector, a multiple of 64 */
    size_t mailbox_step;                     /* from one mailbox to the next; with areas, their
                                                size, and `slots` is that of the first */
    size_t halves, half_stride;              /* versions as bfloat16; 0: none */
    size_t versions_end;
};

/* Fills in what follows; false if the numbers are out of range. */
bool pl_shape_of(struct pl_shape *s);

uint64_t pl_shape_seats(const struct pl_shape *s); /* workers, then evaluators */
struct pl_mailbox *pl_shape_mailbox(const struct pl_shape *s, void *at, int seat);

/* Whether there is a vector at an offset. */
bool pl_shape_is_version(const struct pl_shape *s, uint64_t offset);
/* Whose slot it is; -1: anybody's, there are no areas; -2: it is not a slot. */
int pl_shape_slot_owner(const struct pl_shape *s, uint64_t offset);
/* Whether n floats at an offset are inside of slots that any worker may write. */
bool pl_shape_in_slots(const struct pl_shape *s, uint64_t offset, uint64_t n);

void pl_seqlock_write(struct pl_seqlock *c, const uint64_t word[PL_SEQLOCK_WORDS]);

/* One attempt: false during a write. *seq tells whether a later read finds the same. */
bool pl_seqlock_read(struct pl_seqlock *c, uint64_t word[PL_SEQLOCK_WORDS], unsigned *seq);

/* No end sleeps longer without a check: a worker checks that its server is still there; the server
 * checks all mailboxes, in case a broken worker cleared a bit that is not its own. */
#define PL_LOOK_NS UINT64_C(500000000)

/* Sleeps while *word == seen: until it is woken, until `end`, until it is time for a check, or
 * until a signal handler has run. Returns the time. */
uint64_t pl_sleep_on(atomic_uint *word, unsigned seen, uint64_t now, uint64_t end);
/* The same; *interrupted tells whether a signal handler has run. */
uint64_t pl_nap_on(atomic_uint *word, unsigned seen, uint64_t now, uint64_t end, bool *interrupted);

uint64_t pl_until(uint64_t now, uint64_t ns); /* now + ns; PL_FOREVER if that overflows */

uint64_t pl_bits_of(double x);
double pl_of_bits(uint64_t bits);

#endif
