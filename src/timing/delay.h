/* Delay laws: how long a mini-batch takes on a worker.
 *
 *   const:t=T  exp:mean=M  shiftexp:shift=S,mean=M  pareto:shape=A,scale=S
 *   gamma:shape=A,mean=M  lognormal:mu=U,sigma=S  trace:FILE
 *   recording:FILE,order=sequence|random
 *   LAW|LAW|2*LAW          one law per worker, repeated if there are more workers
 *   hetero:v=0.6,LAW       workers of different speeds (see `paceline list delay`)
 *
 * In the simulator a law is the compute time; a real run adds it as an extra delay. Draws are keyed
 * by (seed, worker, task), so methods race on common random numbers. */
#ifndef PL_TIMING_DELAY_H
#define PL_TIMING_DELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

extern const struct pl_family pl_delay_family;

#define PL_DELAY_MAX 1e9 /* seconds; longer draws are cut, so that clocks cannot overflow */

struct pl_delay; /* one law per worker */

int pl_delay_open(const char *spec, int n_workers, uint64_t seed, struct pl_delay **out,
                  struct pl_why *why);
void pl_delay_free(struct pl_delay *d);

/* The seconds that task `task` of `worker` takes if it has `steps` mini-batches: the sum of that
 * many independent draws. A recording gives the time of a recorded task, scaled to the number of
 * mini-batches. Pure and thread-safe. */
double pl_delay_draw(const struct pl_delay *d, uint64_t seed, uint32_t worker, uint64_t task,
                     uint32_t steps);

/* Seconds in nanoseconds: rounded to nearest, halves up, and at most 1e18. */
static inline uint64_t pl_delay_ns(double seconds) {
    double ns = seconds * 1e9;
    if (!(ns < 1e18)) return (uint64_t)1e18;
    int64_t whole = (int64_t)ns; /* conversions of signed numbers are single instructions */
    return (uint64_t)whole + (ns - (double)whole >= 0.5);
}

/* Tells whether all workers follow one law at one speed. */
bool pl_delay_alike(const struct pl_delay *d);

/* For one mini-batch on `worker`: the mean (INFINITY if there is none; without the cut at
 * PL_DELAY_MAX), Pr(X <= t), Pr(X > t) accurate for small values, and the smallest t with
 * Pr(X <= t) >= u for 0 <= u < 1 (the start of the support at u = 0). */
double pl_delay_mean(const struct pl_delay *d, uint32_t worker);
double pl_delay_cdf(const struct pl_delay *d, uint32_t worker, double t);
double pl_delay_tail(const struct pl_delay *d, uint32_t worker, double t);
double pl_delay_quantile(const struct pl_delay *d, uint32_t worker, double u);

/* The law of a worker, for closed forms: X = speed * (the law with parameters a, b). */
enum pl_delay_kind {
    PL_DELAY_CONST,     /* a = t */
    PL_DELAY_EXP,       /* a = mean */
    PL_DELAY_SHIFTEXP,  /* a = shift, b = mean of the exponential part */
    PL_DELAY_PARETO,    /* a = shape, b = scale */
    PL_DELAY_GAMMA,     /* a = shape, b = mean */
    PL_DELAY_LOGNORMAL, /* a = mu, b = sigma */
    PL_DELAY_TRACE,     /* sample[n_sample], ascending */
    PL_DELAY_RECORDING  /* reported as a trace by pl_delay_look */
};

struct pl_delay_look {
    enum pl_delay_kind kind;
    double a, b, speed;
    const double *sample; /* owned by the pl_delay */
    size_t n_sample;
};

void pl_delay_look(const struct pl_delay *d, uint32_t worker, struct pl_delay_look *out);

#endif
