/* What lies in the memory that server and workers share, and how it is read and written.
 *
 *   [head, ready bits, one box per worker | versions | slots]      | is a multiple of PL_PAGE
 *
 * A box has two cells: the server writes the order, the worker writes the result. A cell is read
 * without a lock: its sequence is odd while it is being written, and whoever finds it odd or
 * changed has read nothing, goes to sleep and is rung for when it is whole. Nobody spins, and
 * nobody waits for a writer that died half-way. Where things lie is said in offsets.
 *
 * The server takes everything a worker wrote for a claim: it decides nothing worse than the fate of
 * that worker's results by it. */
#ifndef PL_TRANSPORT_SHM_LAYOUT_H
#define PL_TRANSPORT_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/combination.h"

#define PL_SEQLOCK_WORDS 8

struct pl_seqlock {
    atomic_uint seq;
    _Atomic uint64_t word[PL_SEQLOCK_WORDS];
};

/* Words of an order; a task of 0 is no order. */
enum {
    PL_ORDER_TASK,
    PL_ORDER_VERSION,
    PL_ORDER_LR,
    PL_ORDER_W,
    PL_ORDER_OUT,
    PL_ORDER_ACKED,
    PL_ORDER_APPLIED,
    PL_ORDER_PART
};

/* Words of a result; PL_RESULT_SIZE is the samples, and the flaw shifted by 32. */
enum {
    PL_RESULT_OWNER,
    PL_RESULT_TASK,
    PL_RESULT_SIZE,
    PL_RESULT_LOSS,
    PL_RESULT_PULLED,
    PL_RESULT_PUSHED
};

/* Parts of an order, where workers have models of their own: written before the order, which is
 * void meanwhile, and read before it is looked at again. The order's PL_ORDER_W is 0 then. */
struct pl_mailbox_sum {
    _Atomic uint64_t n, base; /* base: offset of the slot where they are added up; 0: none */
    _Atomic uint64_t at[PL_TERMS], c[PL_TERMS];
};

/* Owners of a box are numbered, so that nothing a former one left passes for the next one's. */
struct pl_mailbox {
    /* the server writes */
    _Alignas(64) atomic_uint wake_worker; /* the worker sleeps here */
    atomic_bool cancel;                   /* the worker clears it */
    struct pl_seqlock order;
    struct pl_mailbox_sum sum;
    /* the worker writes */
    _Alignas(64) _Atomic uint64_t held; /* task whose vectors it may touch; 0: none */
    _Atomic uint64_t based;             /* task whose base it has made; 0: none */
    struct pl_seqlock result;
    _Alignas(64) atomic_uint here; /* number of the owner that came */
    atomic_uint phase;
};

struct pl_head {
    _Alignas(64) atomic_uint shutdown;     /* read at every look, hardly ever written */
    _Alignas(64) atomic_uint wake_server;  /* the server sleeps here */
    atomic_uint asleep;                    /* it is about to, or does */
    _Alignas(64) _Atomic uint64_t ready[]; /* a bit per worker: look at its box */
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_BOOL_LOCK_FREE == 2,
               "processes share these words");

/* The measures of a segment, and what follows from them. */
struct pl_shape {
    uint64_t n_workers, dim, n_versions, n_slots;
    size_t boxes, versions, slots, size; /* offsets, and the whole */
    size_t stride;                       /* bytes of a vector, a multiple of 64 */
};

/* Fills in what follows; false where the measures are beyond reason. */
bool pl_shape_of(struct pl_shape *s);

void pl_seqlock_write(struct pl_seqlock *c, const uint64_t word[PL_SEQLOCK_WORDS]);

/* One look: false where it is not whole. *seq tells whether a later look finds the same. */
bool pl_seqlock_read(struct pl_seqlock *c, uint64_t word[PL_SEQLOCK_WORDS], unsigned *seq);

/* Nobody sleeps longer without a look around: a worker, whether its server is still there; the
 * server, at all boxes, should a broken worker have cleared a bit or a bell that is not its own. */
#define PL_LOOK_NS UINT64_C(500000000)

/* Sleeps while *word == seen: until it is rung, until `end`, or until it is time to look around.
 * Returns what time it is then. */
uint64_t pl_sleep_on(atomic_uint *word, unsigned seen, uint64_t now, uint64_t end);

uint64_t pl_until(uint64_t now,
                  uint64_t ns); /* now + ns, or PL_FOREVER where there is no such time */

uint64_t pl_bits_of(double x);
double pl_of_bits(uint64_t bits);

#endif
