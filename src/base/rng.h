/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011).
 *
 * A generator has a key and no history: (seed, stream, worker, task) names a sequence, and nothing
 * else can change it. Two methods that race on the same seed therefore see the same delay and the
 * same mini-batch for the n-th task of a worker, in whatever order they ask. */
#ifndef PL_BASE_RNG_H
#define PL_BASE_RNG_H

#include <stdint.h>

#include "paceline_policy.h" /* pl_rng_below and pl_rng_unit */

/* What a sequence is used for; two uses never share one. */
enum pl_stream {
    PL_STREAM_DELAY,     /* how long a task takes */
    PL_STREAM_BATCH,     /* which samples it draws */
    PL_STREAM_NOISE,     /* the noise of the quadratic model */
    PL_STREAM_INIT,      /* the initial weights */
    PL_STREAM_DATA,      /* generated data sets */
    PL_STREAM_PARTITION, /* which worker owns which samples */
    PL_STREAM_SPEED,     /* a worker's speed in hetero: laws */
    PL_STREAM_POLICY,    /* chance used by policies (psp) */
    PL_STREAM_TEST,      /* tests and benchmarks */
    PL_STREAM_REDUCE,    /* chance used by reductions (bucketing) */
    PL_STREAM_ATTACK,    /* what hostile workers send */
    PL_STREAM_TRUST,     /* which samples the server trusts */
    PL_STREAM_TWIN       /* forecasts for tuners that switch policies */
};

struct pl_rng {
    uint32_t key[2]; /* the seed */
    uint32_t ctr[4]; /* draw number, task (40 bits), stream (24 bits), worker */
    uint32_t out[4];
    uint32_t left; /* words of out[] not yet used */
};

void pl_rng_init(struct pl_rng *r, uint64_t seed, enum pl_stream stream, uint32_t worker,
                 uint64_t task);

uint32_t pl_rng_u32(struct pl_rng *r);
uint64_t pl_rng_u64(struct pl_rng *r);

double pl_rng_exp(struct pl_rng *r);                 /* mean 1 */
double pl_rng_normal(struct pl_rng *r);              /* mean 0, variance 1 */
double pl_rng_gamma(struct pl_rng *r, double shape); /* scale 1; shape > 0 */

/* What pl_rng_exp would return first in PL_RNG_LANES sequences, those of `task`, task + 1, …, each
 * with a relative error of at most PL_RNG_EXP_ERROR. They are computed side by side, in a fraction
 * of the time. A caller that rounds them can tell if the exact numbers would be rounded alike. */
#define PL_RNG_LANES 32
#define PL_RNG_EXP_ERROR 1e-15
void pl_rng_exps(uint64_t seed, enum pl_stream stream, uint32_t worker, uint64_t task, double *out);

#endif
