#include "core/gram.h"

#include <math.h>
#include <string.h>

#include "base/isa.h"

#define GRAM_SIDE 3 /* rows of a tile: its sums and what they are made of fit 16 registers */

#define GRAM_NAME gram_tile_baseline
#define GRAM_TARGET
#define GRAM_KEEP(v)
#define GRAM_BYTES 16
#include "core/gram_tile.h"

#if defined(__x86_64__)
#define GRAM_NAME gram_tile_avx2
#define GRAM_TARGET __attribute__((target("avx2")))
#define GRAM_KEEP(v)
#define GRAM_BYTES 32
#include "core/gram_tile.h"

#define GRAM_NAME gram_tile_avx512
#define GRAM_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define GRAM_KEEP(v) __asm__("" : "+v"(v))
#define GRAM_BYTES 64
#include "core/gram_tile.h"
#endif

/* The variants of isa.h, in the order of enum pl_isa. */
static void (*const gram_tile[PL_N_ISAS])(const pl_real *const *x, const pl_real *const *y,
                                          size_t width, const pl_real *next, pl_real *out) = {
    gram_tile_baseline,
#if defined(__x86_64__)
    gram_tile_avx2,
    gram_tile_avx512,
#endif
};

/* room [n][n], lower triangle: the products in the precision of the elements. While one tile is
 * computed, one of the rows ahead is fetched. */
static void gram_products(int n, size_t width, const pl_real *const *x, size_t ahead,
                          pl_real *room) {
    int n_fetched = 0;
    for (int i = 0; i < n; i += GRAM_SIDE)
        for (int j = 0; j <= i; j += GRAM_SIDE) {
            const pl_real *a[GRAM_SIDE], *b[GRAM_SIDE], *next = x[i];
            pl_real out[GRAM_SIDE * GRAM_SIDE];
            for (int p = 0; p < GRAM_SIDE; p++) {
                a[p] = x[i + p < n ? i + p : n - 1];
                b[p] = x[j + p < n ? j + p : n - 1];
            }
            if (ahead >= width && n_fetched < n) next = x[n_fetched++] + width;
            gram_tile[pl_isa](a, i == j ? a : b, width, next, out);
            for (int p = 0; p < GRAM_SIDE * GRAM_SIDE; p++) {
                int row = i + p % GRAM_SIDE, column = j + p / GRAM_SIDE;
                if (row < n && column <= row) room[row * n + column] = out[p];
            }
        }
}

bool pl_gram_add(int n, size_t width, const pl_real *const *x, size_t ahead, pl_real *room,
                 double *sum, size_t stride) {
    gram_products(n, width, x, ahead, room);
    for (int i = 0; i < n; i++)
        if (!isfinite(room[i * n + i])) return false;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) sum[(size_t)i * stride + (size_t)j] += (double)room[i * n + j];
    return true;
}

void pl_gram_add_wide(int n, size_t width, const pl_real *const *x, double *sum, size_t stride) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double dot = 0;
            for (size_t c = 0; c < width; c++) dot += (double)x[i][c] * (double)x[j][c];
            sum[(size_t)i * stride + (size_t)j] += dot;
        }
}
