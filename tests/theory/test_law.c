/* Laws: what the simulator measures against closed forms and reference values, through the public
 * API alone.
 *
 * Where a table is exact, a run is as long as its tolerance asks: for a mean of independent updates
 * with a coefficient of variation c, U = (4.5 c / share)^2 updates put the tolerance at 4.5
 * standard errors, a false alarm in 150,000 cells. c is that of the K-th order statistic, or of a
 * sum of K tasks, and is derived beside each table. Simulated columns of the tables have three
 * digits, so half a digit is added. Tolerances are twice as wide as the tables', which makes runs 4
 * times shorter; PL_TEST_WIDER=1 takes theirs. Under a sanitizer they are 5 times wider.
 * PL_TEST_SEED moves every run; it is printed at the start. */
#include <unistd.h>

#include "folder.h"
#include "setups.h"

#define SIGMAS 4.5
#define LEAST 20000 /* updates, however small the variance */

static double wider = 2; /* tolerances */
static char events[300];

static void near_at(double got, double want, double limit, const char *what, int line) {
    if (!(fabs(got - want) <= limit))
        fail_msg("line %d: %s: %.10g is not %.10g +- %.3g (PL_TEST_SEED=%llu)", line, what, got,
                 want, limit, test_seed);
}
#define near(got, want, limit, what) near_at(got, want, limit, what, __LINE__)

struct flags {
    const char *policy, *delay;
    int workers;
    double updates;
    bool log; /* the event log into `events` */
};

struct law {
    double per_update, lag, lag_max, fresh, applied;
};

static struct law law_of(struct flags f) {
    bool method = strncmp(f.policy, "method ", 7) == 0;
    pl_setup *s = setup_of("%s=%s delay=%s model=none workers=%d updates=%.0f seed=%llu",
                           method ? "method" : "policy", f.policy + (method ? 7 : 0), f.delay,
                           f.workers, f.updates, test_seed);
    if (f.log) set(s, "events", events);
    pl_run *run = simulate(s);
    struct law l = {pl_run_number(run, "time_per_update"), pl_run_number(run, "staleness.mean"),
                    pl_run_number(run, "staleness.max"),
                    pl_run_number(run, "staleness.fresh_fraction"),
                    pl_run_number(run, "tasks.applied")};
    near(pl_run_number(run, "updates"), f.updates, 0, f.policy);
    return l;
}

/* Updates for a tolerance of `share` at a squared coefficient of variation. */
static double enough(double cv2, double share) {
    double n = cv2 * (SIGMAS / share) * (SIGMAS / share);
    return ceil(fmax(n, LEAST) / (wider * wider));
}

/* --- time per update --------------------------------------------------------------------- */

enum { KSYNC, KBATCHSYNC, KASYNC, KBATCHASYNC, N_VARIANTS };
static const char *const variant[N_VARIANTS] = {"ksync", "kbatchsync", "kasync", "kbatchasync"};

static struct law cell(int v, int k, const char *delay, double updates) {
    char spec[40];
    snprintf(spec, sizeof spec, "%s:k=%d", variant[v], k);
    return law_of((struct flags){spec, delay, 8, updates, false});
}

/* Variance of the K-th of P exponentials with mean 1: its spacings are independent. */
static double order_variance(int p, int k) {
    double sum = 0;
    for (int i = 0; i < k; i++) sum += 1.0 / ((double)(p - i) * (p - i));
    return sum;
}

static void check_cell(int v, int k, const char *delay, double want, double digit, double share,
                       double updates) {
    char what[80];
    snprintf(what, sizeof what, "%s K=%d, %s", variant[v], k, delay);
    near(cell(v, k, delay, updates).per_update, want, share * wider * want + digit, what);
}

/* Run time per update, P = 8 (Dutta et al., AISTATS 2018, Lemmas 3-5). Updates of K-sync are
 * independent, and so are those of K-async because the law has no memory; the others are sums of K
 * exponentials, with c^2 = 1/K. */
TEST(test_exponential) {
    static const double sync[] = {0.125000, 0.267857, 0.434524, 0.634524,
                                  0.884524, 1.217857, 1.717857, 2.717857};
    for (int k = 1; k <= 8; k++) {
        double t = sync[k - 1], order = enough(order_variance(8, k) / (t * t), 0.005);
        check_cell(KSYNC, k, "exp", t, 5e-7, 0.005, order);
        check_cell(KASYNC, k, "exp", t, 5e-7, 0.005, order);
        check_cell(KBATCHSYNC, k, "exp", k / 8.0, 0, 0.005, enough(1.0 / k, 0.005));
        check_cell(KBATCHASYNC, k, "exp", k / 8.0, 0, 0.005, enough(1.0 / k, 0.005));
    }
}

/* X ~ 1 + exp(1). K-sync: the K-th order statistic again. K-batch-async is a renewal process, with
 * c^2 = Var(X)/(K E[X]^2) = 1/(4K). For the two without a closed form the variance of the order
 * statistic over their own mean is taken; 30 seeds each showed no more, within their noise. K-async
 * with K = 1 and 8 is exact: that of K-batch-async and of K-sync. */
TEST(test_shifted_exponential) {
    static const double want[8][N_VARIANTS] = {
        {1.12500, 1.125, 0.25, 0.25},  {1.26786, 1.268, 0.533, 0.50},
        {1.43452, 1.434, 0.857, 0.75}, {1.63452, 1.631, 1.240, 1.00},
        {1.88452, 1.864, 1.624, 1.25}, {2.21786, 2.129, 2.053, 1.50},
        {2.71786, 2.407, 2.638, 1.75}, {3.71786, 2.671, 3.71786, 2.00}};
    for (int k = 1; k <= 8; k++) {
        const double *t = want[k - 1];
        double var = order_variance(8, k);
        double exact = k == 1 || k == 8 ? 0 : 5e-4;
        check_cell(KSYNC, k, "shiftexp", t[0], 5e-6, 0.005, enough(var / (t[0] * t[0]), 0.005));
        check_cell(KBATCHSYNC, k, "shiftexp", t[1], 5e-4, 0.005,
                   enough(var / (t[1] * t[1]), 0.005));
        check_cell(KASYNC, k, "shiftexp", t[2], exact, 0.005, enough(var / (t[2] * t[2]), 0.005));
        check_cell(KBATCHASYNC, k, "shiftexp", t[3], 0, 0.005, enough(0.25 / k, 0.005));
    }
}

/* Pareto(2, 1) has no variance. Over n updates the sum of the worst of 8 strays by about
 * sqrt(8 n ln n): 0.6 % of 5.09 n at n = 100,000, and a single jump of 3 % (x > 15,000) has a
 * probability of 8 n/x^2 = 0.4 %. */
TEST(test_pareto) {
    static const double want[8][N_VARIANTS] = {
        {1.06667, 1.067, 0.25, 0.25},  {1.14872, 1.149, 0.535, 0.50},
        {1.25315, 1.253, 0.855, 0.75}, {1.39239, 1.391, 1.236, 1.00},
        {1.59130, 1.576, 1.597, 1.25}, {1.90956, 1.818, 2.070, 1.50},
        {2.54608, 2.097, 2.896, 1.75}, {5.09215, 2.364, 5.09215, 2.00}};
    for (int k = 1; k <= 8; k++)
        for (int v = 0; v < N_VARIANTS; v++)
            check_cell(v, k, "pareto:shape=2,scale=1", want[k - 1][v], 5e-4, 0.03,
                       ceil(100000 / (wider * wider)));
}

/* Backup workers (Chen et al., arXiv 1604.00981): the N-th of 100, exp(1), late workers
 * cancelled. */
static const int backup_n[] = {50, 80, 90, 95, 96, 97, 98, 99, 100};
static const double backup_time[] = {0.6882, 1.5896, 2.2584, 2.9040, 3.1040,
                                     3.3540, 3.6874, 4.1874, 5.1874};

TEST(test_backup_called_back) {
    for (int i = 0; i < 9; i++) {
        char spec[40];
        int n = backup_n[i];
        double t = backup_time[i], cv2 = order_variance(100, n) / (t * t);
        snprintf(spec, sizeof spec, "method backup:k=%d,cancel=yes", n);
        struct law l = law_of((struct flags){spec, "exp", 100, enough(cv2, 0.01), false});
        near(l.per_update, t, 0.01 * wider * t + 5e-5, spec);
        near(l.lag, 0, 0, spec);
    }
}

/* The same without calling back, as Chen et al. run it, is slower: a late worker first finishes
 * what will be dropped. Of P = 100 workers c have given, o are late and the rest compute; each ends
 * at rate 1. A late one that ends computes; a computing one that ends has given. First and second
 * moment of the time until c = N, from c = 0 and o = P - N, by the first step:
 * E[T] = 1/r + sum p E[T'], E[T^2] = 2/r^2 + (2/r) sum p E[T'] + sum p E[T'^2], r = P - c. */
static void backup_moments(int p, int n, double *mean, double *square) {
    static double t1[102][102], t2[102][102]; /* [c][o] */
    for (int o = 0; o <= p - n; o++) t1[n][o] = t2[n][o] = 0;
    for (int c = n - 1; c >= 0; c--)
        for (int o = 0; o <= p - n; o++) {
            double r = p - c, late = o / r, done = (p - c - o) / r;
            double a = done * t1[c + 1][o], b = done * t2[c + 1][o];
            if (o > 0) {
                a += late * t1[c][o - 1];
                b += late * t2[c][o - 1];
            }
            t1[c][o] = 1 / r + a;
            t2[c][o] = 2 / (r * r) + 2 / r * a + b;
        }
    *mean = t1[0][p - n];
    *square = t2[0][p - n];
}

TEST(test_backup_dropped) {
    for (int i = 0; i < 9; i++) {
        char spec[40];
        double mean, square;
        backup_moments(100, backup_n[i], &mean, &square);
        assert_true(mean > backup_time[i] - 5e-5);
        snprintf(spec, sizeof spec, "method backup:k=%d", backup_n[i]);
        double updates = enough(square / (mean * mean) - 1, 0.01);
        struct law l = law_of((struct flags){spec, "exp", 100, updates, false});
        near(l.per_update, mean, 0.01 * wider * mean, spec);
        near(l.lag, 0, 0, spec);
    }
    double mean, square; /* without late workers this is full synchrony */
    backup_moments(100, 100, &mean, &square);
    near(mean, 5.1874, 5e-5, "all of 100");
    near(square - mean * mean, order_variance(100, 100), 1e-9, "all of 100");
}

/* --- staleness --------------------------------------------------------------------------- */

/* The mean is P/K - 1 or (P-1)/K; what is missing at the end of a run is still in flight, a few
 * P of U(P-K). Fresh fractions are those of n = U K gradients, with a variance below 2 p(1-p)/n for
 * the dependence between neighbours. */
TEST(test_staleness) {
    static const double batch_exp[] = {.125, .180, .230, .276, .318, .357, .393, .426};
    static const double async_shift[] = {.001, .014, .081, .255, .499, .700, .864, 1};
    double updates = ceil(200000 / (wider * wider));
    for (int k = 1; k <= 8; k++)
        for (int shifted = 0; shifted < 2; shifted++) {
            const char *delay = shifted ? "shiftexp" : "exp";
            struct law a = cell(KASYNC, k, delay, updates);
            struct law b = cell(KBATCHASYNC, k, delay, updates);
            near(a.applied, updates * k, 0, "tasks in updates");
            near(b.applied, updates * k, 0, "tasks in updates");
            near(a.lag, 8.0 / k - 1, 0.01 * (8.0 / k - 1), "K-async");
            near(b.lag, 7.0 / k, 0.01 * 7.0 / k, "K-batch-async");
            double p = shifted ? async_shift[k - 1] : k / 8.0, q = batch_exp[k - 1];
            double digit = shifted ? 5e-4 : 0, n = updates * k;
            near(a.fresh, p, digit + SIGMAS * sqrt(2 * p * (1 - p) / n), "K-async fresh");
            if (!shifted)
                near(b.fresh, q, 5e-4 + SIGMAS * sqrt(2 * q * (1 - q) / n), "K-batch-async fresh");
        }
    for (int v = KSYNC; v <= KBATCHSYNC; v++)
        for (int k = 1; k <= 8; k++) {
            struct law l = cell(v, k, "pareto", 1000);
            assert_true(l.lag == 0 && l.lag_max == 0 && l.fresh == 1);
        }
}

/* What an event log says of staleness. */
struct tally {
    unsigned long version, applied, in_flight, open, n, largest;
    double sum2;
};

/* Reads the log of a run without cancels; lags of updates after `from` go into n, sum2, largest. */
static struct tally read_log(unsigned long from, double mean) {
    static unsigned long base[200];
    static bool busy[200];
    static char line[1 << 16];
    struct tally t = {0};
    memset(busy, 0, sizeof busy);
    FILE *f = fopen(events, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        int w;
        unsigned long b;
        if (sscanf(line, "%*f arrive W%d#", &w) == 1) {
            assert_true(busy[w] && strstr(line, ": take"));
            unsigned long lag = t.version - base[w];
            busy[w] = false;
            t.open += lag;
            if (t.version >= from) {
                t.n++;
                t.sum2 += ((double)lag - mean) * ((double)lag - mean);
                if (lag > t.largest) t.largest = lag;
            }
        }
        if (strstr(line, "commit ")) {
            t.version++;
            t.applied += t.open;
            t.open = 0;
        }
        for (char *at = line; (at = strstr(at, "start W")); at++) {
            assert_int_equal(sscanf(at, "start W%d@w%lu", &w, &b), 2);
            assert_true(w > 0 && w < 200 && !busy[w] && b == t.version);
            busy[w] = true;
            base[w] = b;
        }
    }
    fclose(f);
    unlink(events);
    for (int w = 0; w < 200; w++)
        if (busy[w]) t.in_flight += t.version - base[w];
    return t;
}

/* Exact for every law: the staleness applied, in flight and in the open group sums to U(P-1) for
 * K-batch-async and to U(P-K) for K-async. */
TEST(test_staleness_sums) {
    static const char *const delays[] = {"pareto:shape=2,scale=1",
                                         "pareto:shape=0.7",
                                         "lognormal:sigma=2",
                                         "hetero:v=0.6,gamma:shape=100",
                                         "const:t=1|const:t=2.3|const:t=4.1",
                                         "const:t=1"};
    for (size_t d = 0; d < sizeof delays / sizeof delays[0]; d++)
        for (int k = 1; k <= 8; k++)
            for (int v = KASYNC; v <= KBATCHASYNC; v++) {
                char spec[40];
                snprintf(spec, sizeof spec, "%s:k=%d", variant[v], k);
                struct law l = law_of((struct flags){spec, delays[d], 8, 1001, true});
                struct tally t = read_log(0, 0);
                assert_int_equal(t.version, 1001);
                assert_int_equal(t.applied + t.in_flight + t.open,
                                 1001 * (unsigned long)(v == KASYNC ? 8 - k : 7));
                near(l.lag * l.applied, (double)t.applied, 1e-6 * (double)(t.applied + 1), spec);
                near(l.lag_max, (double)t.largest, 0, spec);
            }
}

/* The lag of asynchronous SGD under Gamma(100) tasks, 60,000 updates. The mean is N-1 less
 * what is in flight, about N(N-1)/2 of 60,000 (N-1). The sd is that of the steady state, and table
 * and test are one run each; so is the maximum, which may be off by a third. */
TEST(test_lag_table) {
    static const struct {
        int n;
        double sd, most;
    } row[] = {{4, 0.63, 6},   {8, 1.10, 13},  {16, 1.95, 26},
               {32, 3.56, 48}, {64, 6.80, 94}, {128, 13.3, 191}};
    double updates = ceil(60000 / wider);
    for (int i = 0; i < 6; i++) {
        int n = row[i].n;
        struct law l =
            law_of((struct flags){"method async", "gamma:shape=100,mean=128", n, updates, true});
        struct tally t = read_log(20 * (unsigned long)n, n - 1);
        near(l.lag, n - 1 - 0.5 * n * (n - 1) / updates, 0.002 * n, "homogeneous mean");
        near(sqrt(t.sum2 / (double)t.n), row[i].sd, 0.05 * wider * row[i].sd, "homogeneous sd");
        near((double)t.largest, row[i].most, 0.34 * row[i].most, "homogeneous maximum");
        assert_true(l.lag_max >= (double)t.largest);
        l = law_of((struct flags){"method async", "hetero:v=0.6,gamma:shape=100,mean=128", n,
                                  updates, false});
        near(l.lag, n - 1, 0.01 * wider * (n - 1), "heterogeneous mean");
        assert_true(l.lag_max > 1.5 * (n - 1)); /* a worker is slow */
    }
}

/* --- reductions -------------------------------------------------------------------------- */

static char *log_of(const char *policy, const char *delay) {
    law_of((struct flags){policy, delay, 8, 1500, true});
    FILE *f = fopen(events, "r");
    size_t room = 1 << 24;
    char *text = calloc(1, room);
    assert_true(f && text);
    assert_true(fread(text, 1, room - 1, f) > 1000 && feof(f));
    fclose(f);
    unlink(events);
    return text;
}

/* Methods that are special cases of others, as far as time is concerned: the event logs are
 * equal. */
TEST(test_reductions) {
    static const char *const pair[][2] = {
        {"method async", "kasync:k=1"},
        {"kasync:k=1", "kbatchasync:k=1"},
        {"kasync:k=1", "kasync:k=1,max_lag=inf,stop=yes"}, /* Ringmaster, R = inf */
        {"kasync:k=1", "kasync:k=1,max_lag=1e9"},
        {"kasync:k=1", "ssp:s=inf"},
        {"kasync:k=1", "psp:s=inf"},
        {"kasync:k=1", "psp:s=0,sample=0"},
        {"kasync:k=all", "ksync:k=all"},
        {"method sync", "ksync:k=8,cancel=no"},
        {"method sync", "kasync:k=8,max_lag=1"},
        {"ksync:k=1", "kbatchsync:k=1"},
        {"ksync:k=1", "kasync:k=1,max_lag=1,stop=yes"}, /* Ringmaster, R = 1 */
        {"ksync:k=1,cancel=no", "kbatchsync:k=1,cancel=no"},
        {"ksync:k=1,cancel=no", "kasync:k=1,max_lag=1"},
        {"method rennala:k=5", "kbatchsync:k=5"},
        {"ssp:s=0", "psp:s=0,sample=7"},
        {"ssp:s=1", "psp:s=1,sample=7"},
        {"ssp:s=3", "psp:s=3,sample=100"},
    };
    static const char *const delays[] = {"shiftexp", "pareto", "hetero:v=0.6,exp"};
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++)
        for (int d = 0; d < 3; d++) {
            char *a = log_of(pair[i][0], delays[d]), *b = log_of(pair[i][1], delays[d]);
            if (strcmp(a, b) != 0) {
                size_t at = 0;
                while (a[at] == b[at]) at++;
                while (at > 0 && a[at - 1] != '\n') at--;
                fail_msg("%s and %s differ:\n  %.*s\n  %.*s", pair[i][0], pair[i][1],
                         (int)strcspn(a + at, "\n"), a + at, (int)strcspn(b + at, "\n"), b + at);
            }
            free(a);
            free(b);
        }
    /* and that logs which should differ do: K = P in mini-batches is not synchronous */
    char *a = log_of("ksync:k=8", "exp"), *b = log_of("kbatchasync:k=8", "exp");
    assert_string_not_equal(a, b);
    free(a);
    free(b);
}

static int make_folder(void **state) {
    const char *given = getenv("PL_TEST_WIDER");
    if (given) wider = fmax(1, strtod(given, NULL));
    if (sanitized) wider = 5;
    if (folder_make(state)) return -1;
    snprintf(events, sizeof events, "%s/events", folder);
    return 0;
}

ALL_TESTS_BETWEEN(make_folder, folder_remove)
