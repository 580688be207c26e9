/* Kernels on vectors with their plain twins, and those of corrections and of optimizers. For
 * test_isa.c. */
#ifndef PL_TESTS_ISA_KERNELS_H
#define PL_TESTS_ISA_KERNELS_H

#include "base/opt.h"
#include "base/rng.h"
#include "core/rule.h"
#include "test.h"

#define ARRAYS 10

struct isa_arrays {
    size_t n;
    uint64_t seed;    /* of this run, for whatever else a kernel needs */
    const char *rule; /* the name of its case */
    const float *in[ARRAYS];
    float *out[ARRAYS];
    double number;
};

typedef void isa_run(struct isa_arrays *a);

/* --- vectors ------------------------------------------------------------------------------- */

static void dot(struct isa_arrays *a) {
    a->number = pl_vec_dot(a->in[0], a->in[1], a->n);
}

/* Element i belongs to lane i % 8; the lanes are added in pairs. */
static double fold(const double *lane) {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

static void dot_plain(struct isa_arrays *a) {
    double lane[8] = {0};
    for (size_t i = 0; i < a->n; i++) lane[i % 8] += (double)a->in[0][i] * (double)a->in[1][i];
    a->number = fold(lane);
}

static void distance2(struct isa_arrays *a) {
    a->number = pl_vec_distance2(a->in[0], a->in[1], a->n);
}

static void distance2_plain(struct isa_arrays *a) {
    double lane[8] = {0};
    for (size_t i = 0; i < a->n; i++) {
        double d = (double)a->in[0][i] - (double)a->in[1][i];
        lane[i % 8] += d * d;
    }
    a->number = fold(lane);
}

/* One element may be infinite or not a number; it may also lie outside the array. */
static float spoil(const struct isa_arrays *a, size_t *at) {
    static const float bad[] = {1, INFINITY, -INFINITY, NAN, -NAN, 3.4e38f};
    *at = (size_t)(a->seed / 7 % (2 * a->n + 1));
    return bad[a->seed % (sizeof bad / sizeof *bad)];
}

static void all_finite(struct isa_arrays *a) {
    size_t at;
    float x = spoil(a, &at);
    if (at < a->n) a->out[0][at] = x;
    a->number = pl_vec_finite(a->out[0], a->n);
}

static void all_finite_plain(struct isa_arrays *a) {
    size_t at;
    float x = spoil(a, &at);
    if (at < a->n) a->out[0][at] = x;
    a->number = 1;
    for (size_t i = 0; i < a->n; i++)
        if (!isfinite(a->out[0][i])) a->number = 0;
}

#define TERMS_MAX 21

/* Some of the vectors, each several times, some with a weight of 0. */
static int terms(const struct isa_arrays *a, const float **x, double *weight) {
    struct pl_rng rng;
    pl_rng_init(&rng, a->seed, PL_STREAM_TEST, 1, 0);
    int n = (int)pl_rng_below(&rng, TERMS_MAX + 1);
    for (int m = 0; m < n; m++) {
        x[m] = a->in[1 + m % (ARRAYS - 1)];
        weight[m] = pl_rng_below(&rng, 4) == 0 ? 0 : pl_rng_unit(&rng) - 0.3;
    }
    return n;
}

static void weighted(struct isa_arrays *a) {
    const float *x[TERMS_MAX];
    double weight[TERMS_MAX];
    int n = terms(a, x, weight);
    assert_ptr_equal(pl_vec_weighted(n, x, weight, a->n, a->out[0]), a->out[0]);
}

static void weighted_plain(struct isa_arrays *a) {
    const float *x[TERMS_MAX];
    double weight[TERMS_MAX];
    int n = terms(a, x, weight);
    for (size_t i = 0; i < a->n; i++) {
        float sum = 0;
        bool first = true;
        for (int m = 0; m < n; m++) {
            float term = (float)weight[m] * x[m][i];
            if ((float)weight[m] == 0) continue;
            sum = first ? term : sum + term;
            first = false;
        }
        a->out[0][i] = sum;
    }
}

static void accumulate(struct isa_arrays *a) {
    const float *x[TERMS_MAX];
    double weight[TERMS_MAX];
    int n = terms(a, x, weight);
    a->number = pl_vec_accumulate(n, x, weight, a->n, false, a->out[0]);
}

static void accumulate_plain(struct isa_arrays *a) {
    const float *x[TERMS_MAX];
    double weight[TERMS_MAX];
    int n = terms(a, x, weight);
    for (int m = 0; m < n; m++)
        for (size_t i = 0; i < a->n; i++)
            if ((float)weight[m] != 0) a->out[0][i] += (float)weight[m] * x[m][i];
    a->number = 0;
}

/* --- rules --------------------------------------------------------------------------------- */

static void *parsed(const struct pl_family *family, const struct isa_arrays *a,
                    const struct pl_entry **entry) {
    void *conf;
    struct pl_why why = {""};
    if (pl_spec_parse(family, strchr(a->rule, '/') + 1, 4, entry, &conf, &why))
        fail_msg("%s", why.text);
    return conf;
}

static void squares(const struct isa_arrays *a, int k) {
    for (size_t i = 0; i < a->n; i++) a->out[k][i] = fabsf(a->out[k][i]);
}

/* in[0] g, in[1] w, in[2] base, in[3] velocity; out[4] state, out[5] room, out[6] result */
static void correct(struct isa_arrays *a) {
    const struct pl_entry *entry;
    void *conf = parsed(&pl_correct_family, a, &entry);
    const struct pl_correct *c = (const struct pl_correct *)entry;
    bool late = a->seed % 5 > 2; /* not the first member of its group */
    struct pl_correct_block b = {.n = a->n,
                                 .g = a->in[0],
                                 .w = a->in[1],
                                 .base = a->in[2],
                                 .velocity = a->seed % 3 ? a->in[3] : NULL,
                                 .state = {a->out[4]},
                                 .room = a->out[5],
                                 .room_is_set = late};
    struct pl_correct_at at = {.lag = 3,
                               .count = 9,
                               .n_members = 4,
                               .member = late ? (int)(a->seed % 4) : 0,
                               .lr = 0.01,
                               .lr_max = 0.05,
                               .n_workers = 4};
    double sum[PL_RULE_SUMS] = {0};
    squares(a, 4);
    squares(a, 5);
    for (size_t i = 0; i < a->n; i++) a->out[5][i] += 1e-30f;
    if (c->sums) c->sums(conf, &b, sum);
    if (c->apply) c->apply(conf, &at, &b, a->out[6]);
    a->number = sum[0] + 3 * sum[1];
    free(conf);
}

/* in[0] u, in[1] w; out[2] new model, out[3] look-ahead, out[4] and out[5] states, out[6] the
 * worker's own, out[7] direction */
static void optim(struct isa_arrays *a) {
    const struct pl_entry *entry;
    void *conf = parsed(&pl_optim_family, a, &entry);
    const struct pl_optim *o = (const struct pl_optim *)entry;
    bool adagrad = strcmp(entry->name, "adagrad") == 0; /* its state is a sum of squares */
    struct pl_optim_at at = {.lr = 0.03,
                             .weight_decay = a->seed % 2 ? 0.01 : 0,
                             .count = 1 + a->seed % 4,
                             .n_workers = 4,
                             .base = 7,
                             .number = {2 + (double)(a->seed % 3), (double)(a->seed % 3)}};
    struct pl_optim_block b = {.n = a->n,
                               .u = a->in[0],
                               .w = a->in[1],
                               .out = a->out[2],
                               .ahead = a->out[3],
                               .state = {a->out[adagrad ? 5 : 4], a->out[5]},
                               .own = a->out[6],
                               .direction = a->seed % 3 ? a->out[7] : NULL};
    squares(a, 5);
    o->step(conf, &at, &b);
    free(conf);
}

#endif
