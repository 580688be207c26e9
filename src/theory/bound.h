/* Error bounds of the four variants (Dutta et al., AISTATS 2018, Theorems 3-5). */
#ifndef PL_THEORY_BOUND_H
#define PL_THEORY_BOUND_H

#include "theory/runtime.h"

/* The constants of a training problem. Start from pl_problem_default and change what is known. Each
 * comment begins with the option name of `paceline plan`. */
struct pl_problem {
    double eta;    /* lr: step size */
    double smooth; /* L: Lipschitz constant of the gradient */
    double sigma2; /* sigma2: variance of one sample's gradient */
    double batch;  /* batch: m, samples in a mini-batch */
    double gap;    /* F0: F(w_0) - F*, the initial excess loss */
    double convex; /* c: strong convexity; 0 = non-convex */
    double growth; /* MG: E||g - grad F||^2 <= sigma2/m + MG/m ||grad F||^2 */
    double gamma;  /* gamma in [0,1]: how much staleness changes a gradient; NAN: (eta L lag)^2 */
    double p0;     /* p0 in [0,1]: least probability of a fresh gradient; NAN: from the law */
};

/* eta 0.1, L 1, sigma2 10, m 32, F0 2.3 (ten classes, untrained), non-convex, MG 0, gamma and p0
 * estimated. With these a target of PL_TARGET_DEFAULT needs K >= 2, so K matters. */
extern const struct pl_problem pl_problem_default;
#define PL_TARGET_DEFAULT 0.02

/* Returns 0, or PL_EUSAGE and a message that names the constant that is out of range. */
int pl_problem_check(const struct pl_problem *p, struct pl_why *why);

/* One variant at one K. "Error" is F(w_J) - F* if convex > 0, otherwise the mean of
 * ||grad F(w_j)||^2 over the run. */
struct pl_bound {
    double gamma;       /* as given or estimated; 0 for synchronous variants */
    double gamma_prime; /* 1 - gamma + p0/2; 1 for synchronous variants */
    double floor;       /* the error after infinitely many updates */
    double rate;        /* convex: the excess over the floor shrinks by this factor per update;
                           non-convex: NAN, it shrinks like 1/J */
    double eta_max;     /* largest step size for which the theorem holds */
    bool valid;         /* eta <= eta_max and gamma_prime > 0 */
};

/* `lag` is the mean staleness; `p0` is used if problem->p0 is NAN. */
void pl_bound_of(const struct pl_problem *p, enum pl_variant variant, int k, double lag, double p0,
                 struct pl_bound *out);

/* The smallest number of updates after which the bound is <= target; INFINITY if the floor is not
 * below the target. */
double pl_bound_updates(const struct pl_problem *p, const struct pl_bound *b, double target);

#endif
