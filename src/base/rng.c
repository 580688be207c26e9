#include "base/rng.h"

#include <math.h>

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
