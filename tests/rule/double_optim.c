/* Optimizers in double precision: torch's numbers to ten digits, and what is left of a rule when
 * one of its terms is switched off. */
#include "golden_optim.h"

TEST(as_torch) {
    golden_check_all(1e-10);
}

static void run(const char *optim, double lr, double weight_decay, bool looked_at, double *w) {
    const double w0[GOLDEN_DIM] = {1, -1, 0.5, 0.25};
    struct pl_store_conf conf = rules_of(GOLDEN_DIM, 2, "none", "mean", optim, lr);
    conf.weight_decay = weight_decay;
    struct pl_store *s = store_of(&conf, w0);
    for (int t = 1; t <= GOLDEN_STEPS / 2; t++) golden_step(s, t); /* at a constant rate */
    const struct pl_version *v = pl_store_newest(s);
    memcpy(w, looked_at ? v->lookahead : v->model, GOLDEN_DIM * sizeof *w);
}

static void same(const double *a, const double *b) {
    for (int i = 0; i < GOLDEN_DIM; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-12)) fail_msg("%d: %.15g, %.15g", i, a[i], b[i]);
}

/* At a constant rate torch's model is the point ahead of ours. */
TEST(torch_keeps_the_look_ahead) {
    double ahead[GOLDEN_DIM], torch[GOLDEN_DIM];
    run("nesterov", 0.05, 0, true, ahead);
    run("nesterov:form=torch", 0.05, 0, false, torch);
    same(ahead, torch);
}

/* Two gradients, the second of which is 0: the model stays exactly if the optimizer says so. */
TEST(a_gradient_of_zero_moves_what_keeps_moving) {
    int n_resting = 0;
    for (const struct pl_entry *const *e = pl_optim_family.table; *e; e++) {
        const double w0[1] = {2};
        double g[2] = {1, 0};
        struct pl_store_conf conf = rules_of(1, 1, "none", "mean", (*e)->name, 0.01);
        struct pl_store *s = store_of(&conf, w0);
        for (int i = 0; i < 2; i++) {
            double before = pl_store_newest(s)->model[0];
            struct pl_member m = {.samples = 1, .factor = 1, .base = pl_store_newest(s)->id};
            assert_int_equal(pl_store_take(s, &m, pl_store_newest(s), &g[i], PL_FINITE_UNKNOWN), 0);
            assert_int_equal(pl_store_commit(s, 1, NULL), 0);
            bool stayed = pl_store_newest(s)->model[0] == before;
            if (stayed != (i == 1 && ((const struct pl_optim *)*e)->rests))
                fail_msg("%s: gradient %g", (*e)->name, g[i]);
            n_resting += stayed;
        }
    }
    assert_true(n_resting >= 2);
}

TEST(adamw_without_decay_is_adam) {
    double adam[GOLDEN_DIM], adamw[GOLDEN_DIM], decayed[GOLDEN_DIM];
    run("adam", 0.02, 0, false, adam);
    run("adamw", 0.02, 0, false, adamw);
    run("adamw", 0.02, 0.1, false, decayed);
    same(adam, adamw);
    assert_true(fabs(decayed[0] - adam[0]) > 1e-3);
}

/* A gap is measured in steps of the optimizer, and decoupled decay is part of a step: with rate eta
 * and no gradient, w moves by eta lambda w. */
TEST(the_direction_includes_decay) {
    const double w0[1] = {2};
    double g[1] = {0}, lr = 0.5, lambda = 0.25;
    struct pl_store_conf conf = rules_of(1, 1, "gap:decay=0,eps=0", "mean", "adamw", lr);
    conf.weight_decay = lambda;
    struct pl_store *s = store_of(&conf, w0);
    struct pl_version *first = pl_store_newest(s);
    pl_store_hold(s, first);
    struct pl_member m = {.samples = 1, .factor = 1};
    assert_int_equal(pl_store_take(s, &m, first, g, PL_FINITE_UNKNOWN), 0);
    assert_int_equal(pl_store_commit(s, 1, NULL), 0);
    assert_true(fabs(pl_store_newest(s)->model[0] - (2 - lr * lambda * 2)) < 1e-12);
    /* the model moved by one step of its own length: a gap of 1, so the gradient counts half */
    g[0] = 1;
    m.lag = 1;
    assert_int_equal(pl_store_take(s, &m, first, g, PL_FINITE_UNKNOWN), 0);
    assert_int_equal(pl_store_commit(s, 1, NULL), 0);
    double m1 = 0.1 * 0.5 / (1 - 0.81), v = 0.001 * 0.25 / (1 - 0.998001), w = 1.75;
    double expected = w - lr * lambda * w - lr * m1 / (sqrt(v) + 1e-8);
    assert_true(fabs(pl_store_newest(s)->model[0] - expected) < 1e-9);
    pl_store_release(s, first);
}
