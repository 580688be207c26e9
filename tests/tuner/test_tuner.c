/* Tuners: AdaSync's K for given losses, the invariants of ABS, and the rules of the small tuners,
 * step by step. The measured rule sees 256 random task times: its K is compared with the
 * closed form's on the mean of 100 samples. One sample spreads by less than 0.75 (measured), so the
 * mean by 0.075; it may be off by a step where the closed form is about to jump, and half way
 * between two jumps its bias is below 0.25. */
#include <unistd.h>

#include "choices.h"
#include "folder.h"
#include "setups.h"
#include "tuner/adasync_rules.h"

static void near_at(double got, double want, double limit, int line) {
    if (!(fabs(got - want) <= limit))
        fail_msg("line %d: %.10g is not %.10g +- %g", line, got, want, limit);
}
#define near(got, want, limit) near_at(got, want, limit, __LINE__)

/* --- AdaSync ----------------------------------------------------------------------------- */

/* AdaSync (Dutta, Wang, Joshi, arXiv 2003.10579), P = 8, F(w_0) = 2.3; quadratic and sqrt, K_0 = 1
 * and 2 */
static const double table[][5] = {
    {2.3, 1.0000, 1.0000, 2.0000, 2.0000},  {2.0, 1.0672, 1.0724, 2.1227, 2.1448},
    {1.0, 1.4653, 1.5166, 2.8186, 3.0332},  {0.5, 1.9877, 2.1448, 3.6517, 4.2895},
    {0.3, 2.4627, 2.7689, 4.3306, 5.5377},  {0.1, 3.7409, 4.7958, 5.8035, 9.59},
    {0.05, 4.6746, 6.7823, 6.5857, 13.5647}};
#define N_ROWS (sizeof table / sizeof table[0])

TEST(test_adasync_values) {
    for (size_t i = 0; i < N_ROWS; i++) {
        double f = table[i][0];
        near(pl_adasync_quadratic(1, 2.3, f, 8), table[i][1], 5.1e-5);
        near(pl_adasync_sqrt(1, 2.3, f), table[i][2], 5.1e-5);
        near(pl_adasync_quadratic(2, 2.3, f, 8), table[i][3], 5.1e-5);
        near(pl_adasync_sqrt(2, 2.3, f), table[i][4], i == 5 ? 5.1e-3 : 5.1e-5);
    }
    for (double f = 1e-9; f < 1e3; f *= 7) /* the equation it solves, and its range */
        for (int k0 = 1; k0 < 20; k0++) {
            double k = pl_adasync_quadratic(k0, 2.3, f, 20),
                   right = k0 * k0 / (20.0 - k0) * 2.3 / f;
            assert_true(k > 0 && k <= 20);
            if (right < 1e6) near(k * k / (20 - k) / right, 1, 1e-6);
        }
}

static double exponential_step(const void *ctx, int k) {
    return 1.0 / (*(const int *)ctx - k);
}

static const double discrete_f[] = {2.3, 2, 1, .7, .5, .3, .2, .1, .05, .02, .01};
static const int discrete_k[] = {1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8};
#define N_DISCRETE (sizeof discrete_f / sizeof discrete_f[0])

TEST(test_adasync_discrete) {
    int p = 8;
    for (size_t i = 0; i < N_DISCRETE; i++)
        assert_int_equal(pl_adasync_discrete(1, 2.3, discrete_f[i], 8, exponential_step, &p),
                         discrete_k[i]);
    /* whatever K the run begins with, it is its own answer; a loss that rises lowers it */
    for (int k0 = 1; k0 < 8; k0++) {
        assert_int_equal(pl_adasync_discrete(k0, 2.3, 2.3, 8, exponential_step, &p), k0);
        assert_true(pl_adasync_discrete(k0, 2.3, 23, 8, exponential_step, &p) <= k0);
        assert_int_equal(pl_adasync_discrete(k0, 2.3, 1e-9, 8, exponential_step, &p), 8);
    }
}

/* What growk chooses at loss f, given task times, after a start at K = k0 with loss 2.3. */
static int chosen(const struct pl_growk *times, int rule, bool by_batch, int k0, double f) {
    struct pl_growk g = *times;
    struct pl_growk_conf c = {k0, 1, rule};
    struct pl_run_info scene = {.n_workers = 8, .by_batch = by_batch, .k = k0};
    struct pl_worker w = {.state = PL_IDLE};
    struct pl_view v = {.worker = &w, .n_workers = 8};
    struct pl_knobs knobs = {k0, PL_NO_BOUND};
    struct pl_arrival a = {.loss = 2.3};
    pl_growk_init(&g, &c, &knobs);
    pl_growk_arrive(&g, &c, &scene, &v, &a, &knobs);
    w.base = 1;
    v.now_ns = 2000000000; /* the interval of the start ends; the one of f begins */
    a.loss = f;
    pl_growk_arrive(&g, &c, &scene, &v, &a, &knobs);
    assert_int_equal(knobs.k, k0);
    v.now_ns = 2999999999;
    a.loss = NAN; /* does not count */
    pl_growk_arrive(&g, &c, &scene, &v, &a, &knobs);
    assert_int_equal(knobs.k, k0);
    v.now_ns = 3000000000;
    a.loss = 1e6; /* belongs to the next interval */
    pl_growk_arrive(&g, &c, &scene, &v, &a, &knobs);
    return knobs.k;
}

TEST(test_adasync_choice) {
    const struct pl_growk none = {0};
    for (size_t i = 0; i < N_ROWS; i++)
        for (int k0 = 1; k0 <= 2; k0++) {
            double quadratic = round(table[i][2 * k0 - 1]);
            double root = fmin(round(table[i][2 * k0]), 8);
            double f = table[i][0];
            near(chosen(&none, PL_GROWK_QUADRATIC, false, k0, f), quadratic, 0);
            near(chosen(&none, PL_GROWK_AUTO, false, k0, f), quadratic, 0);
            near(chosen(&none, PL_GROWK_SQRT, false, k0, f), root, 0);
            near(chosen(&none, PL_GROWK_AUTO, true, k0, f), root, 0);
        }
    /* mini-batches: d_K is the same for all K, so K(K+1) >= K0(K0+1) F0/F */
    static const double f[] = {2.3, 2.0, 1.0, 0.5, 0.3, 0.1, 0.05};
    static const int k[] = {1, 2, 2, 3, 4, 7, 8};
    for (int i = 0; i < 7; i++)
        assert_int_equal(chosen(&none, PL_GROWK_MEASURED, true, 1, f[i]), k[i]);
    assert_int_equal(chosen(&none, PL_GROWK_MEASURED, false, 1, 0.01), 1); /* nothing measured */
    assert_int_equal(chosen(&none, PL_GROWK_SQRT, false, 3, 50), 3);       /* never fewer */
    assert_int_equal(chosen(&none, PL_GROWK_QUADRATIC, false, 3, 0), 3);   /* no such loss */
    assert_int_equal(chosen(&none, PL_GROWK_SQRT, false, 3, -1), 3);
    assert_int_equal(chosen(&none, PL_GROWK_SQRT, false, 3, INFINITY), 3);
    assert_int_equal(chosen(&none, PL_GROWK_QUADRATIC, false, 3, 1e-300), 8);
}

static int ascending(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* Task times as a server sees them under K-sync: the fastest k of 8, the rest cut off. */
static void sample_times(struct pl_growk *g, int k, double shift, uint64_t sample) {
    struct pl_rng r;
    *g = (struct pl_growk){0};
    pl_rng_init(&r, test_seed, PL_STREAM_TEST, 3, sample);
    for (int n = 0; n < PL_GROWK_TIMES; n += 8) {
        double x[8];
        for (int i = 0; i < 8; i++) x[i] = shift + pl_rng_exp(&r);
        qsort(x, 8, sizeof x[0], ascending);
        for (int i = 0; i < 8; i++) pl_growk_task(g, i < k ? x[i] : x[k - 1], i < k);
    }
}

/* The mean K over 100 samples of task times, at loss f. */
static double mean_measured(int k, double shift, double f) {
    static struct pl_growk g;
    double sum = 0;
    for (uint64_t n = 0; n < 100; n++) {
        sample_times(&g, k, shift, n);
        sum += chosen(&g, PL_GROWK_MEASURED, false, 1, f);
    }
    return sum / 100;
}

TEST(test_adasync_measured) {
    /* half way (in ratio) between the losses at which the closed form jumps, K = 2 … 8 */
    static const double half_way[] = {1.24, .424, .19, .0929, .0453, .0192, .0073};
    static struct pl_growk g;
    int p = 8;
    for (int shift = 0; shift < 2; shift++) /* d_K is that of the exponential part */
        for (int k = 1; k <= 8; k++) {
            for (size_t i = 0; i < N_DISCRETE; i++)
                near(mean_measured(k, shift, discrete_f[i]), discrete_k[i], 1);
            for (int i = 0; i < 7; i++) {
                double f = half_way[i];
                assert_int_equal(pl_adasync_discrete(1, 2.3, f, 8, exponential_step, &p), i + 2);
                near(mean_measured(k, shift, f), i + 2, 0.5);
            }
        }
    /* tasks that all take the same: every step costs the same (nothing), and K(K+1) decides */
    g = (struct pl_growk){0};
    for (int n = 0; n < PL_GROWK_TIMES; n++) pl_growk_task(&g, 1, true);
    assert_int_equal(chosen(&g, PL_GROWK_MEASURED, false, 2, 1.0), 4);
    for (int n = 0; n < PL_GROWK_TIMES; n++) pl_growk_task(&g, 0, n == 7); /* hardly any done */
    assert_int_equal(chosen(&g, PL_GROWK_MEASURED, false, 2, 1.0), 2);
}

/* --- under control ----------------------------------------------------------------------- */

static struct pl_control *open_control(const char *policy, const char *tuner, int n_workers) {
    struct pl_control *c = control_of(policy, tuner, n_workers, 1);
    for (int i = 0; i < n_workers; i++) {
        const struct pl_plan *plan;
        struct pl_event e = {.kind = PL_JOIN, .worker = i};
        assert_int_equal(pl_control_step(c, &e, &plan, NULL), 0);
    }
    return c;
}

/* Worker i answers; true where that makes an update. */
static bool answer(struct pl_control *c, double now, int i, double loss) {
    const struct pl_plan *plan;
    struct pl_event e = {.kind = PL_ARRIVE, .now_ns = (uint64_t)llround(now * 1e9), .worker = i};
    e.task = pl_control_view(c)->worker[i].task;
    e.loss = loss;
    uint64_t before = pl_control_view(c)->version;
    assert_int_equal(pl_control_step(c, &e, &plan, NULL), 0);
    assert_true(plan->n > 0); /* it was heard */
    return pl_control_view(c)->version > before;
}

static int k_of(const struct pl_control *c) {
    return pl_control_view(c)->knobs.k;
}

/* A new K applies to the open group at once, and K never falls. */
TEST(test_adasync_in_a_run) {
    struct pl_control *c = open_control("kasync:k=1", "adasync:every=1,rule=sqrt", 4);
    assert_true(answer(c, 0.2, 0, 4) && answer(c, 0.4, 1, 4) && answer(c, 0.6, 2, 4));
    assert_true(answer(c, 1.1, 0, 1)); /* the first interval ends: F = F0 = 4 */
    assert_int_equal(k_of(c), 1);
    assert_true(answer(c, 1.5, 1, 1));
    assert_false(answer(c, 2.2, 0, 9)); /* F = 1: K = 2, and this group waits already */
    assert_int_equal(k_of(c), 2);
    assert_true(answer(c, 2.5, 1, 9));
    assert_false(answer(c, 3.3, 0, 0.25)); /* F = 9: K stays */
    assert_int_equal(k_of(c), 2);
    assert_false(answer(c, 4.4, 1, 1) && k_of(c) == 2); /* F = 0.25: K = 4, W1 waits on */
    assert_int_equal(k_of(c), 4);
    assert_false(answer(c, 4.5, 2, 1));
    assert_true(answer(c, 4.6, 3, 4)); /* base 0, so F0 is a mean that includes it */
    /* every=0: an interval is twenty mean task times (of n tasks, over n + 1: nineteen here) */
    c = open_control("kasync:k=1", "adasync:rule=sqrt", 2);
    for (int i = 1; k_of(c) == 1 && i < 100; i++) {
        answer(c, i, 0, i == 1 ? 4 : 1);
        assert_true(i < 40 || k_of(c) == 2);
        assert_true(i >= 19 || k_of(c) == 1);
    }
    assert_int_equal(k_of(c), 2);
}

TEST(test_what_tuners_refuse) {
    static const char *const tuners[] = {"adasync", "abs", "fastestk"};
    for (int t = 0; t < 3; t++)
        for (int n = 1; n <= 3; n++)
            for (int k0 = 1; k0 <= 4; k0++) {
                const struct pl_entry *e;
                char spec[40];
                void *conf;
                snprintf(spec, sizeof spec, "%s:k0=%d", tuners[t], k0);
                assert_int_equal(pl_spec_parse(&pl_tuner_family, spec, n, &e, &conf, NULL), 0);
                struct pl_run_info scene = {.n_workers = n, .k = 1};
                const char *no = ((const struct pl_tuner *)e)->check(conf, &scene);
                if ((no == NULL) != (k0 < n || k0 == 1)) /* one of one may stay what it is */
                    fail_msg("%s with %d workers: %s", spec, n, no ? no : "accepted");
                free(conf);
            }
}

/* ABS (Tan, Zhu, Zhang, arXiv 2301.08895): tau_max = max(1, ceil(M/K)), which falls to 1 at
 * K = M. */
TEST(test_abs_bound) {
    static const uint64_t want[] = {8, 4, 3, 2, 2, 2, 2};
    char spec[60];
    for (int k = 1; k <= 7; k++) {
        snprintf(spec, sizeof spec, "abs:k0=%d", k);
        struct pl_control *c = open_control("kasync:stop=yes", spec, 8);
        assert_int_equal(pl_control_view(c)->knobs.bound, want[k - 1]);
    }
    struct pl_control *c = open_control("kasync:k=2,stop=yes", "abs:scale=2.5,every=1", 8);
    assert_int_equal(pl_control_view(c)->knobs.bound, 10);
    double f = 4;
    for (int i = 0; i < 400; i++, f *= 0.98) {
        int w = pl_control_view(c)->busy;
        answer(c, 0.3 * i, w, f);
        double bound = (double)pl_control_view(c)->knobs.bound;
        near(bound, fmax(1, ceil(2.5 * 8 / k_of(c))), 0);
    }
    assert_int_equal(k_of(c), 8);
}

TEST(test_growing_bound) {
    struct pl_control *c = open_control("kasync", "growing-bound", 1);
    assert_int_equal(pl_control_view(c)->knobs.bound, 1);
    for (uint64_t version = 0; version < 1000; version++) {
        assert_true(answer(c, (double)version, 0, NAN));
        uint64_t r = pl_control_view(c)->knobs.bound; /* that this arrival was judged by */
        if (version < 4) assert_int_equal(r, 1);
        assert_true(r >= 1 && (r == 1 || r * r <= version) && (r + 1) * (r + 1) > version);
    }
}

/* Kas Hanna et al., arXiv 2002.11005: the counter goes up if successive gradients disagree,
 * otherwise down (never below zero, which is our choice). K grows when it exceeds `thresh` and more
 * than `burnin` updates have gone by. */
TEST(test_fastestk) {
    /* after each update: the sign of <g_j, g_j-1> ('n': not known), and K then */
    static const struct {
        const char *signs, *k, *options;
    } row[] = {{"n+---------------", "11113333355555555", "thresh=2,burnin=4,step=2"},
               {"n-------", "11111111", "thresh=9,burnin=0"},
               {"n---++++---0----", "1111111111111222", "thresh=3,burnin=0"},
               {"nnn-nn-n-", "111111112", "thresh=2,burnin=0"},
               {"-----", "23455", "thresh=0,burnin=0"},
               {"-----------", "11222333444", "thresh=0,burnin=2"},
               {"-----", "11111", "thresh=0,burnin=0,step=5"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char spec[60];
        snprintf(spec, sizeof spec, "fastestk:%s", row[i].options);
        struct pl_control *c = open_control("kbatchasync:k=1", spec, 5);
        assert_true(pl_control_measures(c));
        for (int j = 0; row[i].signs[j]; j++) {
            const struct pl_plan *plan;
            for (int n = 0; !answer(c, j, 0, NAN); n++) assert_true(n < 5);
            char sign = row[i].signs[j];
            struct pl_event e = {.kind = PL_MEASURED, .now_ns = (uint64_t)j * 1000000000};
            e.measure.dot = sign == 'n' ? NAN : sign == '+' ? 2.0 : sign == '-' ? -0.1 : 0.0;
            assert_int_equal(pl_control_step(c, &e, &plan, NULL), 0);
            if (k_of(c) != row[i].k[j] - '0')
                fail_msg("%s: K = %d after update %d", row[i].options, k_of(c), j + 1);
        }
    }
}

/* --- ABS on a virtual clock -------------------------------------------------------------- */

/* Runs with exponential delays; the largest applied staleness, and the event log where wanted. */
static double abs_run(const char *policy, const char *tuner, int n_workers, int updates,
                      char **log) {
    const char *path = folder_path("events");
    pl_setup *s =
        setup_of("policy=%s tuner=%s model=none delay=exp workers=%d updates=%d seed=%llu", policy,
                 tuner, n_workers, updates, test_seed);
    if (log) set(s, "events", path);
    pl_run *run = simulate(s);
    double most = pl_run_number(run, "staleness.max");
    if (!log) return most;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t room = 1 << 24;
    *log = calloc(1, room);
    assert_non_null(*log);
    assert_true(fread(*log, 1, room - 1, f) > 1000 && feof(f));
    fclose(f);
    unlink(path);
    return most;
}

static void same_log(const char *policy_a, const char *tuner_a, const char *policy_b,
                     const char *tuner_b) {
    char *a, *b;
    abs_run(policy_a, tuner_a, 8, 2000, &a);
    abs_run(policy_b, tuner_b, 8, 2000, &b);
    if (strcmp(a, b) != 0) {
        size_t at = 0;
        while (a[at] == b[at]) at++;
        while (at > 0 && a[at - 1] != '\n') at--;
        fail_msg("%s %s and %s %s differ:\n  %.*s\n  %.*s", policy_a, tuner_a, policy_b, tuner_b,
                 (int)strcspn(a + at, "\n"), a + at, (int)strcspn(b + at, "\n"), b + at);
    }
    free(a);
    free(b);
}

/* ABS: the largest applied staleness is tau_max - 1. A worker is outrun by tau_max - 1
 * updates with probability (1 - K/M)^(tau_max-1), here at least 0.4 %, in each of 20,000 K tasks;
 * K = M has no staleness at all. */
TEST(test_abs_staleness) {
    static const int m[] = {8, 8, 20}, k[] = {2, 4, 3}, tau[] = {1, 2, 3, 5, 9};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5; j++) {
            char spec[80];
            snprintf(spec, sizeof spec, "kasync:k=%d,max_lag=%d,stop=yes", k[i], tau[j]);
            near(abs_run(spec, "fixed", m[i], sanitized ? 4000 : 20000, NULL), tau[j] - 1, 0);
        }
}

/* ABS: K = M or tau_max = 1 is K-sync, tau_max = inf is K-async; and the tuner's default
 * bound is ceil(M/K). Without losses K stays. */
TEST(test_abs_reductions) {
    char a[80], b[80], t[80];
    for (int k = 1; k <= 8; k++) {
        snprintf(a, sizeof a, "kasync:k=%d,max_lag=1,stop=yes", k);
        snprintf(b, sizeof b, "ksync:k=%d", k);
        same_log(a, "fixed", b, "fixed");
        snprintf(a, sizeof a, "kasync:k=%d,max_lag=inf,stop=yes", k);
        snprintf(b, sizeof b, "kasync:k=%d", k);
        same_log(a, "fixed", b, "fixed");
        if (k == 8) continue;
        snprintf(a, sizeof a, "kasync:k=%d,stop=yes", k);
        same_log(a, "abs:scale=1e6", b, "fixed");
        snprintf(t, sizeof t, "kasync:k=%d,stop=yes,max_lag=%d", k, (8 + k - 1) / k);
        same_log(a, "abs", t, "fixed");
        snprintf(b, sizeof b, "ksync:k=%d", k);
        same_log(a, "abs:scale=1e-6", b, "fixed");
    }
    same_log("kasync:k=all,max_lag=7,stop=yes", "fixed", "ksync:k=all", "fixed");
}

/* In training, K goes from 1 to all of 8 workers as the loss falls, and never back. */
static void rising_k(void *ctx, const struct pl_point *p) {
    int *k = ctx;
    if (p->k < *k || p->k > 8) fail_msg("K = %d after %d", p->k, *k);
    *k = p->k;
}

TEST(test_k_in_training) {
    static const char *const methods[] = {
        "adasync-ksync", "adasync-kasync", "adasync-kbatchsync",         "adasync-kbatchasync",
        "abs",           "fastest-k",      "adasync-ksync:rule=measured"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        const struct pl_point *point;
        int k = 1;
        pl_setup *s = setup_of(
            "method=%s updates=2000 model=quadratic:dim=10 threads=1 eval-every=5", methods[i]);
        pl_setup_watch(s, rising_k, NULL, &k);
        pl_run *run = simulate(s);
        assert_true(pl_run_points(run, &point) > 50 && point[0].k == 1);
        if (k != 8) fail_msg("%s: K = %d at the end", methods[i], k);
        near(pl_run_number(run, "k_final"), 8, 0);
    }
}

ALL_TESTS_BETWEEN(folder_make, folder_remove)
