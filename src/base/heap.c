#include "base/heap.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/status.h"

static bool heap_before(const struct pl_timed *a, const struct pl_timed *b) {
    return a->when_ns != b->when_ns ? a->when_ns < b->when_ns : a->seq < b->seq;
}

int pl_heap_push(struct pl_heap *h, uint64_t when_ns, int32_t what, int32_t who, uint64_t task) {
    if (h->n == h->room) {
        size_t room = h->room ? 2 * h->room : 64;
        struct pl_timed *item = realloc(h->item, room * sizeof *item);
        if (!item) return PL_ENOMEM;
        h->item = item;
        h->room = room;
    }
    struct pl_timed it = {when_ns, h->seq++, task, who, what};
    size_t i = h->n++;
    while (i > 0 && heap_before(&it, &h->item[(i - 1) / 4])) {
        h->item[i] = h->item[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h->item[i] = it;
    return PL_OK;
}

const struct pl_timed *pl_heap_top(const struct pl_heap *h) {
    return h->n ? &h->item[0] : NULL;
}

struct pl_timed pl_heap_pop(struct pl_heap *h) {
    struct pl_timed top = h->item[0], last = h->item[--h->n];
    size_t i = 0;
    for (size_t child; (child = 4 * i + 1) < h->n; i = child) {
        size_t end = child + 4 < h->n ? child + 4 : h->n;
        for (size_t c = child + 1; c < end; c++)
            if (heap_before(&h->item[c], &h->item[child])) child = c;
        if (!heap_before(&h->item[child], &last)) break;
        h->item[i] = h->item[child];
    }
    if (h->n) h->item[i] = last;
    return top;
}

void pl_heap_free(struct pl_heap *h) {
    free(h->item);
    *h = (struct pl_heap){0};
}
