/* The median of the last values, against a sort of them. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "core/recent.h"
#include "test.h"

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

TEST(median_of_the_last_values) {
    static struct pl_recent r;
    static uint64_t all[5 * PL_RECENT], last[PL_RECENT];
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, 0);
    assert_int_equal(pl_recent_median(&r), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        all[i] = (uint64_t)(pl_rng_unit(&rng) * (i % 3 ? 20 : 1e15)); /* equal ones, large ones */
        pl_recent_add(&r, all[i]);
        size_t n = i + 1 < PL_RECENT ? i + 1 : PL_RECENT;
        memcpy(last, &all[i + 1 - n], n * sizeof *last);
        qsort(last, n, sizeof *last, ascending);
        assert_int_equal(pl_recent_median(&r), last[(n - 1) / 2]);
    }
}
