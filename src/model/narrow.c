#include "model/narrow.h"

#include <string.h>

#include "base/isa.h"

/* The lanes of a vector. Each lane has a sum of its own, so their number does not matter to the
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

bool pl_narrow_pairs(size_t n_out) {
    return n_out == 8 && narrow_lanes(16) == 16;
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

static PL_VARIANTS(void, narrow_interleave,
                   (const float *restrict a, const float *restrict b, size_t n,
                    float *restrict both),
                   (a, b, n, both)) {
    for (size_t i = 0; i < n; i++) {
        both[2 * i] = a[i];
        both[2 * i + 1] = b[i];
    }
}

void pl_narrow_interleave(const float *a, const float *b, size_t n, float *both) {
    narrow_interleave(a, b, n, both);
}

typedef float narrow_4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float narrow_8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float narrow_16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int64_t narrow_pairs __attribute__((vector_size(64), aligned(4), may_alias));
typedef int64_t narrow_pair __attribute__((aligned(4), may_alias));

#define NARROW_SUMS 10 /* sums computed at a time: as many as fit into registers */

/* Everything in this file is one loop: up to ten sums of vectors times numbers,
 *
 *     sum[s] += number[s * spacing] * vector,
 *
 * over n_lines lines of n_steps steps, each of which moves on in the numbers and in the vectors. */
struct narrow_walk {
    size_t n_lines, n_steps;
    size_t step, next;     /* numbers, from step to step and from line to line */
    size_t v_step, v_next; /* vectors */
};

/* The next so many of `left` sums, so that all loops have about as many. */
static inline size_t narrow_share(size_t left) {
    size_t n_loops = (left + NARROW_SUMS - 1) / NARROW_SUMS;
    return (left + n_loops - 1) / n_loops;
}

#define NARROW_NUMBER(p) (*(p))
#define NARROW_PAIR(p)                                                                             \
    ((narrow_16)((narrow_pairs){0} + *(const narrow_pair *)(p))) /* a, b, a, b, … */

/* One step, for n sums; n is a constant where this is inlined. Each sum is a variable of its own
 * rather than an element of an array, because gcc moves the elements of an array from register to
 * register. */
#define NARROW_STEP(type, NUMBER)                                                                  \
    do {                                                                                           \
        const type v = *(const type *)w;                                                           \
        a += NUMBER(p) * v;                                                                        \
        if (n > 1) b += NUMBER(p + spacing) * v;                                                   \
        if (n > 2) c += NUMBER(p + 2 * spacing) * v;                                               \
        if (n > 3) d += NUMBER(p + 3 * spacing) * v;                                               \
        if (n > 4) e += NUMBER(q) * v;                                                             \
        if (n > 5) f += NUMBER(q + spacing) * v;                                                   \
        if (n > 6) g += NUMBER(q + 2 * spacing) * v;                                               \
        if (n > 7) h += NUMBER(q + 3 * spacing) * v;                                               \
        if (n > 8) i += NUMBER(r) * v;                                                             \
        if (n > 9) j += NUMBER(r + spacing) * v;                                                   \
        p += step;                                                                                 \
        q += step;                                                                                 \
        r += step;                                                                                 \
        w += v_step;                                                                               \
    } while (0)

/* Two steps at a time: the processor issues four instructions per cycle, and products and sums are
 * three of them. */
#define NARROW_LOOP(name, type, NUMBER)                                                            \
    PL_ISA_BODY void name(const size_t n, const size_t spacing, const struct narrow_walk *walk,    \
                          const float *number, const float *vector, type *sum) {                   \
        const size_t step = walk->step, v_step = walk->v_step, four = 4 * spacing;                 \
        type a = sum[0], b = sum[1], c = sum[2], d = sum[3], e = sum[4], f = sum[5], g = sum[6];   \
        type h = sum[7], i = sum[8], j = sum[9];                                                   \
        for (size_t l = 0; l < walk->n_lines; l++) {                                               \
            const float *p = number, *q = number + four, *r = q + four, *w = vector;               \
            for (size_t k = walk->n_steps / 2; k > 0; k--) {                                       \
                NARROW_STEP(type, NUMBER);                                                         \
                NARROW_STEP(type, NUMBER);                                                         \
            }                                                                                      \
            if (walk->n_steps % 2) NARROW_STEP(type, NUMBER);                                      \
            number += walk->next;                                                                  \
            vector += walk->v_next;                                                                \
        }                                                                                          \
        sum[0] = a, sum[1] = b, sum[2] = c, sum[3] = d, sum[4] = e, sum[5] = f, sum[6] = g;        \
        sum[7] = h, sum[8] = i, sum[9] = j;                                                        \
    }                                                                                              \
    PL_ISA_BODY void name##_n(size_t n, const size_t spacing, const struct narrow_walk *walk,      \
                              const float *number, const float *vector, type *sum) {               \
        switch (n) {                                                                               \
        case 1: name(1, spacing, walk, number, vector, sum); break;                                \
        case 2: name(2, spacing, walk, number, vector, sum); break;                                \
        case 3: name(3, spacing, walk, number, vector, sum); break;                                \
        case 4: name(4, spacing, walk, number, vector, sum); break;                                \
        case 5: name(5, spacing, walk, number, vector, sum); break;                                \
        case 6: name(6, spacing, walk, number, vector, sum); break;                                \
        case 7: name(7, spacing, walk, number, vector, sum); break;                                \
        case 8: name(8, spacing, walk, number, vector, sum); break;                                \
        case 9: name(9, spacing, walk, number, vector, sum); break;                                \
        default: name(10, spacing, walk, number, vector, sum);                                     \
        }                                                                                          \
    }

NARROW_LOOP(narrow_sum_8, narrow_8, NARROW_NUMBER)
NARROW_LOOP(narrow_sum_16, narrow_16, NARROW_NUMBER)
NARROW_LOOP(narrow_sum_pair, narrow_16, NARROW_PAIR)

/* What is done with a finished sum. A sum of two pictures has a lane of the first, one of the
 * second, and so on. */
#define NARROW_EVEN(v) __builtin_shufflevector(v, v, 0, 2, 4, 6, 8, 10, 12, 14)
#define NARROW_ODD(v) __builtin_shufflevector(v, v, 1, 3, 5, 7, 9, 11, 13, 15)
#define NARROW_STORE_8(v, z, z2) (*(narrow_8 *)(z) = (v), (void)(z2))
#define NARROW_STORE_16(v, z, z2) (*(narrow_16 *)(z) = (v), (void)(z2))
#define NARROW_STORE_pair(v, z, z2)                                                                \
    (*(narrow_8 *)(z) = NARROW_EVEN(v), *(narrow_8 *)(z2) = NARROW_ODD(v))
#define NARROW_ADD_8(w, v) (*(narrow_8 *)(w) += (v))
#define NARROW_ADD_16(w, v) (*(narrow_16 *)(w) += (v))
#define NARROW_ADD_pair(w, v)                                                                      \
    (*(narrow_8 *)(w) = (*(narrow_8 *)(w) + NARROW_EVEN(v)) + NARROW_ODD(v))

/* Vectors of two widths are two types, so what follows is written several times by a macro: `lanes`
 * of columns, numbers of `per` pictures next to each other. */
#define NARROW(kind, type, lanes, per)                                                             \
    static PL_VARIANTS(void, narrow_product_##kind,                                                \
                       (const struct pl_rows *rows, const float *x, const float *packed,           \
                        size_t width, float *z, float *z2),                                        \
                       (rows, x, packed, width, z, z2)) {                                          \
        const size_t spacing = (per)*rows->step;                                                   \
        const struct narrow_walk walk = {.n_lines = rows->n_runs,                                  \
                                         .n_steps = rows->run,                                     \
                                         .step = (per),                                            \
                                         .next = (per)*rows->apart,                                \
                                         .v_step = (per) * (lanes),                                \
                                         .v_next = (per) * (lanes)*rows->run};                     \
        for (size_t l = 0; l < rows->n_lines; l++, x += (per)*rows->next) {                        \
            const float *at = x;                                                                   \
            for (size_t left = rows->width, n; left > 0; left -= n, at += n * spacing) {           \
                type sum[NARROW_SUMS] = {{0}};                                                     \
                n = narrow_share(left);                                                            \
                narrow_sum_##kind##_n(n, spacing, &walk, at, packed, sum);                         \
                for (size_t s = 0; s < n; s++, z += width, z2 += width)                            \
                    NARROW_STORE_##kind(sum[s], z, z2);                                            \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static PL_VARIANTS(void, narrow_gradient_##kind,                                               \
                       (const struct pl_rows *rows, const float *x, const float *delta,            \
                        size_t apart, size_t width, float *packed),                                \
                       (rows, x, delta, apart, width, packed)) {                                   \
        const struct narrow_walk walk = {.n_lines = rows->n_lines,                                 \
                                         .n_steps = rows->width,                                   \
                                         .step = (per)*rows->step,                                 \
                                         .next = (per)*rows->next,                                 \
                                         .v_step = (per)*width,                                    \
                                         .v_next = (per)*apart};                                   \
        for (size_t r = 0; r < rows->n_runs; r++, x += (per)*rows->apart) {                        \
            const float *at = x;                                                                   \
            for (size_t left = rows->run, n; left > 0; left -= n, at += n * (per)) {               \
                type sum[NARROW_SUMS] = {{0}};                                                     \
                n = narrow_share(left);                                                            \
                narrow_sum_##kind##_n(n, (per), &walk, at, delta, sum);                            \
                for (size_t s = 0; s < n; s++, packed += (lanes))                                  \
                    NARROW_ADD_##kind(packed, sum[s]);                                             \
            }                                                                                      \
        }                                                                                          \
    }

NARROW(8, narrow_8, 8, 1)
NARROW(16, narrow_16, 16, 1)
NARROW(pair, narrow_16, 8, 2)

void pl_narrow_product(const struct pl_rows *rows, const float *x, const float *packed,
                       size_t n_out, float *z) {
    size_t lanes = narrow_lanes(n_out), width = pl_narrow_width(n_out);
    size_t n_in = rows->n_runs * rows->run;
    for (size_t j = 0; j < width; j += lanes, packed += lanes * n_in)
        (lanes == 8 ? narrow_product_8 : narrow_product_16)(rows, x, packed, width, z + j, z);
}

void pl_narrow_gradient(const struct pl_rows *rows, const float *x, const float *d, size_t apart,
                        size_t n_out, float *packed) {
    size_t lanes = narrow_lanes(n_out), width = pl_narrow_width(n_out);
    size_t n_in = rows->n_runs * rows->run;
    for (size_t j = 0; j < width; j += lanes, packed += lanes * n_in)
        (lanes == 8 ? narrow_gradient_8 : narrow_gradient_16)(rows, x, d + j, apart, width, packed);
}

void pl_narrow_product_pair(const struct pl_rows *rows, const float *x, const float *packed,
                            float *z, float *z2) {
    narrow_product_pair(rows, x, packed, 8, z, z2);
}

void pl_narrow_gradient_pair(const struct pl_rows *rows, const float *x, const float *d,
                             size_t apart, float *packed) {
    narrow_gradient_pair(rows, x, d, apart, 8, packed);
}
