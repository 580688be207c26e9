/* Threads: any. */
#include "transport/shm_layout.h"

#include <string.h>

#include "sys/clock.h"
#include "sys/futex.h"
#include "sys/segment.h"

#define MAX_MANY (UINT64_C(1) << 20)  /* workers, versions, slots */
#define MAX_DIM (UINT64_C(1) << 38)   /* so that no size below overflows */
#define MAX_AREAS (UINT64_C(1) << 46) /* bytes; there are hardly more addresses */

static size_t layout_round(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static bool layout_within(uint64_t n, uint64_t max) {
    return n >= 1 && n <= max;
}

static bool layout_plausible(const struct pl_shape *s) {
    return layout_within(s->n_workers, MAX_MANY) && layout_within(s->n_versions, MAX_MANY) &&
           layout_within(s->n_slots, MAX_MANY) && layout_within(s->dim, MAX_DIM) &&
           s->n_evaluators <= MAX_MANY && s->n_own <= s->n_slots &&
           (s->n_own || !s->n_evaluators) && s->half <= (PL_HALF_RESULT | PL_HALF_MODEL) &&
           (s->n_own || !s->half);
}

uint64_t pl_shape_seats(const struct pl_shape *s) {
    return s->n_workers + s->n_evaluators;
}

/* The size of an area and that of all are bounded, because they are products of three numbers. */
static bool layout_areas(struct pl_shape *s) {
    uint64_t seats = pl_shape_seats(s);
    size_t mailbox = layout_round(sizeof(struct pl_area_head), PL_PAGE);
    size_t head = layout_round(s->mailboxes, PL_PAGE);
    if (s->n_own > MAX_AREAS / s->stride) return false;
    s->mailbox_step = layout_round(mailbox + s->n_own * s->stride, PL_PAGE);
    if (seats > MAX_AREAS / s->mailbox_step) return false;
    s->mailboxes = head;
    s->slots = head + mailbox;
    s->versions = head + seats * s->mailbox_step;
    s->versions_end = layout_round(s->versions + s->n_versions * s->stride, PL_PAGE);
    if (s->half & PL_HALF_MODEL) {
        s->half_stride = layout_round(s->dim * sizeof(uint16_t), 64);
        s->halves = s->versions_end;
        s->versions_end = layout_round(s->halves + s->n_versions * s->half_stride, PL_PAGE);
    }
    s->size = s->versions_end;
    return true;
}

bool pl_shape_of(struct pl_shape *s) {
    if (!layout_plausible(s)) return false;
    size_t words = (pl_shape_seats(s) + 63) / 64;
    s->halves = s->half_stride = 0;
    s->mailboxes = layout_round(sizeof(struct pl_head) + words * sizeof(uint64_t), 64);
    s->stride = layout_round(s->dim * sizeof(float), 64);
    if (s->n_own) return layout_areas(s);
    s->mailbox_step = sizeof(struct pl_mailbox);
    s->versions = layout_round(s->mailboxes + s->n_workers * s->mailbox_step, PL_PAGE);
    s->versions_end = s->slots = layout_round(s->versions + s->n_versions * s->stride, PL_PAGE);
    s->size = layout_round(s->slots + s->n_slots * s->stride, PL_PAGE);
    return true;
}

struct pl_mailbox *pl_shape_mailbox(const struct pl_shape *s, void *at, int seat) {
    return (struct pl_mailbox *)(void *)((char *)at + s->mailboxes +
                                         (size_t)seat * s->mailbox_step);
}

/* Whether it is one of n vectors that begin at `from`. */
static bool layout_is_vector(uint64_t offset, size_t from, size_t stride, uint64_t n) {
    return offset >= from && (offset - from) / stride < n && (offset - from) % stride == 0;
}

bool pl_shape_is_version(const struct pl_shape *s, uint64_t offset) {
    return layout_is_vector(offset, s->versions, s->stride, s->n_versions);
}

int pl_shape_slot_owner(const struct pl_shape *s, uint64_t offset) {
    if (s->n_own == 0) return layout_is_vector(offset, s->slots, s->stride, s->n_slots) ? -1 : -2;
    if (offset < s->slots) return -2;
    uint64_t owner = (offset - s->slots) / s->mailbox_step;
    if (owner >= s->n_workers) return -2;
    size_t first = s->slots + owner * s->mailbox_step;
    return layout_is_vector(offset, first, s->stride, s->n_own) ? (int)owner : -2;
}

bool pl_shape_in_slots(const struct pl_shape *s, uint64_t offset, uint64_t n) {
    size_t room = s->n_slots * s->stride;
    return s->n_own == 0 && offset >= s->slots && offset % sizeof(float) == 0 &&
           n <= room / sizeof(float) && offset - s->slots <= room - n * sizeof(float);
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
