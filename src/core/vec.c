/* Sums in eight lanes: strict floating-point additions become independent and fill the vector
 * units, and their order depends only on n. */
#include <string.h>

#include "base/isa.h"
#include "core/rule.h"

#define LANES 8

static double vec_fold(const double *lane) {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

PL_VARIANTS(double, pl_vec_dot, (const pl_real *a, const pl_real *b, size_t n), (a, b, n)) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += (double)a[i + l] * (double)b[i + l];
    for (; i < n; i++) lane[i % LANES] += (double)a[i] * (double)b[i];
    return vec_fold(lane);
}

PL_VARIANTS(double, pl_vec_distance2, (const pl_real *a, const pl_real *b, size_t n), (a, b, n)) {
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            double d = (double)a[i + l] - (double)b[i + l];
            lane[l] += d * d;
        }
    for (; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        lane[i % LANES] += d * d;
    }
    return vec_fold(lane);
}

#define WIDE 32

PL_VARIANTS(bool, pl_vec_finite, (const pl_real *x, size_t n), (x, n)) {
    /* 0 times a finite value is 0; times anything else it is not a number, as is every sum of it */
    pl_real lane[WIDE] = {0};
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        for (size_t l = 0; l < WIDE; l++) lane[l] += 0 * x[i + l];
    for (; i < n; i++) lane[0] += 0 * x[i];
    for (size_t l = 1; l < WIDE; l++) lane[0] += lane[l];
    return lane[0] == 0;
}

/* One vector after the other: a single stream from memory. Several at once are a third slower. */
const pl_real *pl_vec_weighted(int n, const pl_real *const *vector, const double *weight,
                               size_t n_elements, pl_real *restrict out) {
    bool first = true;
    for (int m = 0; m < n; m++) {
        pl_real c = (pl_real)weight[m];
        const pl_real *restrict x = vector[m];
        if (c == 0) continue;
        if (first)
            for (size_t i = 0; i < n_elements; i++) out[i] = c * x[i];
        else
            for (size_t i = 0; i < n_elements; i++) out[i] += c * x[i];
        first = false;
    }
    if (first) memset(out, 0, n_elements * sizeof *out);
    return out;
}
