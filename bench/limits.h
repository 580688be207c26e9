/* What the machine can do at best: loops that only wait for memory, in the instruction set that the
 * library uses. */
#ifndef PL_BENCH_LIMITS_H
#define PL_BENCH_LIMITS_H

#include <stddef.h>

/* a = b - s c: 12 bytes per element. */
void bench_triad(float *restrict a, const float *restrict b, const float *restrict c, float s,
                 size_t n);

/* The sum of x [n], whose remainder after 64ths is not read: 4 bytes per element. */
double bench_sum(const float *x, size_t n);

#endif
