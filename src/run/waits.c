#include "run/waits.h"

void pl_waits_note(struct pl_waits *w, uint64_t now_ns, uint64_t waited_ns) {
    uint64_t from_ns = now_ns > waited_ns ? now_ns - waited_ns : 0;
    uint64_t last_ns = w->n ? w->last[(w->n - 1) % PL_WAITS].to_ns : 0;
    if (from_ns < last_ns) from_ns = last_ns;
    if (from_ns >= now_ns) return;
    w->last[w->n % PL_WAITS].from_ns = from_ns;
    w->last[w->n++ % PL_WAITS].to_ns = now_ns;
}

uint64_t pl_waits_between(const struct pl_waits *w, uint64_t from_ns, uint64_t to_ns) {
    uint64_t sum = 0, oldest = w->n > PL_WAITS ? w->n - PL_WAITS : 0;
    for (uint64_t i = w->n; i-- > oldest;) { /* the last one first */
        uint64_t from = w->last[i % PL_WAITS].from_ns, to = w->last[i % PL_WAITS].to_ns;
        if (to <= from_ns) break;
        if (from < from_ns) from = from_ns;
        if (to > to_ns) to = to_ns;
        if (to > from) sum += to - from;
    }
    return sum;
}
