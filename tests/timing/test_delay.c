/* Delay laws: draws against distribution functions, means, quantiles, lists, speeds, bad input.
 *
 * Draws are compared with the law by a Kolmogorov-Smirnov test. Its limit comes from the inequality
 * of Dvoretzky, Kiefer, Wolfowitz and Massart, Pr(D_n > e) <= 2 exp(-2 n e^2), which also covers
 * laws with jumps; at a level of 1e-9 a failure means a defect, not bad luck. Means get a limit of
 * six standard deviations where the variance exists. Seeds: PL_TEST_SEED, printed at the start. */
#include <unistd.h>

#include "base/rng.h"
#include "opened.h"

#define LEVEL 1e-9
#define N_DRAWS 40000

static char path[] = "delay-test-XXXXXX"; /* a trace file in the working directory */

static void write_trace_bytes(const char *text, size_t n) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_trace(const char *text) {
    write_trace_bytes(text, strlen(text));
}

static int compare(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* The largest distance between the draws of `worker` and its distribution function. */
static double distance(const struct pl_delay *d, uint32_t worker, double *x, int n) {
    for (int i = 0; i < n; i++) x[i] = pl_delay_draw(d, test_seed, worker, (uint64_t)i, 1);
    qsort(x, (size_t)n, sizeof *x, compare);
    double most = 0.0;
    for (int i = 0; i < n; i++) {
        if (i + 1 < n && x[i + 1] == x[i]) continue; /* the empirical function after its jump */
        most = fmax(most, fabs((i + 1.0) / n - pl_delay_cdf(d, worker, x[i])));
        double before = pl_delay_cdf(d, worker, nextafter(x[i], -1.0));
        int first = i;
        while (first > 0 && x[first - 1] == x[i]) first--;
        most = fmax(most, fabs((double)first / n - before));
    }
    return most;
}

static const char *const laws[] = {"const:t=2.5",
                                   "exp",
                                   "exp:mean=3",
                                   "shiftexp",
                                   "shiftexp:shift=0.5,mean=2",
                                   "pareto",
                                   "pareto:shape=1.2,scale=0.3",
                                   "pareto:shape=0.5",
                                   "gamma",
                                   "gamma:shape=1,mean=2",
                                   "gamma:shape=0.2,mean=5",
                                   "gamma:shape=2.5",
                                   "gamma:shape=10000",
                                   "lognormal",
                                   "lognormal:mu=-3,sigma=0.5",
                                   "hetero:v=0.6,gamma:shape=100",
                                   "hetero:power=0.5,exp",
                                   "hetero:v=0.3,power=-1,slow=0.5,by=7,lognormal:sigma=2",
                                   "exp:mean=2|const:t=1|3*gamma:shape=4",
                                   "hetero:v=0.6,exp:mean=1|shiftexp"};
#define N_LAWS (sizeof laws / sizeof laws[0])

TEST(test_draws_follow_cdf) {
    double *x = malloc(N_DRAWS * sizeof *x);
    assert_non_null(x);
    const double limit = sqrt(log(2.0 / LEVEL) / (2.0 * N_DRAWS));
    for (size_t i = 0; i < N_LAWS; i++) {
        struct pl_delay *d = open_delay(laws[i], 6);
        for (uint32_t w = 0; w < 6; w += 5) {
            double got = distance(d, w, x, N_DRAWS);
            if (!(got < limit)) fail_msg("%s worker %u: %g >= %g", laws[i], w, got, limit);
            assert_true(x[0] >= 0.0 && x[N_DRAWS - 1] <= PL_DELAY_MAX);
        }
    }
    write_trace("# seconds\n0.5\n0.5 # twice\n\n 1.25\n2e0\n7\n");
    char spec[64];
    snprintf(spec, sizeof spec, "trace:%s", path);
    struct pl_delay *d = open_delay(spec, 3);
    assert_true(distance(d, 2, x, N_DRAWS) < limit);
    free(x);
}

TEST(test_quantile_inverts_cdf) {
    static const double u[] = {1e-12, 1e-6, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1 - 1e-9};
    for (size_t i = 0; i < N_LAWS; i++) {
        struct pl_delay *d = open_delay(laws[i], 6);
        for (uint32_t w = 0; w < 6; w += 5) {
            double last = pl_delay_quantile(d, w, 0.0);
            assert_true(last >= 0.0 && pl_delay_cdf(d, w, last * 0.999999) <= 1e-12);
            for (size_t j = 0; j < sizeof u / sizeof u[0]; j++) {
                double t = pl_delay_quantile(d, w, u[j]), p = pl_delay_cdf(d, w, t);
                assert_true(t >= last && t <= PL_DELAY_MAX);
                assert_true(fabs(p + pl_delay_tail(d, w, t) - 1.0) < 1e-12);
                if (strncmp(laws[i], "const", 5) == 0 || strchr(laws[i], '|')) {
                    assert_true(p >= u[j] * (1 - 1e-9));
                } else if (t < PL_DELAY_MAX && !(fabs(p - u[j]) <= 1e-9 * u[j] + 1e-13)) {
                    fail_msg("%s worker %u: cdf(quantile(%g)) = %.17g", laws[i], w, u[j], p);
                }
                last = t;
            }
        }
    }
}

TEST(test_mean_is_integral_of_tail) {
    for (size_t i = 0; i < N_LAWS; i++) {
        struct pl_delay *d = open_delay(laws[i], 6);
        double mean = pl_delay_mean(d, 5), sum = 0.0, x0 = -40.0, h = 0.0005;
        if (isinf(mean)) {
            assert_string_equal(laws[i], "pareto:shape=0.5");
        } else {
            /* the trapezoid rule in log t; beyond 1e9 s the laws above have nothing left but the
             * Pareto with shape 1.2, whose remainder is 5 * (1e9)^-0.2 of its mean */
            for (double x = x0; x < log(PL_DELAY_MAX); x += h)
                sum += h * exp(x) * pl_delay_tail(d, 5, exp(x));
            double limit = strstr(laws[i], "1.2") ? 0.02 : 1e-3;
            if (!(fabs(sum / mean - 1.0) < limit)) fail_msg("%s: %g not %g", laws[i], sum, mean);
        }
    }
}

TEST(test_known_values) {
    struct pl_delay *d = open_delay("shiftexp:shift=1,mean=1", 8);
    assert_true(pl_delay_alike(d));
    assert_true(pl_delay_mean(d, 7) == 2.0);
    assert_true(pl_delay_cdf(d, 0, 1.0) == 0.0 && pl_delay_cdf(d, 0, -1.0) == 0.0);
    assert_true(fabs(pl_delay_tail(d, 0, 101.0) / exp(-100.0) - 1.0) < 1e-12);
    d = open_delay("pareto:shape=2,scale=1", 8);
    assert_true(pl_delay_mean(d, 0) == 2.0 && fabs(pl_delay_tail(d, 0, 4.0) - 0.0625) < 1e-15);
    /* 0.9 % of the tasks take more than 1.25 times the mean (gamma, shape 100) */
    d = open_delay("gamma:shape=100", 1);
    assert_true(fabs(pl_delay_tail(d, 0, 1.25) - 0.009) < 5e-4);
    /* chi-square with 200 degrees of freedom: 95 % at 233.994 */
    assert_true(fabs(pl_delay_quantile(d, 0, 0.95) - 2.33994 / 2) < 1e-5);
    d = open_delay("lognormal:mu=0,sigma=1", 1);
    assert_true(fabs(pl_delay_quantile(d, 0, 0.975) - exp(1.959963984540054)) < 1e-12);
    d = open_delay("pareto:shape=0.05", 1); /* most draws are beyond any clock */
    for (uint64_t i = 0; i < 1000; i++) {
        double x = pl_delay_draw(d, test_seed, 0, i, 3);
        assert_true(x >= 0.0 && x <= PL_DELAY_MAX);
    }
    assert_true(pl_delay_quantile(d, 0, 0.99) == PL_DELAY_MAX);
    assert_true(pl_delay_cdf(d, 0, PL_DELAY_MAX) == 1.0);
}

TEST(test_draws_are_keyed) {
    struct pl_delay *d = open_delay("exp:mean=2", 4);
    double a = pl_delay_draw(d, 5, 1, 9, 1);
    pl_delay_draw(d, 5, 2, 9, 1);
    assert_true(a == pl_delay_draw(d, 5, 1, 9, 1));
    assert_true(a != pl_delay_draw(d, 6, 1, 9, 1) && a != pl_delay_draw(d, 5, 2, 9, 1));
    assert_true(a != pl_delay_draw(d, 5, 1, 10, 1));
    /* steps: the sum of independent draws, of which the first is the same */
    assert_true(pl_delay_draw(d, 5, 1, 9, 0) == 0.0 && pl_delay_draw(d, 5, 1, 9, 2) > a);
    double sum = 0.0;
    const int n = 20000, steps = 5;
    for (int i = 0; i < n; i++) sum += pl_delay_draw(d, test_seed, 0, (uint64_t)i, (uint32_t)steps);
    double sd = 2.0 * sqrt(steps) / sqrt(n);
    assert_true(fabs(sum / n - 2.0 * steps) < 6.0 * sd);
    d = open_delay("const:t=0.25", 4);
    assert_true(pl_delay_draw(d, 1, 3, 0, 8) == 2.0);
}

TEST(test_lists) {
    static const double want[] = {1, 5, 5, 7, 1, 5, 5, 7, 1};
    struct pl_delay *d = open_delay("const:t=1|2*const:t=5|const:t=7", 9);
    for (uint32_t w = 0; w < 9; w++) assert_true(pl_delay_mean(d, w) == want[w]);
    assert_false(pl_delay_alike(d));
    d = open_delay("exp:mean=2|3*exp:mean=2", 9);
    assert_true(pl_delay_alike(d));
    d = open_delay("100*exp|const", 50);
    assert_true(pl_delay_alike(d)); /* no worker reaches const */
    d = open_delay("exp|pareto", 1);
    assert_true(pl_delay_alike(d));
    struct pl_delay_look look;
    pl_delay_look(d, 0, &look);
    assert_true(look.kind == PL_DELAY_EXP && look.a == 1.0 && look.speed == 1.0);
}

TEST(test_speeds) {
    struct pl_delay *d = open_delay("hetero:power=0.5,const:t=2", 9);
    assert_true(pl_delay_mean(d, 0) == 2.0 && pl_delay_mean(d, 8) == 6.0);
    assert_true(pl_delay_draw(d, 1, 8, 0, 1) == 6.0 && !pl_delay_alike(d));
    d = open_delay("hetero:slow=0.25,by=5,const", 8);
    for (uint32_t w = 0; w < 8; w++) assert_true(pl_delay_mean(d, w) == (w < 6 ? 1.0 : 5.0));
    d = open_delay("hetero:slow=0.01,by=3,const", 8); /* at least one */
    assert_true(pl_delay_mean(d, 6) == 1.0 && pl_delay_mean(d, 7) == 3.0);
    d = open_delay("hetero:slow=0.5,by=3,power=1,const:t=1|const:t=10", 4);
    assert_true(pl_delay_mean(d, 0) == 1.0 && pl_delay_mean(d, 1) == 20.0);
    assert_true(pl_delay_mean(d, 2) == 9.0 && pl_delay_mean(d, 3) == 120.0);

    /* CVB: mean 1 and coefficient of variation 0.6 over 100,000 workers; six standard deviations
     * (the fourth central moment of this gamma is 0.36^2 (3 + 6 * 0.36)) */
    const int n = 100000;
    d = open_delay("hetero:v=0.6,const", n);
    double mean = 0.0, square = 0.0, slow = 0.0;
    for (int w = 0; w < n; w++) {
        double x = pl_delay_mean(d, (uint32_t)w);
        mean += x / n;
        square += (x - 1.0) * (x - 1.0) / n;
        slow += (x > 1.25) / (double)n;
    }
    assert_true(fabs(mean - 1.0) < 6.0 * 0.6 / sqrt(n));
    assert_true(fabs(square - 0.36) < 6.0 * 0.36 * sqrt((2.0 + 6.0 * 0.36) / n));
    assert_true(fabs(slow - 0.279) < 0.012); /* with Vtask = 0.1 on top: 27.9 % */

    struct pl_delay *e = NULL; /* the speed belongs to the seed of the run */
    d = open_delay("hetero:v=0.6,exp", 4);
    assert_int_equal(pl_delay_open("hetero:v=0.6,exp", 4, test_seed + 1, &e, NULL), 0);
    assert_true(pl_delay_mean(d, 2) != pl_delay_mean(e, 2));
    pl_delay_free(e);
}

TEST(test_traces) {
    char spec[80];
    snprintf(spec, sizeof spec, "trace:%s", path);
    write_trace("1 0.5\r\n2 4\r\n1 1.5\n# nothing\n2\t8\n2 6"); /* no newline at the end */
    struct pl_delay *d = open_delay(spec, 5);
    assert_false(pl_delay_alike(d));
    for (uint32_t w = 0; w < 5; w++) {
        assert_true(fabs(pl_delay_mean(d, w) - (w % 2 ? 6.0 : 1.0)) < 1e-15);
        for (uint64_t i = 0; i < 50; i++) {
            double x = pl_delay_draw(d, test_seed, w, i, 1);
            assert_true(w % 2 ? x == 4 || x == 6 || x == 8 : x == 0.5 || x == 1.5);
        }
    }
    assert_true(pl_delay_quantile(d, 1, 1.0 / 3) == 4.0 && pl_delay_quantile(d, 1, 0.34) == 6.0);
    assert_true(pl_delay_quantile(d, 1, 0.0) == 4.0 && pl_delay_quantile(d, 1, 0.999) == 8.0);
    assert_true(fabs(pl_delay_cdf(d, 1, 6.0) - 2.0 / 3) < 1e-15);
    snprintf(spec, sizeof spec, "hetero:power=1,trace:file=%s", path);
    d = open_delay(spec, 4);
    assert_true(fabs(pl_delay_mean(d, 3) - 24.0) < 1e-12);

    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "has no measurements"},
        {"# only\n\n", "has no measurements"},
        {"1.0\nabc\n", "line 2 "},
        {"1.0\n1.0x\n", "line 2 "},
        {"1.0\n-0.5\n", "line 2 is not between 0 and 1e9"},
        {"nan\n", "line 1 "},
        {"inf\n", "line 1 "},
        {"1e300\n", "line 1 "},
        {"1 1\n2\n", "line 2 has a different number of columns"},
        {"1 2 3\n", "line 1 has more than two columns"},
        {"0 1\n", "line 1 does not begin with a worker number"},
        {"1.5 1\n", "line 1 does not begin with a worker number"},
        {"1e12 1\n", "line 1 does not begin with a worker number"},
        {"1 1\n3 1\n", "no line for worker 2"},
        {"1,5\n", "line 1 "},
        {"\xff\xfe\x01", "line 1 "},
    };
    snprintf(spec, sizeof spec, "trace:%s", path);
    struct pl_why why;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_trace(bad[i].text);
        d = NULL;
        assert_int_equal(pl_delay_open(spec, 2, test_seed, &d, &why), PL_EDATA);
        assert_null(d);
        if (!strstr(why.text, bad[i].says)) fail_msg("'%s' but %s", bad[i].says, why.text);
        assert_non_null(strstr(why.text, path));
    }
    char zeros[600] = "1\n2\n"; /* a line with zero bytes, and one that never ends */
    write_trace_bytes(zeros, sizeof zeros);
    assert_int_equal(pl_delay_open(spec, 2, test_seed, &d, &why), PL_EDATA);
    assert_non_null(strstr(why.text, "line 3 "));
    memset(zeros, ' ', sizeof zeros);
    write_trace_bytes(zeros, sizeof zeros);
    assert_int_equal(pl_delay_open(spec, 2, test_seed, &d, &why), PL_EDATA);
    assert_int_equal(pl_delay_open("trace:no/such/file", 2, test_seed, &d, &why), PL_EIO);
    assert_int_equal(pl_delay_open("trace:.", 2, test_seed, &d, &why), PL_EIO);
    assert_null(d);
}

TEST(test_bad_specs) {
    static const struct {
        const char *spec, *says;
    } bad[] = {
        {"", "empty"},
        {"expo", "did you mean 'exp'"},
        {"exp:mean=0", "mean=0 is not accepted; mean takes a number from 1e-12"},
        {"exp:mean=-1", "mean=-1"},
        {"exp:mean=nan", "mean=nan"},
        {"exp:mean=1e10", "to 1000000000"},
        {"exp:men=1", "did you mean 'mean'"},
        {"exp:mean", "key=value"},
        {"exp:mean=1,", "cannot end with a comma"},
        {"const:t=-1", "t=-1"},
        {"shiftexp:shift=x", "shift=x"},
        {"pareto:shape=0", "shape=0"},
        {"gamma:shape=1e9", "shape=1e9"},
        {"lognormal:sigma=-2", "sigma=-2"},
        {"trace", "trace:FILE"},
        {"exp|", "LAW|LAW|2*LAW"},
        {"|exp", "LAW|LAW|2*LAW"},
        {"exp||exp", "LAW|LAW|2*LAW"},
        {"0*exp", "from 1 to 1000000"},
        {"99999999999*exp", "from 1 to 1000000"},
        {"2*", "LAW|LAW|2*LAW"},
        {"x*exp", "no delay is called"},
        {"hetero", "a law at its end"},
        {"hetero:", "a law at its end"},
        {"hetero:v=0.6", "a law at its end"},
        {"hetero:v=0.6,", "a law at its end"},
        {"hetero:exp", "v=, power= or slow= before the law"},
        {"hetero:v=-1,exp", "v=-1 is not accepted; v takes a number from 0 to 2"},
        {"hetero:speed=1,exp", "no option 'speed'"},
        {"hetero:by=3,exp", "by=3 does nothing without slow="},
        {"hetero:slow=2,exp", "slow=2"},
        {"hetero:v=0.6,expo:mean=2", "did you mean 'exp'"},
        {"hetero:v=0.6,exp:mean=2,v=1", "no option 'v'"},
        {"hetero:v=0.6,hetero:power=1,exp", "comes first and once"},
        {"exp|hetero:v=1,exp", "comes first and once"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pl_delay *d = NULL;
        struct pl_why why = {""};
        if (pl_delay_open(bad[i].spec, 4, test_seed, &d, &why) != PL_EUSAGE)
            fail_msg("'%s' was accepted or failed otherwise: %s", bad[i].spec, why.text);
        assert_null(d);
        if (!strstr(why.text, bad[i].says))
            fail_msg("'%s': wanted '%s' in '%s'", bad[i].spec, bad[i].says, why.text);
    }
    struct pl_delay *d = NULL;
    assert_int_equal(pl_delay_open("exp", 0, test_seed, &d, NULL), PL_EUSAGE);
    char longest[4096];
    memset(longest, '|', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(pl_delay_open(longest, 4, test_seed, &d, NULL), PL_EUSAGE);
    for (size_t i = 0; i + 1 < sizeof longest; i++) longest[i] = "exp|"[i % 4];
    longest[PL_SPEC_MAX - 1] = '\0'; /* 255 laws and a cut name */
    assert_int_equal(pl_delay_open(longest, 4, test_seed, &d, NULL), PL_OK);
    pl_delay_free(d);
    pl_delay_free(NULL);
}

/* Random text never crashes the parser; what it accepts can be used. */
TEST(test_fuzz) {
    static const char *const piece[] = {"exp",   "hetero", "gamma", ":",    ",",     "=",  "|",
                                        "mean",  "v",      "2*",    "0.6",  "slow",  "by", "const",
                                        "power", "shape",  "1e5",   "-1",   "trace", " ",  "*",
                                        "t",     "sigma",  "inf",   "0x1p", "%n%s"};
    const uint32_t n_pieces = sizeof piece / sizeof piece[0];
    struct pl_rng r;
    for (uint64_t i = 0; i < 20000; i++) {
        char spec[256] = "";
        pl_rng_init(&r, test_seed, PL_STREAM_TEST, 0, i);
        if (i % 2) pl_append(spec, sizeof spec, "hetero:v=0.5,");
        for (uint32_t n = pl_rng_below(&r, 12); n > 0; n--)
            pl_append(spec, sizeof spec, "%s", piece[pl_rng_below(&r, n_pieces)]);
        struct pl_delay *d = NULL;
        struct pl_why why = {""};
        if (pl_delay_open(spec, 3, test_seed, &d, &why) == PL_OK) {
            double x = pl_delay_draw(d, test_seed, 1, i, 1);
            assert_true(x >= 0.0 && x <= PL_DELAY_MAX);
            pl_delay_free(d);
        } else {
            assert_null(d);
            assert_true(why.text[0] != '\0' && !strchr(why.text, '\n'));
        }
    }
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    begin_tests(20240607);
    int failed = run_all_tests(NULL, NULL);
    unlink(path);
    return failed;
}
