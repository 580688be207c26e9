/* Threads: any. */
#include "transport/shm_layout.h"

#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/segment.h"

#define MAX_MANY (UINT64_C(1) << 20) /* workers, versions, slots */
#define MAX_DIM (UINT64_C(1) << 38)  /* so that no size below overflows */

static size_t layout_round(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static bool layout_within(uint64_t n, uint64_t max) {
    return n >= 1 && n <= max;
}

bool pl_shape_of(struct pl_shape *s) {
    if (!layout_within(s->n_workers, MAX_MANY) || !layout_within(s->n_versions, MAX_MANY) ||
        !layout_within(s->n_slots, MAX_MANY) || !layout_within(s->dim, MAX_DIM))
        return false;
    size_t words = (s->n_workers + 63) / 64;
    s->mailboxes = layout_round(sizeof(struct pl_head) + words * sizeof(uint64_t), 64);
    s->versions = layout_round(s->mailboxes + s->n_workers * sizeof(struct pl_mailbox), PL_PAGE);
    s->stride = layout_round(s->dim * sizeof(float), 64);
    s->slots = layout_round(s->versions + s->n_versions * s->stride, PL_PAGE);
    s->size = layout_round(s->slots + s->n_slots * s->stride, PL_PAGE);
    return true;
}

/* Each word is stored with release and loaded with acquire: a reader of a new word finds the
 * sequence odd or higher. This avoids fences, which the thread sanitizer does not know. */
void pl_seqlock_write(struct pl_seqlock *c, const uint64_t word[PL_SEQLOCK_WORDS]) {
    unsigned odd = (atomic_load_explicit(&c->seq, memory_order_relaxed) + 1) | 1;
    atomic_store_explicit(&c->seq, odd, memory_order_relaxed);
    for (int i = 0; i < PL_SEQLOCK_WORDS; i++)
        atomic_store_explicit(&c->word[i], word[i], memory_order_release);
    atomic_store(&c->seq, odd + 1);
}

bool pl_seqlock_read(struct pl_seqlock *c, uint64_t word[PL_SEQLOCK_WORDS], unsigned *seq) {
    unsigned before = atomic_load_explicit(&c->seq, memory_order_acquire);
    if (before & 1) return false;
    for (int i = 0; i < PL_SEQLOCK_WORDS; i++)
        word[i] = atomic_load_explicit(&c->word[i], memory_order_acquire);
    *seq = before;
    return atomic_load(&c->seq) == before;
}

uint64_t pl_nap_on(atomic_uint *word, unsigned seen, uint64_t now, uint64_t end,
                   bool *interrupted) {
    uint64_t left = end > now ? end - now : 0;
    *interrupted = !pl_futex_wait(word, seen, left < PL_LOOK_NS ? left : PL_LOOK_NS);
    return pl_now_ns();
}

uint64_t pl_sleep_on(atomic_uint *word, unsigned seen, uint64_t now, uint64_t end) {
    bool interrupted;
    return pl_nap_on(word, seen, now, end, &interrupted);
}

uint64_t pl_until(uint64_t now, uint64_t ns) {
    return ns > PL_FOREVER - now ? PL_FOREVER : now + ns;
}

uint64_t pl_bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

double pl_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
