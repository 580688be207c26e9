/* Closed forms and tables against reference values.
 *
 * Exact columns are compared to the printed digits; simulated ones to 1 %, Pareto to 3 % (its
 * variance is infinite). Where one method can check another it does: integration against closed
 * forms, simulation against integration within six standard errors. PL_TEST_SEED moves every
 * random choice; it is printed at the start. */
#include "base/special.h"
#include "delays.h"
#include "theory/planner.h"

static struct pl_runtime cell(const struct pl_delay *d, int n_workers, enum pl_variant v, int k) {
    struct pl_runtime r;
    struct pl_why why = {""};
    if (pl_runtime_of(d, n_workers, v, &k, 1, test_seed, 200000, &r, &why))
        fail_msg("%s", why.text);
    return r;
}

/* Simulates enough updates for the tolerances of the tables. */
static struct pl_runtime played(const struct pl_delay *d, int n_workers, enum pl_variant v, int k,
                                uint64_t updates) {
    struct pl_runtime r;
    assert_int_equal(pl_runtime_simulated(d, n_workers, v, k, test_seed, updates, &r), 0);
    return r;
}

/* Within `share` of `want`, or within six standard errors where the seed makes those larger. */
#define agrees(r, want, share)                                                                     \
    near_at((r).seconds, want, fmax((share) * (want), 6.0 * (r).sd_error), #r, __LINE__)

static double log_choose(int n, int k) {
    return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0);
}

TEST(test_special) {
    near(pl_harmonic(0, 8), 2.717857142857143, 1e-14);
    near(pl_gamma_cdf(1, 2.5, true), exp(-2.5), 1e-15);
    near(pl_gamma_cdf(0.5, 2.0, false), erf(sqrt(2.0)), 1e-14);
    /* Gamma(n) below x: Poisson(x) at least n; shape large, at the mean: 1/2 + 1/(3 sqrt(2 pi a))
     */
    near(pl_gamma_cdf(1e6, 1e6, false), 0.5 + 1.0 / (3.0 * sqrt(2e6 * acos(-1.0))), 1e-9);
    for (double shape = 0.02; shape < 1e5; shape *= 3.7)
        for (double u = 0.0005; u < 1.0; u += 0.0331) {
            double x = pl_gamma_quantile(shape, u);
            if (x > 1e-290) near(pl_gamma_cdf(shape, x, false), u, 1e-10 * u + 1e-12);
        }
    for (double z = -8; z <= 5; z += 0.37)
        near(pl_normal_quantile(pl_normal_cdf(z, false)), z, 1e-9);
    /* I_x(a, n-a+1) is the upper tail of a binomial */
    for (int n = 1; n <= 40; n += 3)
        for (int a = 1; a <= n; a++)
            for (double x = 0.05; x < 1.0; x += 0.15) {
                double tail = 0.0;
                for (int j = n; j >= a; j--)
                    tail += exp(log_choose(n, j) + j * log(x) + (n - j) * log1p(-x));
                near(pl_beta_cdf(a, n - a + 1.0, x, 1.0 - x), tail, 1e-12);
            }
}

/* run time per update, P = 8 (Dutta et al., AISTATS 2018, Lemmas 3-5) */
TEST(test_table_exp) {
    static const double sync[] = {0.125000, 0.267857, 0.434524, 0.634524,
                                  0.884524, 1.217857, 1.717857, 2.717857};
    static const double ratio[] = {1.0000, 1.0714, 1.1587, 1.2690, 1.4152, 1.6238, 1.9633, 2.7179};
    struct pl_delay *d = open_delay("exp:mean=1", 8);
    for (int k = 1; k <= 8; k++) {
        static const enum pl_variant order[] = {PL_KSYNC, PL_KASYNC};
        for (int i = 0; i < 2; i++) {
            struct pl_runtime r = cell(d, 8, order[i], k);
            near(r.seconds, sync[k - 1], 5.1e-7);
            assert_true(r.how == PL_HOW_EXACT && r.sd_error == 0.0);
            agrees(played(d, 8, order[i], k, 20000), r.seconds, 0.01);
        }
        static const enum pl_variant batch[] = {PL_KBATCHSYNC, PL_KBATCHASYNC};
        for (int i = 0; i < 2; i++) {
            struct pl_runtime r = cell(d, 8, batch[i], k);
            near(r.seconds, k / 8.0, 1e-15);
            assert_true(r.how == PL_HOW_EXACT);
            agrees(played(d, 8, batch[i], k, 20000), r.seconds, 0.01);
        }
        near(cell(d, 8, PL_KASYNC, k).seconds / cell(d, 8, PL_KBATCHASYNC, k).seconds, ratio[k - 1],
             5.1e-5);
    }
    d = open_delay("exp", 20); /* 2000 updates of the paper's figure 6 */
    static const int k6[] = {1, 5, 10, 15, 20};
    static const double figure6[] = {100.0, 559.0, 1337.5, 2628.8, 7195.5};
    for (int i = 0; i < 5; i++)
        near(2000 * cell(d, 20, PL_KSYNC, k6[i]).seconds, figure6[i], 0.051);
}

/* The two tables with simulated columns: {K-sync exact, K-batch-sync, K-async}. */
static void check_table(const char *spec, double digits, double limit, uint64_t updates,
                        const double (*want)[3], double mean) {
    struct pl_delay *d = open_delay(spec, 8);
    for (int k = 1; k <= 8; k++) {
        struct pl_runtime sync = cell(d, 8, PL_KSYNC, k), async = cell(d, 8, PL_KBATCHASYNC, k);
        near(sync.seconds, want[k - 1][0], digits);
        near(async.seconds, k * mean / 8.0, 1e-15);
        assert_true(sync.how == PL_HOW_EXACT && async.how == PL_HOW_EXACT);
        agrees(played(d, 8, PL_KBATCHSYNC, k, updates), want[k - 1][1], limit);
        agrees(played(d, 8, PL_KASYNC, k, updates), want[k - 1][2], limit);
        agrees(played(d, 8, PL_KSYNC, k, updates), sync.seconds, limit);
        agrees(played(d, 8, PL_KBATCHASYNC, k, updates), async.seconds, limit);
        /* the cells that are exact after all: K = 1 and K = P */
        struct pl_runtime c = cell(d, 8, PL_KASYNC, k);
        assert_true(c.how == (k == 1 || k == 8 ? PL_HOW_EXACT : PL_HOW_SIMULATED));
        agrees(c, want[k - 1][2], limit);
        c = cell(d, 8, PL_KBATCHSYNC, k);
        assert_true(c.how == (k == 1 ? PL_HOW_EXACT : PL_HOW_SIMULATED));
        agrees(c, want[k - 1][1], limit);
    }
}

TEST(test_table_shiftexp) {
    static const double want[8][3] = {{1.12500, 1.125, 0.250}, {1.26786, 1.268, 0.533},
                                      {1.43452, 1.434, 0.857}, {1.63452, 1.631, 1.240},
                                      {1.88452, 1.864, 1.624}, {2.21786, 2.129, 2.053},
                                      {2.71786, 2.407, 2.638}, {3.71786, 2.671, 3.715}};
    check_table("shiftexp:shift=1,mean=1", 5.1e-6, 0.01, 20000, want, 2.0);
}

TEST(test_table_pareto) {
    static const double want[8][3] = {{1.06667, 1.067, 0.251}, {1.14872, 1.149, 0.535},
                                      {1.25315, 1.253, 0.855}, {1.39239, 1.391, 1.236},
                                      {1.59130, 1.576, 1.597}, {1.90956, 1.818, 2.070},
                                      {2.54608, 2.097, 2.896}, {5.09215, 2.364, 5.07}};
    check_table("pareto:shape=2,scale=1", 5.1e-6, 0.03, 30000, want, 2.0);
}

/* a synchronous update over an asynchronous one, P E[X_{P:P}] / E[X] */
TEST(test_speedups) {
    static const struct {
        const char *spec;
        int p;
        double want;
    } row[] = {{"exp", 8, 21.743},      {"exp", 16, 54.092},         {"exp", 20, 71.955},
               {"exp", 32, 129.872},    {"shiftexp", 8, 14.871},     {"shiftexp", 20, 45.977},
               {"pareto", 8, 20.369},   {"pareto", 20, 79.763},      {"exp:mean=7", 8, 21.743},
               {"const:t=3", 13, 13.0}, {"gamma:shape=1", 8, 21.743}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct pl_delay *d = open_delay(row[i].spec, row[i].p);
        near(cell(d, row[i].p, PL_KSYNC, row[i].p).seconds /
                 cell(d, row[i].p, PL_KASYNC, 1).seconds,
             row[i].want, 5.1e-4);
    }
}

/* backup workers (Chen et al., arXiv 1604.00981): the N-th of 100 */
TEST(test_backup_workers) {
    static const int k[] = {50, 80, 90, 95, 96, 97, 98, 99, 100};
    static const double want[] = {0.6882, 1.5896, 2.2584, 2.9040, 3.1040,
                                  3.3540, 3.6874, 4.1874, 5.1874};
    struct pl_delay *d = open_delay("exp", 100);
    struct pl_runtime r[9];
    assert_int_equal(pl_runtime_of(d, 100, PL_KSYNC, k, 9, test_seed, 1000, r, NULL), 0);
    for (int i = 0; i < 9; i++) near(r[i].seconds, want[i], 5.1e-5);
    near(r[4].seconds / r[8].seconds, 0.598, 5e-4);
}

/* mean staleness, P/K - 1 and (P-1)/K, and the share of fresh gradients */
TEST(test_staleness) {
    static const double batch_exp[] = {.125, .180, .230, .276, .318, .357, .393, .426};
    static const double async_shift[] = {.001, .014, .081, .255, .499, .700, .864, 1};
    /* Pareto with shape 4: with shape 2 the tasks in flight at the end hold an unbounded share */
    static const char *const spec[] = {"exp", "shiftexp", "pareto:shape=4",
                                       "hetero:slow=0.25,by=3,exp"};
    for (int s = 0; s < 4; s++) {
        struct pl_delay *d = open_delay(spec[s], 8);
        for (int k = 1; k <= 8; k++) {
            struct pl_runtime a = played(d, 8, PL_KASYNC, k, 40000);
            struct pl_runtime b = played(d, 8, PL_KBATCHASYNC, k, 40000);
            near(a.lag, 8.0 / k - 1.0, 0.01 * 8.0 / k);
            near(b.lag, 7.0 / k, 0.01 * 8.0 / k);
            near(cell(d, 8, PL_KASYNC, k).lag, 8.0 / k - 1.0, 1e-15);
            near(cell(d, 8, PL_KBATCHASYNC, k).lag, 7.0 / k, 1e-15);
            if (s == 0) {
                near(a.fresh, k / 8.0, 0.01);
                near(b.fresh, batch_exp[k - 1], 0.01);
                near(cell(d, 8, PL_KASYNC, k).fresh, k / 8.0, 1e-15);
                near(cell(d, 8, PL_KBATCHASYNC, k).fresh, batch_exp[k - 1], 5.1e-4);
            }
            if (s == 1) near(a.fresh, async_shift[k - 1], 0.01);
        }
        assert_true(cell(d, 8, PL_KSYNC, 3).fresh == 1.0 && cell(d, 8, PL_KSYNC, 3).lag == 0.0);
    }
}

TEST(test_integral) {
    static const int size[] = {1, 2, 8, 100, 3000};
    for (int s = 0; s < 5; s++) {
        int p = size[s];
        struct pl_delay *e = open_delay("exp:mean=3", p),
                        *g = open_delay("gamma:shape=1,mean=3", p);
        for (int k = 1; k <= p; k += 1 + p / 7) {
            double want = pl_order_exp(3.0, p, k);
            near(pl_order_integral(e, p, k) / want, 1.0, 1e-9);
            near(cell(g, p, PL_KSYNC, k).seconds / want, 1.0, 1e-9);
        }
        near(pl_order_integral(e, p, p) / pl_order_exp(3.0, p, p), 1.0, 1e-9);
    }
    /* the mean of all order statistics is the mean: any law, any sharpness */
    static const char *const spec[] = {"gamma:shape=0.3", "gamma:shape=100", "gamma:shape=1e6",
                                       "lognormal:sigma=2", "lognormal:sigma=0.01"};
    for (int s = 0; s < 5; s++) {
        struct pl_delay *d = open_delay(spec[s], 9);
        double sum = 0.0;
        for (int k = 1; k <= 9; k++) sum += pl_order_integral(d, 9, k);
        near(sum / (9 * pl_delay_mean(d, 0)), 1.0, 1e-8);
    }
    assert_true(isinf(pl_order_pareto(0.5, 1, 8, 7)) && isfinite(pl_order_pareto(0.5, 1, 8, 6)));
}

TEST(test_sample) {
    /* all P^n outcomes of three draws from {1, 2, 2, 6} */
    static const double x[] = {1, 2, 2, 6};
    double want[3] = {0, 0, 0};
    for (int i = 0; i < 64; i++) {
        double a = x[i % 4], b = x[i / 4 % 4], c = x[i / 16];
        double lo = fmin(a, fmin(b, c)), hi = fmax(a, fmax(b, c));
        want[0] += lo / 64;
        want[1] += (a + b + c - lo - hi) / 64;
        want[2] += hi / 64;
    }
    for (int k = 1; k <= 3; k++) near(pl_order_sample(x, 4, 3, k), want[k - 1], 1e-13);
}

TEST(test_workers_that_differ) {
    double mean[257];
    static const int size[] = {3, 40, 256};
    for (int s = 0; s < 3; s++) { /* workers alike, by the way for those who are not */
        struct pl_delay *d = open_delay("exp", size[s]);
        assert_int_equal(pl_order_differing(d, size[s], mean), 0);
        for (int k = 1; k <= size[s]; k++) near(mean[k] / pl_order_exp(1, size[s], k), 1.0, 1e-8);
    }
    /* two exponentials with means 1 and 3: min 3/4, max 4 - 3/4 */
    struct pl_delay *d = open_delay("exp:mean=1|exp:mean=3", 2);
    assert_int_equal(pl_order_differing(d, 2, mean), 0);
    near(mean[1], 0.75, 1e-8);
    near(mean[2], 3.25, 1e-8);
    near(cell(d, 2, PL_KBATCHSYNC, 5).seconds, 5 * 0.75, 1e-14);
    near(cell(d, 2, PL_KBATCHASYNC, 5).seconds, 5 * 0.75, 1e-14);
    near(cell(d, 2, PL_KASYNC, 1).seconds, 0.75, 1e-14);
    d = open_delay("const:t=1|const:t=2.3|const:t=4.1", 3); /* section 0 */
    static const double sorted[] = {1, 2.3, 4.1};
    for (int k = 1; k <= 3; k++) near(cell(d, 3, PL_KSYNC, k).seconds, sorted[k - 1], 1e-9);
    near(cell(d, 3, PL_KBATCHSYNC, 2).seconds, 2.0, 1e-14);
    near(cell(d, 3, PL_KBATCHSYNC, 3).seconds, 2.3, 1e-14);

    static const char *const spec[] = {"hetero:v=0.6,gamma:shape=100",
                                       "shiftexp|const:t=1.5|pareto", "hetero:power=0.5,lognormal",
                                       "hetero:slow=0.25,by=5,exp"};
    for (int i = 0; i < 4; i++) {
        d = open_delay(spec[i], 12);
        int k[12];
        struct pl_order exact[12], sim[12];
        for (int j = 0; j < 12; j++) k[j] = j + 1;
        assert_int_equal(pl_order_means(d, 12, k, 12, test_seed, 0, exact, NULL), 0);
        assert_int_equal(pl_order_simulated(d, 12, test_seed, 600000, k, 12, sim), 0);
        for (int j = 0; j < 12; j++) {
            assert_true(exact[j].how == PL_HOW_INTEGRAL && sim[j].sd_error > 0.0);
            if (i == 1 && j >= 10) /* Pareto: no variance, no standard error to trust */
                near(sim[j].mean / exact[j].mean, 1.0, 0.05);
            else
                near(sim[j].mean, exact[j].mean, 6.0 * sim[j].sd_error + 1e-12);
        }
    }
}

TEST(test_constant_delays) {
    struct pl_delay *d = open_delay("const:t=2", 8);
    for (int v = 0; v < PL_N_VARIANTS; v++)
        for (int k = 1; k <= 8; k++) {
            struct pl_runtime r = cell(d, 8, (enum pl_variant)v, k);
            assert_true(r.how == PL_HOW_EXACT);
            near(played(d, 8, (enum pl_variant)v, k, 24000).seconds, r.seconds, 0.005 * r.seconds);
        }
    near(cell(d, 8, PL_KBATCHSYNC, 17).seconds, 6.0, 0.0);
    int k = 9;
    struct pl_runtime r;
    struct pl_why why;
    assert_int_equal(pl_runtime_of(d, 8, PL_KSYNC, &k, 1, test_seed, 1, &r, &why), PL_EUSAGE);
    assert_string_equal(why.text, "k=9 is not accepted; ksync with 8 workers takes 1 to 8");
}

/* Rennala (Tyurin, Richtarik, NeurIPS 2023) */
TEST(test_fixed_times) {
    static const double batch[] = {1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7};
    struct pl_delay *d = open_delay("const:t=1|const:t=2|const:t=3|const:t=4|"
                                    "const:t=5|const:t=6|const:t=7|const:t=8",
                                    8);
    for (int k = 1; k <= 16; k++) near(cell(d, 8, PL_KBATCHSYNC, k).seconds, batch[k - 1], 1e-9);
}

ALL_TESTS_FROM_SEED(20180409, NULL, NULL)
