/* bfloat16: the upper half of a float. Clients with a GPU exchange vectors in it, at half the
 * bytes; the server computes in floats. */
#ifndef PL_BASE_BF16_H
#define PL_BASE_BF16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Rounds to the nearest, and to even if two are as near; too large a number becomes infinite, and
 * what is not a number stays none. */
static inline uint16_t pl_bf16_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40; /* the payload may lie in the lower half alone */
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float pl_bf16_float(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void pl_bf16_narrow(const float *from, size_t n, uint16_t *to);
void pl_bf16_widen(const uint16_t *from, size_t n, float *to);

/* v[n] becomes n numbers in bfloat16, in the first half of its memory. */
void pl_bf16_narrow_here(float *v, size_t n);
/* The first half of v's memory has n numbers in bfloat16; they become v[n]. */
void pl_bf16_widen_here(float *v, size_t n);

#endif
