/* Kernels on vectors, of corrections and of optimizers, with their plain twins. For test_isa.c. */
#ifndef PL_TESTS_ISA_KERNELS_H
#define PL_TESTS_ISA_KERNELS_H

#include "base/opt.h"
#include "base/rng.h"
#include "core/rule.h"
#include "test.h"

#define ARRAYS 10

struct isa_arrays {
    size_t n;
    uint64_t seed; /* of this run, for whatever else a kernel needs */
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

/* --- corrections --------------------------------------------------------------------------- */

static void *parsed(const struct pl_family *family, const char *spec,
                    const struct pl_entry **entry) {
    void *conf;
    struct pl_why why = {""};
    if (pl_spec_parse(family, spec, 4, entry, &conf, &why)) fail_msg("%s", why.text);
    return conf;
}

/* in[0] g, in[1] w, in[2] base, in[3] velocity; out[4] state, out[5] room, out[6] result */
static struct pl_correct_block correct_block(const struct isa_arrays *a) {
    return (struct pl_correct_block){.n = a->n,
                                     .g = a->in[0],
                                     .w = a->in[1],
                                     .base = a->in[2],
                                     .velocity = a->seed % 3 ? a->in[3] : NULL,
                                     .state = {a->out[4]},
                                     .room = a->out[5],
                                     .room_is_set = a->seed % 5 > 2};
}

static struct pl_correct_at correct_at(const struct isa_arrays *a) {
    struct pl_correct_at at = {.lag = 3, .count = 9, .n_members = 4, .lr = 0.01, .lr_max = 0.05};
    at.member = a->seed % 5 > 2 ? (int)(a->seed % 4) : 0;
    at.n_workers = 4;
    return at;
}

static void correct_run(struct isa_arrays *a, const char *spec) {
    const struct pl_entry *entry;
    void *conf = parsed(&pl_correct_family, spec, &entry);
    const struct pl_correct *c = (const struct pl_correct *)entry;
    struct pl_correct_block b = correct_block(a);
    struct pl_correct_at at = correct_at(a);
    double sum[PL_RULE_SUMS] = {0};
    for (size_t i = 0; i < a->n; i++) a->out[4][i] = fabsf(a->out[4][i]); /* a mean of squares */
    for (size_t i = 0; i < a->n; i++) a->out[5][i] = fabsf(a->out[5][i]) + 1e-30f;
    if (c->sums) c->sums(conf, &b, sum);
    if (c->apply) c->apply(conf, &at, &b, a->out[6]);
    a->number = sum[0] + 3 * sum[1];
    free(conf);
}

static void correct_states(struct isa_arrays *a) {
    for (size_t i = 0; i < a->n; i++) a->out[4][i] = fabsf(a->out[4][i]);
    for (size_t i = 0; i < a->n; i++) a->out[5][i] = fabsf(a->out[5][i]) + 1e-30f;
}

static void gap(struct isa_arrays *a) {
    correct_run(a, "gap:decay=0.9");
}

static void gap_plain(struct isa_arrays *a) {
    struct pl_correct_block b = correct_block(a);
    struct pl_correct_at at = correct_at(a);
    const float *v = b.velocity ? b.velocity : b.g;
    int left = b.velocity ? at.n_members - at.member : 1;
    double kept = pow(0.9, left), last = (double)at.count + left - 1;
    float fix = (float)(1 / (1 - pow(0.9, last)));
    correct_states(a);
    for (size_t i = 0; i < a->n; i++) {
        if (!b.velocity || at.member == 0)
            b.state[0][i] = (float)kept * b.state[0][i] + (float)(1 - kept) * v[i] * v[i];
        if (!b.velocity || !b.room_is_set) {
            float unit = (float)at.lr_max * (sqrtf(b.state[0][i] * fix) + 1e-8f);
            b.room[i] = fminf(fmaxf(unit, 1e-37f), 1e38f);
        }
        float share = b.room[i] / (fabsf(b.w[i] - b.base[i]) + b.room[i]);
        a->out[6][i] = b.g[i] * share;
    }
    double moved, length;
    struct isa_arrays x = *a;
    x.in[0] = b.w;
    x.in[1] = b.base;
    distance2_plain(&x);
    moved = x.number;
    x.in[0] = x.in[1] = v;
    dot_plain(&x);
    length = x.number;
    a->number = moved + 3 * length;
}

static void gap_scalar(struct isa_arrays *a) {
    correct_run(a, "gap:form=scalar,decay=0.9");
}

static void gap_scalar_plain(struct isa_arrays *a) {
    float *out[ARRAYS];
    memcpy(out, a->out, sizeof out);
    correct_states(a);
    memcpy(out[6], a->in[0], a->n * sizeof(float));
    struct isa_arrays x = *a;
    const float *v = correct_block(a).velocity ? a->in[3] : a->in[0];
    x.in[0] = a->in[1];
    x.in[1] = a->in[2];
    distance2_plain(&x);
    a->number = x.number;
    x.in[0] = x.in[1] = v;
    dot_plain(&x);
    a->number += 3 * x.number;
}

static void dc(struct isa_arrays *a) {
    correct_run(a, "dc");
}

static void dc_plain(struct isa_arrays *a) {
    correct_states(a);
    const float *g = a->in[0], *w = a->in[1], *base = a->in[2];
    for (size_t i = 0; i < a->n; i++) a->out[6][i] = g[i] + 0.04f * g[i] * g[i] * (w[i] - base[i]);
    a->number = 0;
}

static void dc_a(struct isa_arrays *a) {
    correct_run(a, "dc:form=a,lambda=2");
}

static void dc_a_plain(struct isa_arrays *a) {
    const float *g = a->in[0], *w = a->in[1], *base = a->in[2];
    float *ms = a->out[4];
    correct_states(a);
    for (size_t i = 0; i < a->n; i++) {
        ms[i] = 0.95f * ms[i] + (float)(1 - 0.95) * g[i] * g[i];
        float lambda = 2.0f / sqrtf(ms[i] + 1e-7f);
        a->out[6][i] = g[i] + lambda * g[i] * g[i] * (w[i] - base[i]);
    }
    a->number = 0;
}

static void distance(struct isa_arrays *a) {
    correct_run(a, "distance");
}

static void distance_plain(struct isa_arrays *a) {
    correct_states(a);
    struct isa_arrays x = *a;
    x.in[0] = a->in[1];
    x.in[1] = a->in[2];
    distance2_plain(&x);
    a->number = x.number;
}

static void clip(struct isa_arrays *a) {
    correct_run(a, "clip");
}

static void clip_plain(struct isa_arrays *a) {
    correct_states(a);
    struct isa_arrays x = *a;
    x.in[1] = a->in[0];
    dot_plain(&x);
    a->number = x.number;
}

/* --- optimizers ---------------------------------------------------------------------------- */

/* in[0] u, in[1] w; out[2] new model, out[3] look-ahead, out[4] and out[5] states, out[6] the
 * worker's own, out[7] direction */
static struct pl_optim_at optim_at(const struct isa_arrays *a) {
    return (struct pl_optim_at){.lr = 0.03,
                                .weight_decay = a->seed % 2 ? 0.01 : 0,
                                .count = 1 + a->seed % 4,
                                .n_workers = 4,
                                .base = 7,
                                .number = {2 + (double)(a->seed % 3), (double)(a->seed % 3)}};
}

static void optim_states(struct isa_arrays *a) {
    for (size_t i = 0; i < a->n; i++) a->out[5][i] = fabsf(a->out[5][i]);
}

static void optim_run(struct isa_arrays *a, const char *spec) {
    const struct pl_entry *entry;
    void *conf = parsed(&pl_optim_family, spec, &entry);
    const struct pl_optim *o = (const struct pl_optim *)entry;
    struct pl_optim_at at = optim_at(a);
    struct pl_optim_block b = {.n = a->n,
                               .u = a->in[0],
                               .w = a->in[1],
                               .out = a->out[2],
                               .ahead = a->out[3],
                               .state = {a->out[4], a->out[5]},
                               .own = a->out[6],
                               .direction = a->seed % 3 ? a->out[7] : NULL};
    optim_states(a);
    if (strncmp(spec, "adagrad", 7) == 0) b.state[0] = a->out[5];
    o->step(conf, &at, &b);
    free(conf);
}

#define EACH(a) for (size_t i = 0; i < (a)->n; i++)
#define U a->in[0][i]
#define W a->in[1][i]
#define NEW a->out[2][i]
#define AHEAD a->out[3][i]
#define V a->out[4][i]
#define SQUARES a->out[5][i]
#define OWN a->out[6][i]

/* What the library does; its plain twins follow. */
#define OPTIM(name, spec)                                                                          \
    static void name(struct isa_arrays *a) {                                                       \
        optim_run(a, spec);                                                                        \
    }
OPTIM(sgd, "sgd")
OPTIM(momentum, "momentum:beta=0.8,dampening=0.3")
OPTIM(nesterov, "nesterov:beta=0.8")
OPTIM(nesterov_torch, "nesterov:beta=0.8,form=torch")
OPTIM(adagrad, a->seed % 2 ? "adagrad" : "adagrad:eps=0")
OPTIM(adam, "adam:beta1=0.8,beta2=0.9")
OPTIM(adamw, "adamw:beta1=0.8,beta2=0.9")
OPTIM(dana, "dana:beta=0.8")
OPTIM(dana_slim, "dana:beta=0.8,form=slim")
OPTIM(dana_multi, "dana:beta=0.8,form=multi")
OPTIM(ormo, "ormo:beta=0.8")
#undef OPTIM

static void sgd_plain(struct isa_arrays *a) {
    optim_states(a);
    EACH(a) NEW = W - 0.03f * U;
}

static void momentum_plain(struct isa_arrays *a) {
    float enters = optim_at(a).count > 1 ? (float)(1 - 0.3) : 1;
    optim_states(a);
    EACH(a) {
        V = 0.8f * V + enters * U;
        NEW = W - 0.03f * V;
    }
}

static void nesterov_plain(struct isa_arrays *a) {
    optim_states(a);
    EACH(a) {
        V = 0.8f * V + U;
        NEW = W - 0.03f * V;
        AHEAD = NEW - (float)(0.03 * 0.8) * V;
    }
}

static void nesterov_torch_plain(struct isa_arrays *a) {
    optim_states(a);
    EACH(a) {
        V = 0.8f * V + U;
        NEW = W - 0.03f * (U + 0.8f * V);
    }
}

static void adagrad_plain(struct isa_arrays *a) {
    optim_states(a);
    EACH(a) {
        SQUARES += U * U;
        float root = sqrtf(SQUARES) + (a->seed % 2 ? 1e-8f : 0);
        float step = 0.03f * U;
        NEW = W - (root > 0 ? step / root : 0 * step); /* 0, with the sign of u */
    }
}

static void adam_step(struct isa_arrays *a, float shrink, float decay) {
    double count = (double)optim_at(a).count;
    float fix1 = (float)(1 / (1 - pow(0.8, count))), fix2 = (float)(1 / (1 - pow(0.9, count)));
    optim_states(a);
    EACH(a) {
        V = 0.8f * V + (float)(1 - 0.8) * U;
        SQUARES = 0.9f * SQUARES + (float)(1 - 0.9) * U * U;
        float direction = fix1 * V / (sqrtf(fix2 * SQUARES) + 1e-8f);
        NEW = W - 0.03f * direction;
        if (shrink > 0) NEW -= shrink * W;
        if (shrink > 0) direction += decay * W;
        if (a->seed % 3) a->out[7][i] = direction;
    }
}

static void adam_plain(struct isa_arrays *a) {
    adam_step(a, 0, 0);
}

static void adamw_plain(struct isa_arrays *a) {
    double decay = optim_at(a).weight_decay;
    adam_step(a, (float)(0.03 * decay), (float)decay);
}

static void dana_plain(struct isa_arrays *a) {
    optim_states(a);
    EACH(a) {
        float old = OWN;
        OWN = 0.8f * old + U;
        V += OWN - old;
        NEW = W - 0.03f * OWN;
        AHEAD = NEW - (float)(0.03 * 0.8) * V;
    }
}

static void dana_slim_plain(struct isa_arrays *a) {
    optim_states(a);
    EACH(a) {
        OWN = 0.8f * OWN + U;
        NEW = W - 0.03f * (0.8f * OWN + U);
    }
}

static void dana_multi_plain(struct isa_arrays *a) {
    optim_states(a);
    EACH(a) {
        OWN = 0.8f * OWN + U;
        NEW = W - 0.03f * OWN;
    }
}

static void ormo_plain(struct isa_arrays *a) {
    struct pl_optim_at at = optim_at(a);
    double beta = 0.8, jump = at.number[1], late = at.number[0] - 2;
    float carry = (float)(beta * (1 - pow(beta, jump)) / (1 - beta));
    float decay = (float)pow(beta, jump), join = (float)(pow(beta, late) * 0.03);
    float move = (float)((1 - pow(beta, late + 1)) / (1 - beta) * 0.03);
    optim_states(a);
    EACH(a) {
        NEW = W - carry * V - move * U;
        V = decay * V + join * U;
    }
}

#endif
