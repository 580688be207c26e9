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

/* How many of `left` sums come next, so that all loops have about as many. */
static inline size_t narrow_share(size_t left) {
    size_t n_loops = (left + NARROW_SUMS - 1) / NARROW_SUMS;
    return (left + n_loops - 1) / n_loops;
}

/* What is multiplied by vectors of `type`: a number; a pair of them, as a, b, a, b, …; or a vector.
 */
#define NARROW_NUMBER(type, p) (*(p))
#define NARROW_PAIR(type, p) ((narrow_16)((narrow_pairs){0} + *(const narrow_pair *)(p)))
#define NARROW_VECTOR(type, p) (*(const type *)(p))

/* What is done with a sum v: it is stored, or added to what is there. A sum of two pictures has a
 * lane of the first, one of the second, and so on; the first is added first. */
#define NARROW_EVEN(v) __builtin_shufflevector(v, v, 0, 2, 4, 6, 8, 10, 12, 14)
#define NARROW_ODD(v) __builtin_shufflevector(v, v, 1, 3, 5, 7, 9, 11, 13, 15)
#define NARROW_STORE(type, v, z, z2) (*(type *)(z) = (v), (void)(z2))
#define NARROW_ADD(type, v, z, z2) (*(type *)(z) += (v), (void)(z2))
#define NARROW_STORE_PAIR(type, v, z, z2)                                                          \
    (*(narrow_8 *)(z) = NARROW_EVEN(v), *(narrow_8 *)(z2) = NARROW_ODD(v))
#define NARROW_ADD_PAIR(type, v, z, z2)                                                            \
    (*(narrow_8 *)(z) = (*(narrow_8 *)(z) + NARROW_EVEN(v)) + NARROW_ODD(v), (void)(z2))

/* One step, for n sums; n is a constant where this is inlined. Each sum is a variable of its own
 * rather than an element of an array, because gcc moves the elements of an array from register to
 * register. */
#define NARROW_STEP(type, NUMBER)                                                                  \
    do {                                                                                           \
        const type v = *(const type *)w;                                                           \
        a += NUMBER(type, p) * v;                                                                  \
        if (n > 1) b += NUMBER(type, p + spacing) * v;                                             \
        if (n > 2) c += NUMBER(type, p + 2 * spacing) * v;                                         \
        if (n > 3) d += NUMBER(type, p + 3 * spacing) * v;                                         \
        if (n > 4) e += NUMBER(type, q) * v;                                                       \
        if (n > 5) f += NUMBER(type, q + spacing) * v;                                             \
        if (n > 6) g += NUMBER(type, q + 2 * spacing) * v;                                         \
        if (n > 7) h += NUMBER(type, q + 3 * spacing) * v;                                         \
        if (n > 8) i += NUMBER(type, r) * v;                                                       \
        if (n > 9) j += NUMBER(type, r + spacing) * v;                                             \
        p += step;                                                                                 \
        q += step;                                                                                 \
        r += step;                                                                                 \
        w += v_step;                                                                               \
    } while (0)

/* Sum s belongs to z + s * apart (and to z2 + s * apart), and begins with what is there if `on`.
 *
 * Loops over pairs have `by` = 2 steps at a time: the processor issues four instructions per cycle,
 * and loads, products and sums of pairs are three of them. */
#define NARROW_LOOP(name, type, NUMBER, PUT, by)                                                   \
    PL_ISA_BODY void name##_of(                                                                    \
        const size_t n, const size_t spacing, const struct narrow_walk *walk, const float *number, \
        const float *vector, const bool on, float *z, float *z2, const size_t apart) {             \
        const size_t step = walk->step, v_step = walk->v_step, four = 4 * spacing;                 \
        type a = {0}, b = {0}, c = {0}, d = {0}, e = {0}, f = {0}, g = {0}, h = {0}, i = {0};      \
        type j = {0};                                                                              \
        if (on && n > 0) a = *(const type *)(z);                                                   \
        if (on && n > 1) b = *(const type *)(z + apart);                                           \
        if (on && n > 2) c = *(const type *)(z + 2 * apart);                                       \
        if (on && n > 3) d = *(const type *)(z + 3 * apart);                                       \
        if (on && n > 4) e = *(const type *)(z + 4 * apart);                                       \
        if (on && n > 5) f = *(const type *)(z + 5 * apart);                                       \
        if (on && n > 6) g = *(const type *)(z + 6 * apart);                                       \
        if (on && n > 7) h = *(const type *)(z + 7 * apart);                                       \
        if (on && n > 8) i = *(const type *)(z + 8 * apart);                                       \
        if (on && n > 9) j = *(const type *)(z + 9 * apart);                                       \
        for (size_t l = 0; l < walk->n_lines; l++) {                                               \
            const float *p = number, *q = number + four, *r = q + four, *w = vector;               \
            for (size_t k = walk->n_steps / (by); k > 0; k--) {                                    \
                NARROW_STEP(type, NUMBER);                                                         \
                if ((by) == 2) NARROW_STEP(type, NUMBER);                                          \
            }                                                                                      \
            if (walk->n_steps % (by)) NARROW_STEP(type, NUMBER);                                   \
            number += walk->next;                                                                  \
            vector += walk->v_next;                                                                \
        }                                                                                          \
        if (n > 0) PUT(type, a, z, z2);                                                            \
        if (n > 1) PUT(type, b, z + apart, z2 + apart);                                            \
        if (n > 2) PUT(type, c, z + 2 * apart, z2 + 2 * apart);                                    \
        if (n > 3) PUT(type, d, z + 3 * apart, z2 + 3 * apart);                                    \
        if (n > 4) PUT(type, e, z + 4 * apart, z2 + 4 * apart);                                    \
        if (n > 5) PUT(type, f, z + 5 * apart, z2 + 5 * apart);                                    \
        if (n > 6) PUT(type, g, z + 6 * apart, z2 + 6 * apart);                                    \
        if (n > 7) PUT(type, h, z + 7 * apart, z2 + 7 * apart);                                    \
        if (n > 8) PUT(type, i, z + 8 * apart, z2 + 8 * apart);                                    \
        if (n > 9) PUT(type, j, z + 9 * apart, z2 + 9 * apart);                                    \
    }                                                                                              \
    PL_ISA_BODY void name(size_t n, const size_t spacing, const struct narrow_walk *walk,          \
                          const float *number, const float *vector, const bool on, float *z,       \
                          float *z2, const size_t apart) {                                         \
        switch (n) {                                                                               \
        case 1: name##_of(1, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 2: name##_of(2, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 3: name##_of(3, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 4: name##_of(4, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 5: name##_of(5, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 6: name##_of(6, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 7: name##_of(7, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 8: name##_of(8, spacing, walk, number, vector, on, z, z2, apart); break;              \
        case 9: name##_of(9, spacing, walk, number, vector, on, z, z2, apart); break;              \
        default: name##_of(10, spacing, walk, number, vector, on, z, z2, apart);                   \
        }                                                                                          \
    }

NARROW_LOOP(narrow_rows_8, narrow_8, NARROW_NUMBER, NARROW_STORE, 1)
NARROW_LOOP(narrow_rows_16, narrow_16, NARROW_NUMBER, NARROW_STORE, 1)
NARROW_LOOP(narrow_rows_pair, narrow_16, NARROW_PAIR, NARROW_STORE_PAIR, 2)
NARROW_LOOP(narrow_sums_8, narrow_8, NARROW_NUMBER, NARROW_ADD, 1)
NARROW_LOOP(narrow_sums_16, narrow_16, NARROW_NUMBER, NARROW_ADD, 1)
NARROW_LOOP(narrow_sums_pair, narrow_16, NARROW_PAIR, NARROW_ADD_PAIR, 2)
NARROW_LOOP(narrow_dots_8, narrow_8, NARROW_VECTOR, NARROW_STORE, 1)
NARROW_LOOP(narrow_dots_16, narrow_16, NARROW_VECTOR, NARROW_STORE, 1)

/* Vectors of two widths are two types, so what follows is written several times by a macro: `lanes`
 * of columns, numbers of `per` pictures next to each other. */
/* Vectors of 16 lanes are used on AVX-512 only (narrow_lanes). */
#if defined(__x86_64__)
#define NARROW_WIDE(type, name, parameters, arguments)                                             \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) type name parameters
#else
#define NARROW_WIDE(type, name, parameters, arguments) type name parameters
#endif

#define NARROW(kind, lanes, per, SETS)                                                             \
    static SETS(void, narrow_product_##kind,                                                       \
                (const struct pl_rows *rows, const float *x, const float *packed, size_t width,    \
                 float *z, float *z2),                                                             \
                (rows, x, packed, width, z, z2)) {                                                 \
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
                n = narrow_share(left);                                                            \
                narrow_rows_##kind(n, spacing, &walk, at, packed, false, z, z2, width);            \
                z += n * width;                                                                    \
                z2 += n * width;                                                                   \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static SETS(void, narrow_gradient_##kind,                                                      \
                (const struct pl_rows *rows, const float *x, const float *delta, size_t apart,     \
                 size_t width, float *packed),                                                     \
                (rows, x, delta, apart, width, packed)) {                                          \
        const struct narrow_walk walk = {.n_lines = rows->n_lines,                                 \
                                         .n_steps = rows->width,                                   \
                                         .step = (per)*rows->step,                                 \
                                         .next = (per)*rows->next,                                 \
                                         .v_step = (per)*width,                                    \
                                         .v_next = (per)*apart};                                   \
        for (size_t r = 0; r < rows->n_runs; r++, x += (per)*rows->apart) {                        \
            const float *at = x;                                                                   \
            for (size_t left = rows->run, n; left > 0; left -= n, at += n * (per)) {               \
                n = narrow_share(left);                                                            \
                narrow_sums_##kind(n, (per), &walk, at, delta, false, packed, packed, lanes);      \
                packed += n * (lanes);                                                             \
            }                                                                                      \
        }                                                                                          \
    }

NARROW(8, 8, 1, PL_VARIANTS)
NARROW(16, 16, 1, NARROW_WIDE)
NARROW(pair, 8, 2, NARROW_WIDE)

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

/* --- dense layers ----------------------------------------------------------------------- */

#define NARROW_TILE 16  /* rows whose sums are kept while a part of the weights is in cache */
#define NARROW_PART 512 /* inputs of such a part: 20 KiB of weights for ten outputs */
#define NARROW_ROWS 64  /* rows that a weight gradient adds at a time, on few enough pages */

/* How many of `left` inputs come next, so that all parts are about as large. */
static inline size_t narrow_part(size_t left) {
    size_t n_parts = (left + NARROW_PART - 1) / NARROW_PART;
    return (left / 16 + n_parts - 1) / n_parts * 16;
}

/* The sum of 16 numbers, in this order. */
static inline float narrow_total(const float *p) {
    narrow_4 a = *(const narrow_4 *)p + *(const narrow_4 *)(p + 8);
    narrow_4 b = *(const narrow_4 *)(p + 4) + *(const narrow_4 *)(p + 12);
    narrow_4 c = a + b;
    return (c[0] + c[2]) + (c[1] + c[3]);
}

#define NARROW_DENSE(lanes, SETS)                                                                  \
    /* Adds the products of n_in columns of x and w, a multiple of 16, to sum [n][n_out][16],      \
     * which begins with 0 unless `on`. */                                                         \
    static SETS(void, narrow_dot_##lanes,                                                          \
                (const float *x, size_t x_apart, const float *w, size_t w_apart, size_t n,         \
                 size_t n_in, size_t n_out, bool on, float *sum),                                  \
                (x, x_apart, w, w_apart, n, n_in, n_out, on, sum)) {                               \
        const struct narrow_walk walk = {                                                          \
            .n_lines = 1, .n_steps = n_in / 16, .step = 16, .v_step = 16};                         \
        for (size_t i = 0; i < n; i++, x += x_apart)                                               \
            for (size_t j = 0, m; j < n_out; j += m, sum += m * 16) {                              \
                m = narrow_share(n_out - j);                                                       \
                narrow_dots_##lanes(m, w_apart, &walk, w + j * w_apart, x, on, sum, sum, 16);      \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    /* Columns [at, end) of g [n_out][n_in], whole vectors, from the rows [from, n) of d and x.    \
     * Sums go on if from > 0. */                                                                  \
    static SETS(void, narrow_strips_##lanes,                                                       \
                (const float *d, const float *x, size_t from, size_t n, size_t n_in, size_t n_out, \
                 size_t at, size_t end, float *g),                                                 \
                (d, x, from, n, n_in, n_out, at, end, g)) {                                        \
        const struct narrow_walk walk = {                                                          \
            .n_lines = 1, .n_steps = n - from, .step = n_out, .v_step = n_in};                     \
        for (; at < end; at += (lanes))                                                            \
            for (size_t j = 0, m; j < n_out; j += m) {                                             \
                m = narrow_share(n_out - j);                                                       \
                narrow_rows_##lanes(m, 1, &walk, d + from * n_out + j, x + from * n_in + at,       \
                                    from > 0, g + j * n_in + at, g, n_in);                         \
            }                                                                                      \
    }                                                                                              \
                                                                                                   \
    static SETS(void, narrow_inputs_##lanes,                                                       \
                (const float *d, const float *w, size_t n, size_t n_in, size_t n_out, float *dx),  \
                (d, w, n, n_in, n_out, dx)) {                                                      \
        const struct narrow_walk walk = {                                                          \
            .n_lines = 1, .n_steps = n_out, .step = 1, .v_step = n_in};                            \
        for (size_t i = 0, m; i < n; i += m, d += m * n_out, dx += m * n_in) {                     \
            m = narrow_share(n - i);                                                               \
            for (size_t k = 0; k < n_in; k += (lanes)) {                                           \
                if (k + (lanes) > n_in) k = n_in - (lanes);                                        \
                narrow_rows_##lanes(m, n_out, &walk, d, w + k, false, dx + k, dx, n_in);           \
            }                                                                                      \
        }                                                                                          \
    }

NARROW_DENSE(8, PL_VARIANTS)
NARROW_DENSE(16, NARROW_WIDE)

static void narrow_dot(const float *x, size_t x_apart, const float *w, size_t w_apart, size_t n,
                       size_t n_in, size_t n_out, bool on, float *sum) {
    if (narrow_lanes(16) == 16) {
        narrow_dot_16(x, x_apart, w, w_apart, n, n_in, n_out, on, sum);
        return;
    }
    narrow_dot_8(x, x_apart, w, w_apart, n, n_in, n_out, on, sum);
    narrow_dot_8(x + 8, x_apart, w + 8, w_apart, n, n_in, n_out, on, sum + 8);
}

void pl_narrow_forward(const float *x, const float *w, size_t n, size_t n_in, size_t n_out,
                       float *z) {
    float sum[NARROW_TILE * PL_NARROW_MAX * 16], x_end[NARROW_TILE * 16] = {0};
    float w_end[PL_NARROW_MAX * 16] = {0};
    const size_t whole = n_in / 16 * 16, rest = n_in - whole;
    for (size_t j = 0; rest && j < n_out; j++)
        memcpy(w_end + j * 16, w + j * n_in + whole, rest * sizeof *w);
    for (size_t i = 0; i < n; i += NARROW_TILE, x += NARROW_TILE * n_in) {
        const size_t n_rows = n - i < NARROW_TILE ? n - i : NARROW_TILE;
        for (size_t k = 0, part; k < whole; k += part) {
            part = narrow_part(whole - k);
            narrow_dot(x + k, n_in, w + k, n_in, n_rows, part, n_out, k > 0, sum);
        }
        for (size_t r = 0; rest && r < n_rows; r++)
            memcpy(x_end + r * 16, x + r * n_in + whole, rest * sizeof *x);
        if (rest) narrow_dot(x_end, 16, w_end, 16, n_rows, 16, n_out, whole > 0, sum);
        for (size_t r = 0; r < n_rows * n_out; r++) *z++ = narrow_total(sum + r * 16);
    }
}

/* Fewer columns than lanes: one sum after the other. */
static void narrow_short(size_t n_rows, size_t n_columns, size_t n, const float *a, size_t a_row,
                         size_t a_step, const float *b, float *c) {
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_columns; j++) {
            float sum = 0;
            for (size_t k = 0; k < n; k++) sum += a[i * a_row + k * a_step] * b[k * n_columns + j];
            *c++ = sum;
        }
}

void pl_narrow_weights(const float *d, const float *x, size_t n, size_t n_in, size_t n_out,
                       float *g) {
    const size_t lanes = n_in < 16 ? 8 : narrow_lanes(16), whole = n_in / lanes * lanes;
    if (n_in < lanes) {
        narrow_short(n_out, n_in, n, d, 1, n_out, x, g);
        return;
    }
    void (*strips)(const float *, const float *, size_t, size_t, size_t, size_t, size_t, size_t,
                   float *) = lanes == 8 ? narrow_strips_8 : narrow_strips_16;
    for (size_t i = 0, end; i < n; i = end) {
        end = n - i < NARROW_ROWS ? n : i + NARROW_ROWS;
        strips(d, x, i, end, n_in, n_out, 0, whole, g);
    }
    if (whole < n_in) strips(d, x, 0, n, n_in, n_out, n_in - lanes, n_in, g); /* overlaps */
}

void pl_narrow_inputs(const float *d, const float *w, size_t n, size_t n_in, size_t n_out,
                      float *dx) {
    if (n_in < 8)
        narrow_short(n, n_in, n_out, d, n_out, 1, w, dx);
    else if (n_in < 16 || narrow_lanes(n_in) == 8)
        narrow_inputs_8(d, w, n, n_in, n_out, dx);
    else
        narrow_inputs_16(d, w, n, n_in, n_out, dx);
}
