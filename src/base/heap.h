/* A queue of timed events: a 4-ary heap ordered by (when, seq). The event pushed first wins a tie,
 * so a run is the same on every machine. */
#ifndef PL_BASE_HEAP_H
#define PL_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_timed {
    uint64_t when_ns;
    uint64_t seq; /* assigned by pl_heap_push */
    uint64_t task;
    int32_t who;
    int32_t what;
};

struct pl_heap {
    struct pl_timed *item;
    size_t n, room; /* items, and how many there may be before it has to grow */
    uint64_t seq;
    bool hole; /* item[0] was removed, so the last is item[n]; the next push fills its place */
};

/* Returns 0 or PL_ENOMEM. A zeroed struct pl_heap is an empty heap. */
int pl_heap_push(struct pl_heap *h, uint64_t when_ns, int32_t what, int32_t who, uint64_t task);

/* Fills the place of the item that was removed last. An event most often leads to another one, so
 * that place is kept open for it until somebody looks. */
void pl_heap_close(struct pl_heap *h);

/* Returns the earliest event, or NULL if there is none; valid until the next push or pop. */
static inline const struct pl_timed *pl_heap_top(struct pl_heap *h) {
    if (h->hole) pl_heap_close(h);
    return h->n ? &h->item[0] : NULL;
}

/* Removes and returns the earliest event. The heap must not be empty. */
static inline struct pl_timed pl_heap_pop(struct pl_heap *h) {
    if (h->hole) pl_heap_close(h);
    h->hole = true;
    h->n--;
    return h->item[0];
}

/* Removes the events for which keep() returns false. The others keep their order. */
void pl_heap_keep(struct pl_heap *h, bool (*keep)(const void *ctx, const struct pl_timed *),
                  const void *ctx);

void pl_heap_free(struct pl_heap *h);

#endif
