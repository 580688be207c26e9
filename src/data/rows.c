#include "data/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

int pl_rows_array(void *out, uint64_t n, uint64_t size, struct pl_why *why) {
    if (n > PL_DATA_BYTES_MAX / size || n * size > SIZE_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "the data set needs an array of more than %llu GiB, the largest allowed",
                       (unsigned long long)(PL_DATA_BYTES_MAX >> 30));
    void *fresh = malloc(n > 0 ? (size_t)(n * size) : 1);
    if (!fresh)
        return pl_fail(why, PL_ENOMEM, "out of memory: the data set needs an array of %llu bytes",
                       (unsigned long long)(n * size));
    memcpy(out, &fresh, sizeof fresh); /* the caller's pointer has another type */
    return PL_OK;
}

int pl_rows_deck(uint64_t n, uint64_t seed, uint32_t use, uint32_t **out, struct pl_why *why) {
    uint32_t *deck = NULL;
    struct pl_rng rng;
    int rc = pl_rows_array(&deck, n, sizeof *deck, why);
    if (rc) return rc;
    pl_rng_init(&rng, seed, PL_STREAM_DATA, use, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = pl_rng_below(&rng, i + 1);
        deck[i] = deck[j];
        deck[j] = i;
    }
    *out = deck;
    return PL_OK;
}
