/* Sums in eight lanes: strict floating-point additions become independent and fill the vector
 * units, and their order depends only on n. Terms are computed a few at a time in one loop and
 * added to the lanes in another: every compiler vectorises the first, and the lanes of the second
 * are in vectors of the registers' width, because plain arrays of lanes become scalar code in some,
 * and wider or narrower vectors are taken apart or put together term by term. */
#include <stdint.h>
#include <string.h>

#include "base/isa.h"
#include "core/rule.h"

#define LANES 8
#define CHUNK 32  /* terms computed at a time */
#define AHEAD 512 /* elements from what is read to what is fetched next */

static double vec_fold(const double *lane) {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* Adds term i to lane i % LANES, for CHUNK terms, in vectors of `width` lanes. */
#define VEC_SUM(name, width)                                                                       \
    PL_ISA_BODY void name(const double *term, double *lane) {                                      \
        typedef double vector __attribute__((vector_size((width) * sizeof(double))));              \
        vector sum[LANES / (width)], next;                                                         \
        memcpy(sum, lane, sizeof sum);                                                             \
        for (size_t i = 0; i < CHUNK; i += LANES)                                                  \
            for (size_t v = 0; v < LANES / (width); v++) {                                         \
                memcpy(&next, term + i + v * (width), sizeof next);                                \
                sum[v] += next;                                                                    \
            }                                                                                      \
        memcpy(lane, sum, sizeof sum);                                                             \
    }

VEC_SUM(vec_sum_by_2, 2)
VEC_SUM(vec_sum_by_4, 4)
VEC_SUM(vec_sum_by_8, 8)

PL_ISA_BODY void vec_sum(enum pl_isa isa, const double *term, double *lane) {
    switch ((int)isa - PL_ISA_BASELINE) { /* each set of x86_64 doubles the width */
    case 0: vec_sum_by_2(term, lane); break;
    case 1: vec_sum_by_4(term, lane); break;
    default: vec_sum_by_8(term, lane); break;
    }
}

/* Additions wait for each other, which leaves too few reads under way; these do not wait. */
PL_ISA_BODY void vec_fetch(const pl_real *x) {
    for (size_t i = 0; i < CHUNK; i += 64 / sizeof *x) __builtin_prefetch(x + AHEAD + i);
}

PL_VARIANTS(double, pl_vec_dot, (const pl_real *a, const pl_real *b, size_t n), (a, b, n)) {
    double lane[LANES] = {0}, term[CHUNK];
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK) {
        vec_fetch(a + i);
        vec_fetch(b + i);
        for (size_t j = 0; j < CHUNK; j++) term[j] = (double)a[i + j] * (double)b[i + j];
        vec_sum(isa, term, lane);
    }
    for (; i < n; i++) lane[i % LANES] += (double)a[i] * (double)b[i];
    return vec_fold(lane);
}

PL_VARIANTS(double, pl_vec_distance2, (const pl_real *a, const pl_real *b, size_t n), (a, b, n)) {
    double lane[LANES] = {0}, term[CHUNK];
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK) {
        vec_fetch(a + i);
        vec_fetch(b + i);
        for (size_t j = 0; j < CHUNK; j++) {
            double d = (double)a[i + j] - (double)b[i + j];
            term[j] = d * d;
        }
        vec_sum(isa, term, lane);
    }
    for (; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        lane[i % LANES] += d * d;
    }
    return vec_fold(lane);
}

typedef __typeof__(_Generic((pl_real)0, float : (uint32_t)0, double : (uint64_t)0)) vec_bits;

PL_VARIANTS(bool, pl_vec_finite, (const pl_real *x, size_t n), (x, n)) {
    /* one more in the exponent reaches the sign only if all of its bits are set */
    const vec_bits sign = (vec_bits)1 << (8 * sizeof(pl_real) - 1);
    const vec_bits one = (vec_bits)1 << (sizeof(pl_real) == sizeof(float) ? 23 : 52);
    vec_bits any = 0;
    for (size_t i = 0; i < n; i++) {
        vec_bits bits;
        memcpy(&bits, &x[i], sizeof bits);
        any |= (bits & (sign - one)) + one;
    }
    return any < sign;
}

/* --- weighted sums ------------------------------------------------------------------------ */

#define TERMS 8 /* vectors read at the same time: that many streams keep the memory busy */

/* out = c[0] x[0] + … + c[count-1] x[count-1], added to out unless it is the first of them. */
PL_ISA_BODY void vec_terms(int count, bool first, const pl_real *const *x, const pl_real *c,
                           size_t n, pl_real *restrict out) {
    const pl_real *x0 = x[0], *x1 = x[count > 1 ? 1 : 0];
    const pl_real *x2 = x[count > 2 ? 2 : 0], *x3 = x[count > 3 ? 3 : 0];
    const pl_real *x4 = x[count > 4 ? 4 : 0], *x5 = x[count > 5 ? 5 : 0];
    const pl_real *x6 = x[count > 6 ? 6 : 0], *x7 = x[count > 7 ? 7 : 0];
    pl_real c0 = c[0], c1 = c[1], c2 = c[2], c3 = c[3], c4 = c[4], c5 = c[5], c6 = c[6], c7 = c[7];
    for (size_t i = 0; i < n; i++) {
        pl_real sum = first ? c0 * x0[i] : out[i] + c0 * x0[i];
        if (count > 1) sum += c1 * x1[i];
        if (count > 2) sum += c2 * x2[i];
        if (count > 3) sum += c3 * x3[i];
        if (count > 4) sum += c4 * x4[i];
        if (count > 5) sum += c5 * x5[i];
        if (count > 6) sum += c6 * x6[i];
        if (count > 7) sum += c7 * x7[i];
        out[i] = sum;
    }
}

/* The same for a number of terms that is a power of two. c has TERMS elements. */
static PL_VARIANTS(void, vec_add,
                   (int count, bool first, const pl_real *const *x, const pl_real *c, size_t n,
                    pl_real *restrict out),
                   (count, first, x, c, n, out)) {
    switch (first ? count : -count) {
    case 1: vec_terms(1, true, x, c, n, out); break;
    case 2: vec_terms(2, true, x, c, n, out); break;
    case 4: vec_terms(4, true, x, c, n, out); break;
    case 8: vec_terms(8, true, x, c, n, out); break;
    case -1: vec_terms(1, false, x, c, n, out); break;
    case -2: vec_terms(2, false, x, c, n, out); break;
    case -4: vec_terms(4, false, x, c, n, out); break;
    case -8: vec_terms(8, false, x, c, n, out); break;
    }
}

bool pl_vec_accumulate(int n, const pl_real *const *vector, const double *weight, size_t n_elements,
                       bool first, pl_real *restrict out) {
    const pl_real *x[TERMS];
    pl_real c[TERMS] = {0};
    int count = 0;
    for (int m = 0; m <= n; m++) {
        if (m < n && (pl_real)weight[m] != 0) {
            x[count] = vector[m];
            c[count++] = (pl_real)weight[m];
        }
        if (m < n && count < TERMS) continue;
        for (int at = 0, some = TERMS; at < count; at += some) {
            while (some > count - at) some /= 2;
            pl_real w[TERMS];
            for (int i = 0; i < TERMS; i++) w[i] = i < some ? c[at + i] : 0;
            vec_add(some, first, x + at, w, n_elements, out);
            first = false;
        }
        count = 0;
    }
    return first;
}

const pl_real *pl_vec_weighted(int n, const pl_real *const *vector, const double *weight,
                               size_t n_elements, pl_real *restrict out) {
    if (pl_vec_accumulate(n, vector, weight, n_elements, true, out))
        memset(out, 0, n_elements * sizeof *out);
    return out;
}
