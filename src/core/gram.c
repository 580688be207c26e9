#include "core/gram.h"

#include <cblas.h>
#include <math.h>
#include <stdbool.h>

void pl_gram_init(void) {
    if (openblas_get_num_threads() != 1) openblas_set_num_threads(1);
}

static void gram_single(int n, size_t width, const float *x, size_t stride, float *out) {
    cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, n, (int)width, 1, x, (int)stride, 0, out,
                n);
}

static void gram_double(int n, size_t width, const double *x, size_t stride, double *out) {
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, n, (int)width, 1, x, (int)stride, 0, out,
                n);
}

/* Squares of large single-precision numbers overflow; such a block is computed again in double. */
static bool gram_fits(int n, const pl_real *room) {
    for (int i = 0; i < n; i++)
        if (!isfinite(room[i * n + i])) return false;
    return true;
}

static void gram_wide(int n, size_t width, const pl_real *x, size_t stride, double *sum) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++) {
            double dot = 0;
            for (size_t c = 0; c < width; c++)
                dot += (double)x[(size_t)i * stride + c] * (double)x[(size_t)j * stride + c];
            sum[i * n + j] += dot;
        }
    }
}

void pl_gram_add(int n, size_t width, const pl_real *x, size_t stride, pl_real *room, double *sum) {
    _Generic(x, const float *: gram_single, const double *: gram_double)(n, width, x, stride, room);
    if (!gram_fits(n, room)) {
        gram_wide(n, width, x, stride, sum);
        return;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) sum[i * n + j] += (double)room[i * n + j];
}
