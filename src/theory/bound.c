/* Error after J updates with step size eta, mini-batches of m samples and K of them per update:
 *
 *   convex      E F(w_J) - F* <= floor + (1 - eta c g')^J (F_0 - floor),
 *               floor = eta L sigma^2 / (2 c g' K m)
 *   non-convex  (1/(J+1)) sum E||grad F(w_j)||^2 <= 2 F_0 / ((J+1) eta g') + floor,
 *               floor = L eta sigma^2 / (K m g')
 *
 * with g' = gamma' = 1 - gamma + p0/2 for the asynchronous variants and 1 for the synchronous ones.
 * They hold for eta <= 1/(2L(M_G/(Km) + 1)), respectively 1/(2L(M_G/(Km) + 1/K)).
 *
 * The paper assumes a gamma with E||grad F(w_j) - grad F(w_tau)||^2 <= gamma E||grad F(w_j)||^2 and
 * does not say how to obtain it. If the caller gives none, it is estimated here, which is not in
 * the paper: over a lag of s updates the model moves by about eta s ||grad F||, which changes the
 * gradient by at most L times that, so gamma = min(1, (eta L s)^2) with s the mean lag. The
 * estimate is 0 without staleness, gives no guarantee once eta L s reaches 1, and ignores the
 * noise. */
#include "theory/bound.h"

#include <math.h>

const struct pl_problem pl_problem_default = {.eta = 0.1,
                                              .smooth = 1.0,
                                              .sigma2 = 10.0,
                                              .batch = 32.0,
                                              .gap = 2.3,
                                              .convex = 0.0,
                                              .growth = 0.0,
                                              .gamma = NAN,
                                              .p0 = NAN};

int pl_problem_check(const struct pl_problem *p, struct pl_why *why) {
    const struct {
        const char *name, *accepts;
        double value;
        bool ok;
    } rule[] = {
        {"lr", "a number above 0", p->eta, p->eta > 0.0},
        {"L", "a number above 0", p->smooth, p->smooth > 0.0},
        {"sigma2", "a number of at least 0", p->sigma2, p->sigma2 >= 0.0},
        {"batch", "a number of at least 1", p->batch, p->batch >= 1.0},
        {"F0", "a number above 0", p->gap, p->gap > 0.0},
        {"c", "a number from 0 to L", p->convex, p->convex >= 0.0 && p->convex <= p->smooth},
        {"MG", "a number of at least 0", p->growth, p->growth >= 0.0},
        {"gamma", "a number from 0 to 1", isnan(p->gamma) ? 0.0 : p->gamma,
         isnan(p->gamma) || (p->gamma >= 0.0 && p->gamma <= 1.0)},
        {"p0", "a number from 0 to 1", isnan(p->p0) ? 0.0 : p->p0,
         isnan(p->p0) || (p->p0 >= 0.0 && p->p0 <= 1.0)},
    };
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++)
        if (!rule[i].ok || !isfinite(rule[i].value))
            return pl_fail(why, PL_EUSAGE, "%s=%g is not accepted; %s takes %s", rule[i].name,
                           rule[i].value, rule[i].name, rule[i].accepts);
    return PL_OK;
}

void pl_bound_of(const struct pl_problem *p, enum pl_variant variant, int k, double lag, double p0,
                 struct pl_bound *out) {
    /* without staleness, asynchronous variants equal the synchronous ones */
    bool async = (variant == PL_KASYNC || variant == PL_KBATCHASYNC) && lag > 0;
    double move = p->eta * p->smooth * lag;
    out->gamma = !async ? 0.0 : isnan(p->gamma) ? fmin(1.0, move * move) : p->gamma;
    out->gamma_prime = async ? 1.0 - out->gamma + 0.5 * (isnan(p->p0) ? p0 : p->p0) : 1.0;
    double noise = p->smooth * p->eta * p->sigma2 / (k * p->batch * out->gamma_prime);
    out->floor = p->convex > 0.0 ? noise / (2.0 * p->convex) : noise;
    if (!(out->gamma_prime > 0.0)) out->floor = INFINITY;
    out->rate =
        p->convex > 0.0 ? fmax(0.0, 1.0 - p->eta * p->convex * out->gamma_prime) : (double)NAN;
    out->eta_max = 0.5 / (p->smooth * (p->growth / (k * p->batch) + (async ? 1.0 / k : 1.0)));
    out->valid = p->eta <= out->eta_max && out->gamma_prime > 0.0;
}

double pl_bound_updates(const struct pl_problem *p, const struct pl_bound *b, double target) {
    if (p->convex > 0.0 && p->gap <= target) return 0.0;
    if (!(b->floor < target)) return INFINITY;
    if (p->convex > 0.0) {
        if (b->rate == 0.0) return 1.0;
        return ceil(log((target - b->floor) / (p->gap - b->floor)) / log(b->rate));
    }
    double updates = 2.0 * p->gap / (p->eta * b->gamma_prime * (target - b->floor)) - 1.0;
    return updates > 0.0 ? ceil(updates) : 0.0;
}
