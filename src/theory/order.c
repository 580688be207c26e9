/* E[X_{K:P}] by four methods.
 *
 *  closed form  const; exponential and shifted exponential, shift + mean (H_P - H_{P-K}); Pareto,
 *               scale Gamma(P+1) Gamma(P-K+1-1/a) / (Gamma(P-K+1) Gamma(P+1-1/a)), finite only for
 *               a (P-K+1) > 1 (not in the paper); a trace with replacement, the sum over its n
 *               ascending values x_i of x_i [I_{i/n} - I_{(i-1)/n}](K, P-K+1).
 *  integral     E = t0 + int_{t0} Pr(X_{K:P} > t) dt, in x = log t, with 16-point Gauss-Legendre
 *               panels between the points where that probability is 1 - 1e-15 and 1e-18. For
 *               identical workers Pr(X_{K:P} > t) = I_{Pr(X>t)}(P-K+1, K), exact in the far tail.
 *  differing    the same integral with the number of finished workers, a Poisson-binomial built
 *               worker by worker (P^2/2 steps per t), for P up to ORDER_EXACT_MAX. Panels end where
 *               a distribution function jumps or bends.
 *  simulated    for more workers, or traces with many values: sorted vectors of draws.
 *
 * Closed forms use the law itself, the other three the law cut at PL_DELAY_MAX, as draws are. This
 * matters only for tails beyond 1e9 s. */
#include "theory/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/special.h"

#define ORDER_EXACT_MAX 256  /* workers in pl_order_differing */
#define ORDER_BREAKS_MAX 512 /* jumps and bends in pl_order_differing */
#define ORDER_PANELS 48      /* panels of the integral for identical workers */
#define ORDER_LOG_MIN -46.0  /* log of 1e-20 s; earlier times count as 0 */

static const double gauss_x[8] = {0.0950125098376374, 0.2816035507792589, 0.4580167776572274,
                                  0.6178762444026438, 0.7554044083550030, 0.8656312023878318,
                                  0.9445750230732326, 0.9894009349916499};
static const double gauss_w[8] = {0.1894506104550685, 0.1826034150449236, 0.1691565193950025,
                                  0.1495959888165767, 0.1246289712555339, 0.0951585116824928,
                                  0.0622535239386479, 0.0271524594117541};

/* Node i of 16 of the panel [a, b], with its weight. */
static double order_node(double a, double b, int i, double *weight) {
    double half = 0.5 * (b - a), x = gauss_x[i % 8];
    *weight = half * gauss_w[i % 8];
    return 0.5 * (a + b) + (i < 8 ? -half : half) * x;
}

double pl_order_exp(double mean, int n_workers, int k) {
    return mean * pl_harmonic(n_workers - k, n_workers);
}

double pl_order_pareto(double shape, double scale, int n_workers, int k) {
    double last = n_workers - k + 1.0, p = n_workers + 1.0;
    if (!(shape * last > 1.0)) return INFINITY;
    return scale * exp(pl_log_gamma(p) - pl_log_gamma(p - 1.0 / shape) +
                       pl_log_gamma(last - 1.0 / shape) - pl_log_gamma(last));
}

double pl_order_sample(const double *sample, size_t n, int n_workers, int k) {
    double sum = 0.0, below = 0.0;
    for (size_t i = 0; i < n && below < 1.0; i++) {
        if (i + 1 < n && sample[i + 1] == sample[i]) continue;
        double u = (double)(i + 1) / (double)n, v = (double)(n - i - 1) / (double)n;
        double upto = pl_beta_cdf(k, n_workers - k + 1.0, u, v);
        sum += sample[i] * (upto - below);
        below = upto;
    }
    return sum;
}

/* Pr(X_{K:P} > t) for identical workers: at least P-K+1 are still busy at t. */
static double order_busy(const struct pl_delay *d, int n_workers, int k, double t) {
    double busy = pl_delay_tail(d, 0, t); /* if 1 - busy loses its digits, the answer is 1 */
    return pl_beta_cdf(n_workers - k + 1.0, k, busy, 1.0 - busy);
}

/* The log t at which `busy`, which is falling, crosses `level`. */
static double order_cross(const struct pl_delay *d, int n_workers, int k, double level) {
    double lo = ORDER_LOG_MIN, hi = log(PL_DELAY_MAX);
    for (int i = 0; i < 60; i++) {
        double mid = 0.5 * (lo + hi);
        if (order_busy(d, n_workers, k, exp(mid)) > level)
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}

double pl_order_integral(const struct pl_delay *d, int n_workers, int k) {
    double lo = order_cross(d, n_workers, k, 1.0 - 1e-15);
    double hi = order_cross(d, n_workers, k, 1e-18);
    double sum = exp(lo), width = (hi - lo) / ORDER_PANELS;
    for (int p = 0; p < ORDER_PANELS && width > 0.0; p++)
        for (int i = 0; i < 16; i++) {
            double weight, t = exp(order_node(lo + p * width, lo + (p + 1) * width, i, &weight));
            sum += weight * t * order_busy(d, n_workers, k, t);
        }
    return sum;
}

/* Workers that differ */

static int order_compare(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* Adds log t for each t at which worker w's distribution function is not smooth. */
static bool order_breaks(const struct pl_delay *d, int w, double *at, int *n) {
    struct pl_delay_look look;
    pl_delay_look(d, (uint32_t)w, &look);
    size_t count = look.kind == PL_DELAY_TRACE ? look.n_sample : 1;
    for (size_t i = 0; i < count; i++) {
        double t = 0.0;
        if (look.kind == PL_DELAY_CONST || look.kind == PL_DELAY_SHIFTEXP) t = look.a;
        if (look.kind == PL_DELAY_PARETO) t = look.b;
        if (look.kind == PL_DELAY_TRACE) t = look.sample[i];
        double x = t > 0.0 ? log(t * look.speed) : ORDER_LOG_MIN;
        if (x <= ORDER_LOG_MIN || x >= log(PL_DELAY_MAX)) continue;
        if (*n == ORDER_BREAKS_MAX) return false;
        at[(*n)++] = x;
    }
    return true;
}

/* Adds weight * Pr(X_{K:P} > t) to mean[K] for all K. done[P + 1] is scratch: Pr(N = j). */
static void order_poisson_binomial(const struct pl_delay *d, int n_workers, double t, double weight,
                                   double *restrict done, double *restrict mean) {
    memset(done, 0, (size_t)(n_workers + 1) * sizeof *done);
    done[0] = 1.0;
    for (int w = 0; w < n_workers; w++) {
        double q = pl_delay_tail(d, (uint32_t)w, t), p = 1.0 - q;
        for (int j = w + 1; j > 0; j--) done[j] = done[j] * q + done[j - 1] * p;
        done[0] *= q;
    }
    double fewer = 0.0;
    for (int k = 1; k <= n_workers; k++) {
        fewer += done[k - 1]; /* Pr(N < K): small values first, for an accurate tail */
        mean[k] += weight * fewer;
    }
}

int pl_order_differing(const struct pl_delay *d, int n_workers, double *mean) {
    double at[ORDER_BREAKS_MAX + 2], lo = INFINITY, hi = -INFINITY;
    int n = 0;
    if (n_workers > ORDER_EXACT_MAX) return PL_EUSAGE;
    /* no worker can finish before lo; at hi each is busy with probability at most 1e-18 */
    for (int w = 0; w < n_workers; w++) {
        if (!order_breaks(d, w, at, &n)) return PL_EUSAGE;
        double a = ORDER_LOG_MIN, b = log(PL_DELAY_MAX), c = ORDER_LOG_MIN, e = b;
        for (int i = 0; i < 50; i++) {
            double low = 0.5 * (a + b), high = 0.5 * (c + e);
            *(pl_delay_cdf(d, (uint32_t)w, exp(low)) > 1e-17 ? &b : &a) = low;
            *(pl_delay_tail(d, (uint32_t)w, exp(high)) > 1e-18 ? &c : &e) = high;
        }
        lo = fmin(lo, a);
        hi = fmax(hi, e);
    }
    double *done = malloc((size_t)(n_workers + 1) * sizeof *done);
    if (!done) return PL_ENOMEM;
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (at[i] > lo && at[i] < hi) at[kept++] = at[i];
    at[kept++] = lo;
    at[kept++] = hi;
    qsort(at, (size_t)kept, sizeof *at, order_compare);
    for (int k = 0; k <= n_workers; k++) mean[k] = k ? exp(lo) : 0.0;
    /* Pr(X_{K:P} > t) falls within about 1/sqrt(P) of log t, so panels are no wider than that */
    double widest = fmin((hi - lo) / ORDER_PANELS, 4.0 / sqrt(n_workers));
    for (int i = 0; i + 1 < kept; i++) {
        int panels = (int)ceil((at[i + 1] - at[i]) / widest);
        double width = panels ? (at[i + 1] - at[i]) / panels : 0.0;
        for (int j = 0; j < 16 * panels; j++) {
            double weight, a = at[i] + j / 16 * width;
            double t = exp(order_node(a, a + width, j % 16, &weight));
            order_poisson_binomial(d, n_workers, t, weight * t, done, mean);
        }
    }
    free(done);
    return PL_OK;
}

int pl_order_simulated(const struct pl_delay *d, int n_workers, uint64_t seed, uint64_t draws,
                       const int *k, int n_k, struct pl_order *out) {
    double *x = malloc((size_t)n_workers * sizeof *x);
    if (!x) return PL_ENOMEM;
    uint64_t rounds = draws / (uint64_t)n_workers;
    if (rounds < 100) rounds = 100;
    for (int i = 0; i < n_k; i++) out[i] = (struct pl_order){0, 0, PL_HOW_SIMULATED};
    for (uint64_t r = 0; r < rounds; r++) {
        for (int w = 0; w < n_workers; w++) x[w] = pl_delay_draw(d, seed, (uint32_t)w, r, 1);
        qsort(x, (size_t)n_workers, sizeof *x, order_compare);
        for (int i = 0; i < n_k; i++) { /* Welford; sd_error holds the sum of squares for now */
            double v = x[k[i] - 1], off = v - out[i].mean;
            out[i].mean += off / (double)(r + 1);
            out[i].sd_error += off * (v - out[i].mean);
        }
    }
    for (int i = 0; i < n_k; i++)
        out[i].sd_error = sqrt(out[i].sd_error / ((double)rounds * (double)(rounds - 1)));
    free(x);
    return PL_OK;
}

/* E[X_{K:P}] for identical workers. */
static struct pl_order order_alike(const struct pl_delay *d, int n_workers, int k) {
    struct pl_delay_look look;
    pl_delay_look(d, 0, &look);
    double mean = 0.0;
    switch (look.kind) {
    case PL_DELAY_CONST: mean = look.a; break;
    case PL_DELAY_EXP: mean = pl_order_exp(look.a, n_workers, k); break;
    case PL_DELAY_SHIFTEXP: mean = look.a + pl_order_exp(look.b, n_workers, k); break;
    case PL_DELAY_PARETO: mean = pl_order_pareto(look.a, look.b, n_workers, k); break;
    case PL_DELAY_RECORDING: /* treated as a trace */
    case PL_DELAY_TRACE: mean = pl_order_sample(look.sample, look.n_sample, n_workers, k); break;
    case PL_DELAY_GAMMA:
    case PL_DELAY_LOGNORMAL:
        return (struct pl_order){pl_order_integral(d, n_workers, k), 0, PL_HOW_INTEGRAL};
    }
    return (struct pl_order){look.speed * mean, 0, PL_HOW_EXACT};
}

int pl_order_means(const struct pl_delay *d, int n_workers, const int *k, int n_k, uint64_t seed,
                   uint64_t draws, struct pl_order *out, struct pl_why *why) {
    if (pl_delay_alike(d)) {
        for (int i = 0; i < n_k; i++) out[i] = order_alike(d, n_workers, k[i]);
        return PL_OK;
    }
    double mean[ORDER_EXACT_MAX + 1];
    int rc = pl_order_differing(d, n_workers, mean);
    for (int i = 0; i < n_k && !rc; i++) out[i] = (struct pl_order){mean[k[i]], 0, PL_HOW_INTEGRAL};
    if (rc == PL_EUSAGE) rc = pl_order_simulated(d, n_workers, seed, draws, k, n_k, out);
    return rc ? pl_fail(why, rc, "out of memory for the order statistics of %d workers", n_workers)
              : PL_OK;
}
