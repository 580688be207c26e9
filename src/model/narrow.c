#include "model/narrow.h"

#include <string.h>

#include "base/isa.h"

/* The lanes of a vector. Each lane is a column with a sum of its own, so they do not matter to the
 * results. */
static size_t narrow_lanes(size_t n_out) {
#if defined(__x86_64__)
    return n_out > 8 && pl_isa == PL_ISA_AVX512 ? 16 : 8;
#else
    (void)n_out;
    return 8;
#endif
}

size_t pl_narrow_width(size_t n_out) {
    size_t lanes = narrow_lanes(n_out);
    return (n_out + lanes - 1) / lanes * lanes;
}

/* packed [width / lanes][n_in][lanes]; lanes without a column are zero */
void pl_narrow_pack(const float *w, size_t n_in, size_t n_out, float *packed) {
    size_t lanes = narrow_lanes(n_out);
    memset(packed, 0, n_in * pl_narrow_width(n_out) * sizeof *packed);
    for (size_t j = 0; j < n_out; j++, w += n_in) {
        float *to = packed + j / lanes * lanes * n_in + j % lanes;
        for (size_t k = 0; k < n_in; k++) to[k * lanes] = w[k];
    }
}

void pl_narrow_unpack(const float *packed, size_t n_in, size_t n_out, float *w) {
    size_t lanes = narrow_lanes(n_out);
    for (size_t j = 0; j < n_out; j++, w += n_in) {
        const float *from = packed + j / lanes * lanes * n_in + j % lanes;
        for (size_t k = 0; k < n_in; k++) w[k] = from[k * lanes];
    }
}

typedef float narrow_8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float narrow_16 __attribute__((vector_size(64), aligned(4), may_alias));

/* Vectors of two widths are two types, so what follows is written twice by a macro. Each sum is a
 * variable of its own rather than an element of an array: gcc moves the elements of an array from
 * register to register. Eight additions that do not wait for each other fill two vector units. */
#define NARROW_AT(k) ((k) / rows->run * rows->apart + (k) % rows->run)
#define NARROW(lanes)                                                                              \
    static PL_VARIANTS(                                                                            \
        void, narrow_product_##lanes,                                                              \
        (const struct pl_rows *rows, const float *x, const float *packed, size_t width, float *z), \
        (rows, x, packed, width, z)) {                                                             \
        const size_t step = rows->step;                                                            \
        for (size_t l = 0; l < rows->n_lines; l++, x += rows->next) {                              \
            const float *at = x;                                                                   \
            size_t left = rows->width;                                                             \
            for (; left >= 8; left -= 8, at += 8 * step, z += 8 * width) {                         \
                narrow_##lanes a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0};      \
                narrow_##lanes h = {0};                                                            \
                const float *w = packed, *run = at;                                                \
                for (size_t r = 0; r < rows->n_runs; r++, run += rows->apart)                      \
                    for (const float *p = run, *q = run + 4 * step, *end = run + rows->run;        \
                         p < end; p++, q++, w += (lanes)) {                                        \
                        narrow_##lanes v = *(const narrow_##lanes *)w;                             \
                        a += p[0] * v;                                                             \
                        b += p[step] * v;                                                          \
                        c += p[2 * step] * v;                                                      \
                        d += p[3 * step] * v;                                                      \
                        e += q[0] * v;                                                             \
                        f += q[step] * v;                                                          \
                        g += q[2 * step] * v;                                                      \
                        h += q[3 * step] * v;                                                      \
                    }                                                                              \
                *(narrow_##lanes *)z = a;                                                          \
                *(narrow_##lanes *)(z + width) = b;                                                \
                *(narrow_##lanes *)(z + 2 * width) = c;                                            \
                *(narrow_##lanes *)(z + 3 * width) = d;                                            \
                *(narrow_##lanes *)(z + 4 * width) = e;                                            \
                *(narrow_##lanes *)(z + 5 * width) = f;                                            \
                *(narrow_##lanes *)(z + 6 * width) = g;                                            \
                *(narrow_##lanes *)(z + 7 * width) = h;                                            \
            }                                                                                      \
            for (; left >= 2; left -= 2, at += 2 * step, z += 2 * width) {                         \
                narrow_##lanes a = {0}, b = {0};                                                   \
                const float *w = packed, *run = at;                                                \
                for (size_t r = 0; r < rows->n_runs; r++, run += rows->apart)                      \
                    for (size_t k = 0; k < rows->run; k++, w += (lanes)) {                         \
                        a += run[k] * *(const narrow_##lanes *)w;                                  \
                        b += run[k + step] * *(const narrow_##lanes *)w;                           \
                    }                                                                              \
                *(narrow_##lanes *)z = a;                                                          \
                *(narrow_##lanes *)(z + width) = b;                                                \
            }                                                                                      \
            for (; left > 0; left--, at += step, z += width) {                                     \
                narrow_##lanes a = {0};                                                            \
                const float *w = packed, *run = at;                                                \
                for (size_t r = 0; r < rows->n_runs; r++, run += rows->apart)                      \
                    for (size_t k = 0; k < rows->run; k++, w += (lanes))                           \
                        a += run[k] * *(const narrow_##lanes *)w;                                  \
                *(narrow_##lanes *)z = a;                                                          \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static PL_VARIANTS(void, narrow_gradient_##lanes,                                              \
                       (const struct pl_rows *rows, const float *x, const float *delta,            \
                        size_t apart, size_t width, float *packed),                                \
                       (rows, x, delta, apart, width, packed)) {                                   \
        const size_t n_in = rows->n_runs * rows->run, step = rows->step;                           \
        narrow_##lanes *w = (narrow_##lanes *)packed;                                              \
        size_t k = 0;                                                                              \
        for (; k + 4 <= n_in; k += 4, w += 4) {                                                    \
            narrow_##lanes a = {0}, b = {0}, c = {0}, d = {0};                                     \
            const float *pa = x + NARROW_AT(k), *pb = x + NARROW_AT(k + 1), *line = delta;         \
            const float *pc = x + NARROW_AT(k + 2), *pd = x + NARROW_AT(k + 3);                    \
            for (size_t l = 0; l < rows->n_lines; l++, line += apart) {                            \
                const float *v = line;                                                             \
                for (size_t i = 0; i < rows->width * step; i += step, v += width) {                \
                    a += pa[i] * *(const narrow_##lanes *)v;                                       \
                    b += pb[i] * *(const narrow_##lanes *)v;                                       \
                    c += pc[i] * *(const narrow_##lanes *)v;                                       \
                    d += pd[i] * *(const narrow_##lanes *)v;                                       \
                }                                                                                  \
                pa += rows->next;                                                                  \
                pb += rows->next;                                                                  \
                pc += rows->next;                                                                  \
                pd += rows->next;                                                                  \
            }                                                                                      \
            w[0] += a;                                                                             \
            w[1] += b;                                                                             \
            w[2] += c;                                                                             \
            w[3] += d;                                                                             \
        }                                                                                          \
        for (; k < n_in; k++, w++) {                                                               \
            narrow_##lanes a = {0};                                                                \
            const float *p = x + NARROW_AT(k), *line = delta;                                      \
            for (size_t l = 0; l < rows->n_lines; l++, line += apart, p += rows->next)             \
                for (size_t i = 0; i < rows->width; i++)                                           \
                    a += p[i * step] * *(const narrow_##lanes *)(line + i * width);                \
            *w += a;                                                                               \
        }                                                                                          \
    }

NARROW(8)
NARROW(16)

void pl_narrow_product(const struct pl_rows *rows, const float *x, const float *packed,
                       size_t n_out, float *z) {
    size_t lanes = narrow_lanes(n_out), width = pl_narrow_width(n_out);
    size_t n_in = rows->n_runs * rows->run;
    for (size_t j = 0; j < width; j += lanes, packed += lanes * n_in)
        (lanes == 8 ? narrow_product_8 : narrow_product_16)(rows, x, packed, width, z + j);
}

void pl_narrow_gradient(const struct pl_rows *rows, const float *x, const float *d, size_t apart,
                        size_t n_out, float *packed) {
    size_t lanes = narrow_lanes(n_out), width = pl_narrow_width(n_out);
    size_t n_in = rows->n_runs * rows->run;
    for (size_t j = 0; j < width; j += lanes, packed += lanes * n_in)
        (lanes == 8 ? narrow_gradient_8 : narrow_gradient_16)(rows, x, d + j, apart, width, packed);
}
