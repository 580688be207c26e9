#include "base/bf16.h"

#define BF16_BLOCK 1024

void pl_bf16_narrow(const float *from, size_t n, uint16_t *to) {
    for (size_t i = 0; i < n; i++) to[i] = pl_bf16_of(from[i]);
}

void pl_bf16_widen(const uint16_t *from, size_t n, float *to) {
    for (size_t i = 0; i < n; i++) to[i] = pl_bf16_float(from[i]);
}

/* From the beginning: a block overwrites numbers that were read. */
void pl_bf16_narrow_here(float *v, size_t n) {
    uint16_t block[BF16_BLOCK];
    char *halves = (char *)v;
    for (size_t from = 0; from < n; from += BF16_BLOCK) {
        size_t m = n - from < BF16_BLOCK ? n - from : BF16_BLOCK;
        pl_bf16_narrow(v + from, m, block);
        memcpy(halves + from * sizeof *block, block, m * sizeof *block);
    }
}

/* From the end: a block overwrites halves that are behind it, or that were read. */
void pl_bf16_widen_here(float *v, size_t n) {
    uint16_t block[BF16_BLOCK];
    const char *halves = (const char *)v;
    while (n > 0) {
        size_t from = (n - 1) / BF16_BLOCK * BF16_BLOCK, m = n - from;
        memcpy(block, halves + from * sizeof *block, m * sizeof *block);
        pl_bf16_widen(block, m, v + from);
        n = from;
    }
}
