#include "base/heap.h"

#include <stdlib.h>

#include "base/status.h"

/* (when, seq) as one number, so that a comparison is two instructions and no branch. */
__extension__ typedef unsigned __int128 heap_key;

static heap_key heap_key_of(uint64_t when_ns, uint64_t seq) {
    return (heap_key)when_ns << 64 | seq;
}

static bool heap_before(const struct pl_timed *a, const struct pl_timed *b) {
    return heap_key_of(a->when_ns, a->seq) < heap_key_of(b->when_ns, b->seq);
}

/* Returns the hole i or its ancestor where an item with this key belongs, and moves those in
 * between down. */
static size_t heap_rise(struct pl_heap *h, size_t i, heap_key key) {
    while (i > 0) {
        const struct pl_timed *parent = &h->item[(i - 1) / 4];
        if (key >= heap_key_of(parent->when_ns, parent->seq)) break;
        h->item[i] = *parent;
        i = (i - 1) / 4;
    }
    return i;
}

/* After the last item there are at least this many sentinels, which come after every event, so that
 * siblings are always four. */
#define HEAP_SENTINELS 3

static void heap_fill(struct pl_heap *h, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) h->item[i].when_ns = h->item[i].seq = UINT64_MAX;
}

/* Returns the earliest of the four siblings at `first`. Branches would be unpredictable, and what a
 * compiler makes of ?: is often one. */
static inline size_t heap_earliest(const struct pl_heap *h, size_t first) {
    const struct pl_timed *s = &h->item[first];
    size_t a = heap_before(&s[1], &s[0]), b = 2 + (size_t)heap_before(&s[3], &s[2]);
    size_t all = 0 - (size_t)heap_before(&s[b], &s[a]); /* every bit, if b is earlier */
    return first + (a ^ ((a ^ b) & all));
}

/* Returns the hole i or its descendant where an item with this key belongs, and moves those in
 * between up. */
static inline size_t heap_sink(struct pl_heap *h, size_t i, heap_key key) {
    for (size_t child; (child = 4 * i + 1) < h->n; i = child) {
        /* prefetch: without a branch to predict, the processor would wait for the next level */
        size_t next = 4 * child + 1;
        for (size_t c = 0; c < 16 && next + 16 <= h->n; c += 2)
            __builtin_prefetch(&h->item[next + c]);
        child = heap_earliest(h, child);
        const struct pl_timed *c = &h->item[child];
        if (key <= heap_key_of(c->when_ns, c->seq)) break;
        h->item[i] = *c;
    }
    return i;
}

static void heap_sink_item(struct pl_heap *h, size_t i, struct pl_timed it) {
    i = heap_sink(h, i, heap_key_of(it.when_ns, it.seq));
    h->item[i] = it;
}

static int heap_grow(struct pl_heap *h) {
    size_t room = h->room ? 2 * h->room : 64;
    struct pl_timed *item = realloc(h->item, (room + HEAP_SENTINELS) * sizeof *item);
    if (!item) return PL_ENOMEM;
    h->item = item;
    h->room = room;
    heap_fill(h, h->n, room + HEAP_SENTINELS);
    return PL_OK;
}

int pl_heap_push(struct pl_heap *h, uint64_t when_ns, int32_t what, int32_t who, uint64_t task) {
    heap_key key = heap_key_of(when_ns, h->seq);
    if (!h->hole && h->n == h->room && heap_grow(h)) return PL_ENOMEM;
    size_t i = h->n++;
    i = h->hole ? heap_sink(h, 0, key) : heap_rise(h, i, key);
    h->hole = false;
    /* field by field: a struct that was just written in parts is slow to copy as a whole */
    struct pl_timed *it = &h->item[i];
    it->when_ns = when_ns;
    it->seq = h->seq++;
    it->task = task;
    it->who = who;
    it->what = what;
    return PL_OK;
}

void pl_heap_close(struct pl_heap *h) {
    struct pl_timed last = h->item[h->n];
    h->hole = false;
    heap_fill(h, h->n, h->n + 1);
    if (h->n) heap_sink_item(h, 0, last);
}

void pl_heap_keep(struct pl_heap *h, bool (*keep)(const void *ctx, const struct pl_timed *),
                  const void *ctx) {
    size_t n = 0;
    if (h->hole) pl_heap_close(h);
    for (size_t i = 0; i < h->n; i++)
        if (keep(ctx, &h->item[i])) h->item[n++] = h->item[i];
    heap_fill(h, n, h->n);
    h->n = n;
    for (size_t i = (n + 2) / 4; i-- > 0;) heap_sink_item(h, i, h->item[i]);
}

void pl_heap_free(struct pl_heap *h) {
    free(h->item);
    *h = (struct pl_heap){0};
}
