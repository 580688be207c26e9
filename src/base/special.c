/* Textbook methods: the incomplete gamma function by its power series below the mean and by its
 * continued fraction above it, the incomplete beta function by its continued fraction (both
 * fractions with the modified Lentz recurrence), the normal quantile by Acklam's rational
 * approximation (relative error 1.15e-9) and one Halley step. Iterations are bounded: the slowest
 * case, shape 1e6 at the mean, needs a few thousand. */
#include "base/special.h"

#include <math.h>

#define SPECIAL_ROUNDS 100000
#define SPECIAL_EPS 1e-16
#define SPECIAL_TINY 1e-300

double pl_log_gamma(double x) {
    int sign;
    return lgamma_r(x, &sign);
}

double pl_harmonic(int m, int n) {
    double sum = 0.0;
    for (int i = n; i > m; i--) sum += 1.0 / i; /* small terms first */
    return sum;
}

/* x^a e^-x / Gamma(a): the factor both expansions share. Near x = a the three terms cancel, so
 * they are regrouped around it (Stirling's series for Gamma). */
static double special_gamma_front(double a, double x) {
    if (a < 20.0) return exp(a * log(x) - x - pl_log_gamma(a));
    double d = (x - a) / a, a2 = a * a;
    double core = fabs(d) < 0.1 ? log1p(d) - d : log(x / a) - d;
    double stirling = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * a2)) / a2) / a2);
    return sqrt(a / 6.283185307179586) * exp(a * core - stirling / a);
}

static double special_gamma_series(double a, double x) {
    double term = 1.0 / a, sum = term;
    for (int n = 1; n < SPECIAL_ROUNDS && term > sum * SPECIAL_EPS; n++) {
        term *= x / (a + n);
        sum += term;
    }
    return sum * special_gamma_front(a, x);
}

static double special_gamma_fraction(double a, double x) {
    double b = x + 1.0 - a, c = 1.0 / SPECIAL_TINY, d = 1.0 / b, h = d;
    for (int n = 1; n < SPECIAL_ROUNDS; n++) {
        double an = -n * (n - a);
        b += 2.0;
        d = an * d + b;
        if (fabs(d) < SPECIAL_TINY) d = SPECIAL_TINY;
        c = b + an / c;
        if (fabs(c) < SPECIAL_TINY) c = SPECIAL_TINY;
        d = 1.0 / d;
        double step = d * c;
        h *= step;
        if (fabs(step - 1.0) < SPECIAL_EPS * 4) break;
    }
    return h * special_gamma_front(a, x);
}

double pl_gamma_cdf(double shape, double x, bool upper) {
    if (!(x > 0.0)) return upper ? 1.0 : 0.0;
    if (isinf(x)) return upper ? 0.0 : 1.0;
    bool low = x < shape + 1.0;
    double part = low ? special_gamma_series(shape, x) : special_gamma_fraction(shape, x);
    if (part > 1.0) part = 1.0;
    return low == upper ? 1.0 - part : part;
}

double pl_gamma_quantile(double shape, double u) {
    if (!(u > 0.0)) return 0.0;
    /* first guess: Wilson and Hilferty, or the power law near 0 if that fails */
    double z = pl_normal_quantile(u), w = 1.0 / (9.0 * shape);
    double cube = 1.0 - w + z * sqrt(w);
    double small = exp((log(u) + pl_log_gamma(shape + 1.0)) / shape);
    double x = cube > 0.1 && shape > 0.3 ? shape * cube * cube * cube : small;
    if (!(x > SPECIAL_TINY)) return small;
    /* bracket it, then Newton in log x with bisection as the safety net */
    bool upper = u > 0.5;
    double goal = upper ? 1.0 - u : u, lo = 0.0, hi = INFINITY;
    for (int round = 0; round < 200; round++) {
        double p = pl_gamma_cdf(shape, x, upper), off = upper ? goal - p : p - goal;
        if (off < 0.0)
            lo = x;
        else
            hi = x;
        if (off == 0.0) break;
        double slope = special_gamma_front(shape, x); /* dP / d log x */
        double next = slope > 0.0 ? x * exp(fmax(-2.0, fmin(2.0, -off / slope))) : x;
        if (!(next > lo && next < hi)) next = isinf(hi) ? 2.0 * x : 0.5 * (lo + hi);
        if (fabs(next - x) <= 4e-16 * x || next <= SPECIAL_TINY) {
            x = next;
            break;
        }
        x = next;
    }
    return x;
}

double pl_normal_cdf(double z, bool upper) {
    return 0.5 * erfc((upper ? z : -z) * 0.7071067811865476);
}

/* The inverse for 0 < u <= 0.5. */
static double special_normal_lower(double u) {
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                               -1.556989798598866e+02, 6.680131188771972e+01,
                               -1.328068155288572e+01};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                               -2.400758277161838e+00, -2.549732539343734e+00,
                               4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00};
    double z;
    if (u < 0.02425) {
        double q = sqrt(-2.0 * log(u));
        z = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
            ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1.0);
    } else {
        double q = u - 0.5, r = q * q;
        z = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
            (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1.0);
    }
    double e = (pl_normal_cdf(z, false) - u) * 2.5066282746310002 * exp(0.5 * z * z);
    return isfinite(e) ? z - e / (1.0 + 0.5 * z * e) : z;
}

double pl_normal_quantile(double u) {
    if (!(u > 0.0)) return -INFINITY;
    if (u >= 1.0) return INFINITY;
    return u <= 0.5 ? special_normal_lower(u) : -special_normal_lower(1.0 - u);
}

static double special_beta_fraction(double a, double b, double x) {
    double c = 1.0, d = 1.0 - (a + b) * x / (a + 1.0);
    if (fabs(d) < SPECIAL_TINY) d = SPECIAL_TINY;
    d = 1.0 / d;
    double h = d;
    for (int m = 1; m < SPECIAL_ROUNDS; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m));
        d = 1.0 + even * d;
        c = 1.0 + even / c;
        if (fabs(d) < SPECIAL_TINY) d = SPECIAL_TINY;
        if (fabs(c) < SPECIAL_TINY) c = SPECIAL_TINY;
        d = 1.0 / d;
        h *= d * c;
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0));
        d = 1.0 + odd * d;
        c = 1.0 + odd / c;
        if (fabs(d) < SPECIAL_TINY) d = SPECIAL_TINY;
        if (fabs(c) < SPECIAL_TINY) c = SPECIAL_TINY;
        d = 1.0 / d;
        double step = d * c;
        h *= step;
        if (fabs(step - 1.0) < SPECIAL_EPS * 4) break;
    }
    return h;
}

double pl_beta_cdf(double a, double b, double x, double y) {
    if (!(x > 0.0)) return 0.0;
    if (!(y > 0.0)) return 1.0;
    double front =
        exp(pl_log_gamma(a + b) - pl_log_gamma(a) - pl_log_gamma(b) + a * log(x) + b * log(y));
    double p = x < (a + 1.0) / (a + b + 2.0) ? front * special_beta_fraction(a, b, x) / a
                                             : 1.0 - front * special_beta_fraction(b, a, y) / b;
    return p < 0.0 ? 0.0 : p > 1.0 ? 1.0 : p;
}
