#include "limits.h"

#include "base/isa.h"

PL_VARIANTS(void, bench_triad,
            (float *restrict a, const float *restrict b, const float *restrict c, float s,
             size_t n),
            (a, b, c, s, n)) {
    for (size_t i = 0; i < n; i++) a[i] = b[i] - s * c[i];
}

PL_VARIANTS(double, bench_sum, (const float *x, size_t n), (x, n)) {
    float lane[64] = {0};
    double sum = 0;
    for (size_t i = 0; i + 64 <= n; i += 64)
        for (size_t l = 0; l < 64; l++) lane[l] += x[i + l];
    for (int l = 0; l < 64; l++) sum += (double)lane[l];
    return sum;
}
