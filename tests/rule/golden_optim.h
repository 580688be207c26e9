/* What torch.optim comes to after 50 steps, and a run of a store that is to come to the same: two
 * workers in lock step whose gradients have the mean that torch was given. Printed by torch 1.13 in
 * double precision; from step 26 on the learning rate is halved. Used by double_optim.c in double
 * and by test_optim.c in single precision. */
#ifndef PL_TESTS_GOLDEN_OPTIM_H
#define PL_TESTS_GOLDEN_OPTIM_H

#include "choices.h"

#define GOLDEN_DIM 4
#define GOLDEN_STEPS 50

static const struct golden_optim {
    const char *optim;
    double lr, weight_decay;
    bool groups; /* the last two parameters: a quarter of the rate, three times the decay */
    double w[GOLDEN_DIM];
} golden_optim[] = {
    {"sgd", 0.1, 0, false, {0.3770110526, -0.7103051465, 0.2210632136, 0.5199355686}},
    {"sgd", 0.1, 0, true, {0.3770110526, -0.7103051465, 0.2504481482, 0.3271446951}},
    {"sgd", 0.1, 0.01, false, {0.3734362981, -0.6967891226, 0.2200576469, 0.5076014897}},
    {"sgd", 0.1, 0.01, true, {0.3734362981, -0.6967891226, 0.2466271390, 0.3194658724}},
    {"momentum:beta=0.9",
     0.05,
     0.01,
     false,
     {0.2647757953, -0.6997273482, 0.2107882509, 0.8778492183}},
    {"momentum:beta=0.9",
     0.05,
     0.01,
     true,
     {0.2647757953, -0.6997273482, 0.2164202812, 0.4755854052}},
    {"momentum:beta=0.9,dampening=0.3",
     0.05,
     0.01,
     false,
     {0.2972741361, -0.6693825286, 0.2061472010, 0.8247104722}},
    {"momentum:beta=0.9,dampening=0.3",
     0.05,
     0.01,
     true,
     {0.2972741361, -0.6693825286, 0.1976624448, 0.4400615791}},
    {"nesterov:form=torch,beta=0.9",
     0.05,
     0.01,
     false,
     {0.3164679929, -0.6791606165, 0.2156481805, 0.8819061199}},
    {"nesterov:form=torch,beta=0.9",
     0.05,
     0.01,
     true,
     {0.3164679929, -0.6791606165, 0.2109242273, 0.4810579101}},
    {"adam", 0.02, 0, false, {0.5720120754, -0.8940130293, 0.2120202764, 0.3463851396}},
    {"adam", 0.02, 0, true, {0.5720120754, -0.8940130293, 0.3871695747, 0.2749919343}},
    {"adam:beta1=0.8,beta2=0.99,eps=1e-3",
     0.02,
     0.01,
     false,
     {0.5933236698, -0.8841829163, 0.2274017480, 0.3387295112}},
    {"adam:beta1=0.8,beta2=0.99,eps=1e-3",
     0.02,
     0.01,
     true,
     {0.5933236698, -0.8841829163, 0.3883619939, 0.2718926419}},
    {"adamw", 0.02, 0.1, false, {0.5305819622, -0.8366386323, 0.2020919512, 0.3248936740}},
    {"adamw", 0.02, 0.1, true, {0.5305819622, -0.8366386323, 0.3661264565, 0.2606346317}},
    {"adamw:beta1=0.8,beta2=0.99,eps=1e-3",
     0.02,
     0.1,
     false,
     {0.5553688556, -0.8358050878, 0.2186226147, 0.3204307298}},
    {"adamw:beta1=0.8,beta2=0.99,eps=1e-3",
     0.02,
     0.1,
     true,
     {0.5553688556, -0.8358050878, 0.3691618382, 0.2595177547}},
    {"adagrad:eps=1e-10",
     0.1,
     0.01,
     false,
     {0.5358033646, -0.8627102689, 0.2196898434, 0.3863789341}},
    {"adagrad:eps=1e-10",
     0.1,
     0.01,
     true,
     {0.5358033646, -0.8627102689, 0.3532423028, 0.2848289682}},
};

/* a (w - c) + sin(k t), with k = 1, 2, … by element. */
static inline double golden_gradient(int t, int i, double w) {
    static const double a[GOLDEN_DIM] = {1, 0.5, 2, 0.1}, c[GOLDEN_DIM] = {0.3, -0.7, 0.2, 1};
    return a[i] * (w - c[i]) + sin((double)t * (i + 1));
}

static inline void golden_step(struct pl_store *s, int t) {
    struct pl_version *v = pl_store_newest(s);
    pl_real g[2][GOLDEN_DIM];
    for (int i = 0; i < GOLDEN_DIM; i++)
        for (int m = 0; m < 2; m++)
            g[m][i] = (pl_real)(golden_gradient(t, i, (double)v->lookahead[i]) +
                                (m ? 0.25 : -0.25) * (i + 1));
    for (int m = 0; m < 2; m++) {
        struct pl_member member = {.worker = m, .base = v->id, .samples = 1, .factor = 1};
        assert_int_equal(pl_store_take(s, &member, v, g[m], PL_FINITE_UNKNOWN), 0);
    }
    assert_int_equal(pl_store_commit(s, t <= GOLDEN_STEPS / 2 ? 1 : 0.5, NULL), 0);
}

/* One row: as torch has it, to `tolerance`. */
static inline void golden_check(const struct golden_optim *row, double tolerance) {
    static const struct pl_model_range group = {2, 4, 0.25, 3, PL_RANGE_PARAMETERS};
    const pl_real w0[GOLDEN_DIM] = {1, -1, (pl_real)0.5, (pl_real)0.25};
    struct pl_store_conf conf = rules_of(GOLDEN_DIM, 2, "none", "mean", row->optim, row->lr);
    conf.weight_decay = row->weight_decay;
    conf.ranges = (struct pl_ranges){&group, row->groups};
    struct pl_store *s = store_of(&conf, w0);
    for (int t = 1; t <= GOLDEN_STEPS; t++) golden_step(s, t);
    for (int i = 0; i < GOLDEN_DIM; i++) {
        double w = (double)pl_store_newest(s)->model[i];
        if (!(fabs(w - row->w[i]) <= tolerance))
            fail_msg("%s, lr %g, weight decay %g%s: parameter %d is %.10f, torch has %.10f",
                     row->optim, row->lr, row->weight_decay, row->groups ? ", param groups" : "", i,
                     w, row->w[i]);
    }
}

static inline void golden_check_all(double tolerance) {
    for (size_t i = 0; i < sizeof golden_optim / sizeof *golden_optim; i++)
        golden_check(&golden_optim[i], tolerance);
}

#endif
