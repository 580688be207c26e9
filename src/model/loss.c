#include "model/loss.h"

#include <math.h>

#include "base/isa.h"

#define LOSS_ROWS 64 /* rows at a time */

/* exp(x) = 2^n exp(r), where n is the integer next to x / ln 2 and |r| <= ln(2) / 2. The series
 * ends with r^9 / 9!; what it leaves out is 1e-11 of the result. Adding 1.5 * 2^52 rounds to an
 * integer, which is then in the lower bits. */
PL_ISA_BODY float loss_exp_one(float x) {
    const double magic = 0x1.8p52;
    const double v = x;
    union {
        double value;
        uint64_t bits;
    } n = {.value = v * 0x1.71547652b82fep0 + magic}, power;
    double r = v - (n.value - magic) * 0x1.62e42fefa39efp-1;
    double e = 1.0 / 362880;
    e = e * r + 1.0 / 40320;
    e = e * r + 1.0 / 5040;
    e = e * r + 1.0 / 720;
    e = e * r + 1.0 / 120;
    e = e * r + 1.0 / 24;
    e = e * r + 1.0 / 6;
    e = e * r + 0.5;
    e = e * r + 1;
    e = e * r + 1;
    power.bits = (n.bits << 52) + ((uint64_t)1023 << 52);
    return (float)(e * power.value);
}

PL_VARIANTS(void, pl_loss_exp, (float *x, size_t n), (x, n)) {
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < -150 ? -150 : x[i]; /* exp is 0 there, as a float */
    for (size_t i = 0; i < n; i++) x[i] = loss_exp_one(x[i]);
}

/* z [n][k] minus the largest of each row, which goes to max [n] */
static PL_VARIANTS(void, loss_shift, (float *z, size_t n, size_t k, float *max), (z, n, k, max)) {
    for (size_t i = 0; i < n; i++, z += k) {
        float most = z[0];
        for (size_t j = 1; j < k; j++) most = z[j] > most ? z[j] : most;
        for (size_t j = 0; j < k; j++) z[j] -= most;
        max[i] = most;
    }
}

/* Divides each row of z [n][k] by its sum, which goes to sum [n]. */
static PL_VARIANTS(void, loss_divide, (float *z, size_t n, size_t k, double *sum), (z, n, k, sum)) {
    for (size_t i = 0; i < n; i++, z += k) {
        double all = 0;
        for (size_t j = 0; j < k; j++) all += z[j];
        float inverse = (float)(1.0 / all);
        for (size_t j = 0; j < k; j++) z[j] *= inverse;
        sum[i] = all;
    }
}

void pl_loss_entropy(float *z, size_t n, size_t k, const uint16_t *label, double *loss) {
    for (size_t i = 0, m; i < n; i += m, z += m * k) {
        float target[LOSS_ROWS], max[LOSS_ROWS];
        double sum[LOSS_ROWS];
        m = n - i < LOSS_ROWS ? n - i : LOSS_ROWS;
        for (size_t r = 0; r < m; r++) target[r] = z[r * k + label[i + r]];
        loss_shift(z, m, k, max);
        pl_loss_exp(z, m * k);
        loss_divide(z, m, k, sum);
        for (size_t r = 0; r < m; r++) *loss += log(sum[r]) + ((double)max[r] - target[r]);
    }
}

double pl_loss_gradient(float *z, size_t n, size_t k, const uint16_t *label, const float *target) {
    double sum = 0, share = 1.0 / (double)n;
    for (size_t i = 0; target && i < n; i++) {
        double e = (double)z[i] - target[i];
        sum += e * e;
        z[i] = (float)(2 * share * e);
    }
    if (target) return sum;
    pl_loss_entropy(z, n, k, label, &sum);
    for (size_t i = 0; i < n; i++) z[i * k + label[i]] -= 1;
    for (size_t i = 0; i < n * k; i++) z[i] *= (float)share;
    return sum;
}
