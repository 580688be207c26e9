/* Expected order statistics of delay laws: E[X_{K:P}], the mean time until K of P workers that
 * start together have finished. It is the time of a K-sync update (Dutta et al., AISTATS 2018),
 * and the closed forms of the other variants are built from it. */
#ifndef PL_THEORY_ORDER_H
#define PL_THEORY_ORDER_H

#include <stdint.h>

#include "timing/delay.h"

/* How a number was computed, and so how accurate it is. */
enum pl_how {
    PL_HOW_EXACT,    /* closed form, or a sum over a sample: exact up to rounding */
    PL_HOW_INTEGRAL, /* numerical integration; relative error below 1e-8 */
    PL_HOW_SIMULATED /* seeded Monte Carlo, with a standard error */
};

struct pl_order {
    double mean;
    double sd_error; /* standard error of `mean`; 0 unless simulated */
    enum pl_how how;
};

/* Fills out[i] with E[X_{k[i]:P}] for i < n_k, where worker w < P follows its law in `d`; every
 * k[i] is in 1..P. If the workers differ and are too many for integration, the values are simulated
 * with about `draws` delays keyed by `seed`. INFINITY if the law has no such mean. Returns 0 or
 * PL_ENOMEM. */
int pl_order_means(const struct pl_delay *d, int n_workers, const int *k, int n_k, uint64_t seed,
                   uint64_t draws, struct pl_order *out, struct pl_why *why);

/* The methods one by one, so that tests can compare them. */
double pl_order_exp(double mean, int n_workers, int k);
double pl_order_pareto(double shape, double scale, int n_workers, int k);
double pl_order_sample(const double *sample, size_t n, int n_workers, int k);

/* By integration of Pr(X_{K:P} > t), for identical workers. */
double pl_order_integral(const struct pl_delay *d, int n_workers, int k);

/* The same for workers that differ: the number finished by t is Poisson-binomial, and one pass over
 * t serves every K. mean[n_workers + 1]; mean[0] = 0. Returns PL_ENOMEM, or PL_EUSAGE if P or the
 * number of jumps in the workers' laws is too large for this method. */
int pl_order_differing(const struct pl_delay *d, int n_workers, double *mean);

/* By simulation; one set of draws serves every K. */
int pl_order_simulated(const struct pl_delay *d, int n_workers, uint64_t seed, uint64_t draws,
                       const int *k, int n_k, struct pl_order *out);

#endif
