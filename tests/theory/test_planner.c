/* Error bounds, and the planner that uses them. */
#include "delays.h"
#include "theory/planner.h"

/* The bound on the error after `updates` updates: what pl_bound_updates inverts. */
static double bound_after(const struct pl_problem *p, const struct pl_bound *b, double updates) {
    if (p->convex > 0.0) return b->floor + pow(b->rate, updates) * (p->gap - b->floor);
    return 2.0 * p->gap / ((updates + 1.0) * p->eta * b->gamma_prime) + b->floor;
}

TEST(test_bounds) {
    struct pl_problem p = {.eta = 0.05,
                           .smooth = 2,
                           .sigma2 = 8,
                           .batch = 4,
                           .gap = 10,
                           .convex = 0.5,
                           .growth = 3,
                           .gamma = 0.3,
                           .p0 = 0.2};
    struct pl_bound b;
    pl_bound_of(&p, PL_KSYNC, 4, 0.0, 0.0, &b);
    near(b.floor, 0.05 * 2 * 8 / (2 * 0.5 * 4 * 4), 1e-15);
    near(b.rate, 1 - 0.05 * 0.5, 1e-15);
    near(b.eta_max, 1 / (2 * 2 * (3 / 16.0 + 1)), 1e-15);
    near(bound_after(&p, &b, 0), 10, 1e-14);
    near(bound_after(&p, &b, 1e9), b.floor, 1e-15);
    double j = pl_bound_updates(&p, &b, 0.1);
    assert_true(bound_after(&p, &b, j) <= 0.1 && bound_after(&p, &b, j - 1) > 0.1);
    assert_true(isinf(pl_bound_updates(&p, &b, b.floor)) && pl_bound_updates(&p, &b, 11) == 0);
    pl_bound_of(&p, PL_KASYNC, 4, 1.0, 0.5, &b);
    near(b.gamma_prime, 1 - 0.3 + 0.1, 1e-15); /* the given p0, not the caller's guess */
    near(b.floor, 0.05 * 2 * 8 / (2 * 0.5 * 0.8 * 4 * 4), 1e-15);
    near(b.rate, 1 - 0.05 * 0.5 * 0.8, 1e-15);
    near(b.eta_max, 1 / (2 * 2 * (3 / 16.0 + 0.25)), 1e-15);
    p.convex = 0;
    pl_bound_of(&p, PL_KBATCHASYNC, 4, 1.0, 0.5, &b);
    near(bound_after(&p, &b, 99), 2 * 10 / (100 * 0.05 * 0.8) + 2 * 0.05 * 8 / (4 * 4 * 0.8),
         1e-12);
    j = pl_bound_updates(&p, &b, 0.2);
    assert_true(bound_after(&p, &b, j) <= 0.2 && bound_after(&p, &b, j - 1) > 0.2);
    /* asynchrony decays faster per update iff p0/2 > gamma */
    p.convex = 0.5;
    p.gamma = 0.09;
    pl_bound_of(&p, PL_KASYNC, 4, 1.0, 0.0, &b);
    assert_true(b.rate < 1 - 0.05 * 0.5);
    /* estimated gamma: no staleness, no loss; too much, no guarantee */
    p.gamma = p.p0 = NAN;
    pl_bound_of(&p, PL_KASYNC, 4, 0.0, 0.0, &b);
    assert_true(b.gamma == 0.0 && b.gamma_prime == 1.0);
    pl_bound_of(&p, PL_KASYNC, 4, 5.0, 0.0, &b);
    near(b.gamma, 0.25, 1e-15);
    pl_bound_of(&p, PL_KASYNC, 4, 50.0, 0.0, &b);
    assert_true(isinf(b.floor) && !b.valid && isinf(pl_bound_updates(&p, &b, 1.0)));

    struct pl_why why;
    assert_int_equal(pl_problem_check(&pl_problem_default, &why), 0);
    p = pl_problem_default;
    p.eta = -1;
    assert_int_equal(pl_problem_check(&p, &why), PL_EUSAGE);
    assert_string_equal(why.text, "lr=-1 is not accepted; lr takes a number above 0");
    p.eta = INFINITY;
    assert_int_equal(pl_problem_check(&p, &why), PL_EUSAGE);
    p = pl_problem_default;
    p.gamma = 1.5;
    assert_int_equal(pl_problem_check(&p, &why), PL_EUSAGE);
}

TEST(test_planner) {
    static struct pl_planner_row row[PL_PLANNER_ROWS_MAX];
    static const struct {
        const char *spec;
        int p;
    } run[] = {{"exp", 1},
               {"exp", 8},
               {"shiftexp", 8},
               {"hetero:v=0.6,gamma", 33},
               {"pareto", 64},
               {"shiftexp:shift=0.5", 2000},
               {"hetero:v=0.6,gamma", 1000}};
    for (size_t i = 0; i < sizeof run / sizeof run[0]; i++) {
        struct pl_delay *d = open_delay(run[i].spec, run[i].p);
        struct pl_planner_in in = {.delay = d,
                                   .n_workers = run[i].p,
                                   .seed = test_seed,
                                   .draws = 20000,
                                   .problem = pl_problem_default};
        struct pl_planner_best best;
        struct pl_why why = {""};
        int n = 0;
        if (pl_planner_run(&in, row, &n, &best, &why)) fail_msg("%s", why.text);
        assert_true(n % PL_N_VARIANTS == 0 && row[0].k == 1 && row[n - 1].k == run[i].p);
        double least = INFINITY;
        for (int j = 0; j < n; j++) {
            assert_true(row[j].variant == (enum pl_variant)(j % PL_N_VARIANTS));
            assert_true(row[j].time.seconds > 0.0 && row[j].bound.floor > 0.0);
            near(row[j].updates_per_s * row[j].time.seconds, 1.0, 1e-12);
            if (j >= 4) assert_true(row[j].k > row[j - 4].k);
            if (row[j].bound.valid) least = fmin(least, row[j].seconds_to_target);
            assert_true(row[j].best == (best.variant[row[j].variant].row == j));
        }
        if (run[i].p == 1) {
            assert_true(best.overall.row == -1); /* one worker cannot reach the default target */
        } else {
            assert_true(best.overall.row >= 0 && row[best.overall.row].seconds_to_target == least);
        }
    }
    /* exp, P = 8, K-sync: 46 / (0.02 - 0.03125/K) updates of (H_8 - H_{8-K}) s are least at 3 */
    struct pl_delay *d = open_delay("exp", 8);
    struct pl_planner_in in = {.delay = d, .n_workers = 8, .problem = pl_problem_default};
    struct pl_planner_best best;
    int n;
    assert_int_equal(pl_planner_run(&in, row, &n, &best, NULL), 0);
    assert_int_equal(row[best.variant[PL_KSYNC].row].k, 3);
    near(row[best.variant[PL_KSYNC].row].seconds_to_target, 4800 * 0.434524, 6.0);
    in.target = -1;
    assert_int_equal(pl_planner_run(&in, row, &n, &best, NULL), PL_EUSAGE);
    int k[PL_PLANNER_K_MAX];
    for (int p = 1; p > 0 && p < 1 << 24; p += 1 + p / 3) {
        int count = pl_planner_ks(p, k);
        assert_true(count <= PL_PLANNER_K_MAX && k[0] == 1 && k[count - 1] == p);
        for (int j = 1; j < count; j++) assert_true(k[j] > k[j - 1]);
    }
}

ALL_TESTS_FROM_SEED(20180409, NULL, NULL)
