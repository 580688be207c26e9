/* What the benchmarks share: a watch, medians, memory full of numbers, and the rows of the summary.
 * Compared things are timed in turn, repetition by repetition, and medians are compared, so that a
 * neighbour on the machine slows both. */
#ifndef PL_BENCH_H
#define PL_BENCH_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/isa.h"
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

/* --- rows of the summary ----------------------------------------------------------------- */

/* Rows are appended to the file that $BENCH_ROWS names, one JSON object per line; NULL if it names
 * none. Names, units and reasons are plain text without quotes and backslashes. */
static inline FILE *bench_rows(void) {
    const char *path = getenv("BENCH_ROWS");
    if (!path || !*path) return NULL;
    FILE *f = fopen(path, "a");
    bench_need(f != NULL, "the file that BENCH_ROWS names cannot be written");
    return f;
}

/* The row cannot be measured here. */
static inline void bench_missing(const char *key, const char *why) {
    FILE *f = bench_rows();
    if (!f) return;
    fprintf(f, "{\"key\":\"%s\",\"missing\":\"%s\"}\n", key, why);
    bench_need(fclose(f) == 0, "the file that BENCH_ROWS names cannot be written");
}

/* `key` is a key of bench/aims, which has the words and the aim of the row. `ours` and `limit` are
 * in `unit`; `peer` is what the limit is that of. */
static inline void bench_row(const char *key, double ours, const char *unit, const char *peer,
                             double limit, double ratio) {
    if (!isfinite(ours) || !isfinite(limit) || !isfinite(ratio)) {
        bench_missing(key, "the measurement gave no number");
        return;
    }
    FILE *f = bench_rows();
    if (!f) return;
    fprintf(f,
            "{\"key\":\"%s\",\"ours\":%.6g,\"unit\":\"%s\",\"peer\":\"%s\",\"limit\":%.6g,"
            "\"ratio\":%.6g}\n",
            key, ours, unit, peer, limit, ratio);
    bench_need(fclose(f) == 0, "the file that BENCH_ROWS names cannot be written");
}

/* A fact about the build, the machine or a peer, such as a version. */
static inline void bench_about(const char *name, const char *value) {
    FILE *f = bench_rows();
    if (!f) return;
    fprintf(f, "{\"about\":\"%s\",\"value\":\"%s\"}\n", name, value);
    bench_need(fclose(f) == 0, "the file that BENCH_ROWS names cannot be written");
}

/* What every program reports about itself. */
static inline void bench_begin(void) {
    bench_about("instructions", pl_isa_name(pl_isa));
#ifdef __clang__
    bench_about("compiler", "clang " __clang_version__);
#else
    bench_about("compiler", "gcc " __VERSION__);
#endif
}

#endif
