#include "core/recent.h"

#include <stddef.h>
#include <string.h>

/* How many of the sorted values are less. */
static size_t recent_less(const uint64_t *sorted, size_t n, uint64_t value) {
    size_t from = 0;
    while (from < n) {
        size_t middle = from + (n - from) / 2;
        if (sorted[middle] < value)
            from = middle + 1;
        else
            n = middle;
    }
    return from;
}

void pl_recent_add(struct pl_recent *r, uint64_t value) {
    uint64_t *slot = &r->value[r->n % PL_RECENT];
    size_t n = r->n < PL_RECENT ? (size_t)r->n : PL_RECENT;
    if (n == PL_RECENT) {
        size_t old = recent_less(r->sorted, n--, *slot);
        memmove(&r->sorted[old], &r->sorted[old + 1], (n - old) * sizeof *r->sorted);
    }
    size_t at = recent_less(r->sorted, n, value);
    memmove(&r->sorted[at + 1], &r->sorted[at], (n - at) * sizeof *r->sorted);
    r->sorted[at] = value;
    *slot = value;
    r->n++;
}

uint64_t pl_recent_median(const struct pl_recent *r) {
    size_t n = r->n < PL_RECENT ? (size_t)r->n : PL_RECENT;
    return n ? r->sorted[(n - 1) / 2] : 0;
}
