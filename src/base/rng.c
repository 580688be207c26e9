#include "base/rng.h"

#include <math.h>
#include <string.h>

static void rng_fill(struct pl_rng *r) {
    uint32_t c0 = r->ctr[0], c1 = r->ctr[1], c2 = r->ctr[2], c3 = r->ctr[3];
    uint32_t k0 = r->key[0], k1 = r->key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    r->out[0] = c0;
    r->out[1] = c1;
    r->out[2] = c2;
    r->out[3] = c3;
    r->left = 4;
    r->ctr[0]++;
}

void pl_rng_init(struct pl_rng *r, uint64_t seed, enum pl_stream stream, uint32_t worker,
                 uint64_t task) {
    r->key[0] = (uint32_t)seed;
    r->key[1] = (uint32_t)(seed >> 32);
    r->ctr[0] = 0;
    r->ctr[1] = (uint32_t)task;
    r->ctr[2] = (uint32_t)(task >> 32 & 0xff) | (uint32_t)stream << 8;
    r->ctr[3] = worker;
    r->left = 0;
}

uint32_t pl_rng_u32(struct pl_rng *r) {
    if (r->left == 0) rng_fill(r);
    return r->out[--r->left];
}

uint64_t pl_rng_u64(struct pl_rng *r) {
    if (r->left == 0) rng_fill(r);
    if (r->left > 1) {
        r->left -= 2;
        return (uint64_t)r->out[r->left + 1] << 32 | r->out[r->left];
    }
    uint64_t high = pl_rng_u32(r);
    return high << 32 | pl_rng_u32(r);
}

uint32_t pl_rng_below(struct pl_rng *r, uint32_t n) {
    /* Lemire's multiply-and-reject */
    uint64_t m = (uint64_t)pl_rng_u32(r) * n;
    if ((uint32_t)m < n) {
        uint32_t floor = (0u - n) % n;
        while ((uint32_t)m < floor) m = (uint64_t)pl_rng_u32(r) * n;
    }
    return (uint32_t)(m >> 32);
}

double pl_rng_unit(struct pl_rng *r) {
    return (double)(pl_rng_u64(r) >> 11) * 0x1p-53;
}

double pl_rng_exp(struct pl_rng *r) {
    return -log1p(-pl_rng_unit(r));
}

double pl_rng_normal(struct pl_rng *r) {
    /* Box-Muller, one half used: a fixed number of words per call keeps sequences aligned. */
    double radius = sqrt(-2.0 * log1p(-pl_rng_unit(r)));
    return radius * cos(6.283185307179586 * pl_rng_unit(r));
}

double pl_rng_gamma(struct pl_rng *r, double shape) {
    /* Marsaglia and Tsang 2000; below 1 by the boost G(a) = G(a+1) U^(1/a) */
    double boost = 1.0;
    if (shape < 1.0) {
        boost = pow(1.0 - pl_rng_unit(r), 1.0 / shape);
        shape += 1.0;
    }
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = pl_rng_normal(r), v = 1.0 + c * x;
        if (v <= 0.0) continue;
        v = v * v * v;
        double u = 1.0 - pl_rng_unit(r);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return boost * d * v;
    }
}

/* --- side by side ------------------------------------------------------------------------ */

static inline double rng_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t rng_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* n < 2^52 as a number: its bits behind those of 2^52. Unlike a conversion, every instruction set
 * has this for vectors. */
static inline double rng_number(uint64_t n) {
    return rng_double(n | UINT64_C(0x4330000000000000)) - 0x1p52;
}

/* -log(x) for 2^-53 <= x <= 1, to less than an ulp: x = 2^k (1 + f) with 1 + f from sqrt(1/2) to
 * sqrt(2), s = f / (2 + f), log(1 + f) = f - s (f - R), and a minimax polynomial for R in s^2, as
 * in Sun's fdlibm (e_log.c), but without branches. */
static inline double rng_minus_log(double x) {
    const uint64_t half = UINT64_C(0x3fe6a09e667f3bcd), one = UINT64_C(0x3ff0000000000000);
    uint64_t bits = rng_bits(x) + (one - half);
    double k = rng_number(bits >> 52) - 1023.0;
    double f = rng_double((bits & UINT64_C(0x000fffffffffffff)) + half) - 1.0;
    double s = f / (2.0 + f), z = s * s, w = z * z, hfsq = 0.5 * f * f;
    double even = w * (3.999999999940941908e-01 +
                       w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    double odd = z * (6.666666666666735130e-01 +
                      w * (2.857142874366239149e-01 +
                           w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    double r = odd + even;
    return ((hfsq - (s * (hfsq + r) + k * 1.90821492927058770002e-10)) - f) -
           k * 6.93147180369123816490e-01;
}

/* Compiled for the oldest processors only: between the draws there is scalar code, and wider
 * vectors lower the clock for all of it by more than they save here. */
void pl_rng_exps(uint64_t seed, enum pl_stream stream, uint32_t worker, uint64_t task,
                 double *out) {
    uint32_t c0[PL_RNG_LANES], c1[PL_RNG_LANES], c2[PL_RNG_LANES], c3[PL_RNG_LANES];
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (uint32_t i = 0; i < PL_RNG_LANES; i++) { /* see pl_rng_init */
        uint64_t t = task + i;
        c0[i] = 0;
        c1[i] = (uint32_t)t;
        c2[i] = (uint32_t)(t >> 32 & 0xff) | (uint32_t)stream << 8;
        c3[i] = worker;
    }
    for (int round = 0; round < 10; round++) { /* see rng_fill */
        for (int i = 0; i < PL_RNG_LANES; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * c0[i], b = (uint64_t)0xCD9E8D57u * c2[i];
            uint32_t n0 = (uint32_t)(b >> 32) ^ c1[i] ^ k0, n2 = (uint32_t)(a >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)b;
            c3[i] = (uint32_t)a;
            c0[i] = n0;
            c2[i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < PL_RNG_LANES; i++) {
        /* 1 - u, which is exact, where u is the first pl_rng_unit */
        double high = rng_number(c3[i]) * 0x1p-32, low = rng_number(c2[i] >> 11) * 0x1p-53;
        out[i] = rng_minus_log((1.0 - high) - low);
    }
}
