#include "base/heap.h"

#include <stdlib.h>

#include "base/status.h"

static bool heap_before(const struct pl_timed *a, const struct pl_timed *b) {
    return a->when_ns != b->when_ns ? a->when_ns < b->when_ns : a->seq < b->seq;
}

/* Stores `it` at the hole i or at one of its ancestors. */
static void heap_rise(struct pl_heap *h, size_t i, struct pl_timed it) {
    while (i > 0 && heap_before(&it, &h->item[(i - 1) / 4])) {
        h->item[i] = h->item[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h->item[i] = it;
}

/* Returns the earliest of up to four siblings starting at `first`. The branch would be
 * unpredictable, so a full set of four is compared without one. */
static size_t heap_earliest(const struct pl_heap *h, size_t first) {
    const struct pl_timed *s = &h->item[first];
    if (first + 4 <= h->n) {
        size_t a = heap_before(&s[1], &s[0]) ? 1 : 0, b = heap_before(&s[3], &s[2]) ? 3 : 2;
        return first + (heap_before(&s[b], &s[a]) ? b : a);
    }
    size_t best = first;
    for (size_t c = first + 1; c < h->n; c++)
        if (heap_before(&h->item[c], &h->item[best])) best = c;
    return best;
}

/* Stores `it` at the hole i or at one of its descendants. */
static void heap_sink(struct pl_heap *h, size_t i, struct pl_timed it) {
    for (size_t child; (child = 4 * i + 1) < h->n; i = child) {
        /* prefetch: without a branch to predict, the processor would wait for the next level */
        size_t next = 4 * child + 1;
        for (size_t c = 0; c < 16 && next + 16 <= h->n; c += 2)
            __builtin_prefetch(&h->item[next + c]);
        child = heap_earliest(h, child);
        if (!heap_before(&h->item[child], &it)) break;
        h->item[i] = h->item[child];
    }
    h->item[i] = it;
}

int pl_heap_push(struct pl_heap *h, uint64_t when_ns, int32_t what, int32_t who, uint64_t task) {
    if (h->hole) {
        h->hole = false;
        h->n++;
        heap_sink(h, 0, (struct pl_timed){when_ns, h->seq++, task, who, what});
        return PL_OK;
    }
    if (h->n == h->room) {
        size_t room = h->room ? 2 * h->room : 64;
        struct pl_timed *item = realloc(h->item, room * sizeof *item);
        if (!item) return PL_ENOMEM;
        h->item = item;
        h->room = room;
    }
    heap_rise(h, h->n++, (struct pl_timed){when_ns, h->seq++, task, who, what});
    return PL_OK;
}

void pl_heap_close(struct pl_heap *h) {
    struct pl_timed last = h->item[h->n];
    h->hole = false;
    if (h->n) heap_sink(h, 0, last);
}

struct pl_timed pl_heap_pop(struct pl_heap *h) {
    if (h->hole) pl_heap_close(h);
    h->hole = true;
    h->n--;
    return h->item[0];
}

void pl_heap_keep(struct pl_heap *h, bool (*keep)(const void *ctx, const struct pl_timed *),
                  const void *ctx) {
    size_t n = 0;
    if (h->hole) pl_heap_close(h);
    for (size_t i = 0; i < h->n; i++)
        if (keep(ctx, &h->item[i])) h->item[n++] = h->item[i];
    h->n = n;
    for (size_t i = (n + 2) / 4; i-- > 0;) heap_sink(h, i, h->item[i]);
}

void pl_heap_free(struct pl_heap *h) {
    free(h->item);
    *h = (struct pl_heap){0};
}
