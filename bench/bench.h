/* What the benchmarks share: a watch, medians, memory full of numbers. Compared things are timed in
 * turn, repetition by repetition, and medians are compared, so that a neighbour on the machine
 * slows both. */
#ifndef PL_BENCH_H
#define PL_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "base/status.h"

static inline double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts t. */
static inline double bench_median(double *t, int n) {
    qsort(t, (size_t)n, sizeof *t, bench_order);
    return t[n / 2];
}

/* A benchmark that cannot run says why and ends. */
static inline void bench_need(int ok, const char *why) {
    if (ok) return;
    fprintf(stderr, "benchmark: %s\n", why);
    exit(1);
}

/* [n] numbers around 0; aligned like the library's own vectors. */
static inline float *bench_floats(size_t n) {
    struct pl_rng rng;
    float *p = aligned_alloc(64, (n * sizeof *p + 64) & ~(size_t)63);
    bench_need(p != NULL, "out of memory");
    pl_rng_init(&rng, 1, PL_STREAM_TEST, 0, 0);
    for (size_t i = 0; i < n; i++) p[i] = (float)pl_rng_unit(&rng) - 0.5f;
    return p;
}

#endif
