/* Special functions that delay laws and order statistics need and libm lacks.
 *
 * All are pure, thread-safe and accurate to about 1e-12 relative in the ranges their callers use;
 * tests/theory/test_theory.c compares them with identities. */
#ifndef PL_BASE_SPECIAL_H
#define PL_BASE_SPECIAL_H

#include <stdbool.h>

/* log Gamma(x) for x > 0. Unlike lgamma() it touches no global. */
double pl_log_gamma(double x);

/* H_n - H_m = 1/(m+1) + ... + 1/n for 0 <= m <= n. */
double pl_harmonic(int m, int n);

/* Gamma(shape, scale 1): Pr(X <= x), or Pr(X > x) if `upper`; small values stay accurate. */
double pl_gamma_cdf(double shape, double x, bool upper);

/* Smallest x with pl_gamma_cdf(shape, x, false) >= u, for 0 <= u < 1. */
double pl_gamma_quantile(double shape, double u);

/* Standard normal: Pr(Z <= z), or Pr(Z > z); and the inverse of the former for 0 < u < 1. */
double pl_normal_cdf(double z, bool upper);
double pl_normal_quantile(double u);

/* Regularised incomplete beta I_x(a, b) for a, b > 0 and 0 <= x <= 1. The caller passes y = 1 - x
 * so that neither end loses digits. I_x(a, n-a+1) = Pr(Binomial(n, x) >= a). */
double pl_beta_cdf(double a, double b, double x, double y);

#endif
