/* Delays that are drawn ahead, many at once, are those that are drawn one by one: to the
 * nanosecond, whatever the law and the order. */
#include "test.h"
#include "timing/ahead.h"

/* The approximation keeps its promise, also across the 32 lower bits of a task's number. */
TEST(approximate_exponentials_are_close) {
    static const uint64_t first[] = {0, 1, 1000000, UINT32_MAX - 9u, UINT64_C(0xfffffffff0)};
    static const uint64_t seed[] = {1, UINT64_C(0xfedcba9876543210)};
    for (size_t s = 0; s < 2; s++)
        for (size_t f = 0; f < sizeof first / sizeof *first; f++)
            for (uint32_t worker = 0; worker < 300; worker++) {
                double x[PL_RNG_LANES];
                pl_rng_exps(seed[s], PL_STREAM_DELAY, worker, first[f], x);
                for (uint32_t i = 0; i < PL_RNG_LANES; i++) {
                    struct pl_rng r;
                    pl_rng_init(&r, seed[s], PL_STREAM_DELAY, worker, first[f] + i);
                    double exact = pl_rng_exp(&r);
                    assert_true(fabs(x[i] - exact) <= PL_RNG_EXP_ERROR * exact);
                }
            }
}

static struct pl_delay *law(const char *spec, int n_workers) {
    struct pl_delay *d = NULL;
    struct pl_why why;
    assert_int_equal(pl_delay_open(spec, n_workers, 5, &d, &why), PL_OK);
    return d;
}

/* Returns how many draws differ from the plain ones. */
static int n_different(const char *spec, int n_workers, uint32_t steps, uint64_t n_tasks,
                       uint64_t stride) {
    struct pl_delay *d = law(spec, n_workers);
    struct pl_ahead a;
    int n = 0;
    assert_int_equal(pl_ahead_init(&a, d, n_workers, 7, steps), PL_OK);
    for (uint64_t task = 1; task <= n_tasks; task += stride)
        for (int w = 0; w < n_workers; w++) {
            double seconds = pl_delay_draw(d, 7, (uint32_t)w, task, steps);
            n += pl_ahead_ns(&a, (uint32_t)w, task) != pl_delay_ns(seconds);
        }
    pl_ahead_free(&a);
    pl_delay_free(d);
    return n;
}

/* With long delays a nanosecond is close to the precision of a double, and the approximation alone
 * would often be rounded to another one. */
TEST(drawn_ahead_is_the_same) {
    static const char *const specs[] = {"exp:mean=1",
                                        "exp:mean=1e-9",
                                        "exp:mean=1e4",
                                        "exp:mean=1e6",
                                        "exp:mean=1e9",
                                        "shiftexp:shift=0.5,mean=2",
                                        "shiftexp:shift=3e5,mean=1e-6",
                                        "hetero:v=0.6,exp:mean=3",
                                        "hetero:power=0.5,exp:mean=1|shiftexp:shift=1,mean=1e3",
                                        "exp|const",
                                        "pareto:shape=1.5",
                                        "gamma:shape=3",
                                        "lognormal"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        assert_int_equal(n_different(specs[i], 3, 1, 10000, 1), 0);
        assert_int_equal(n_different(specs[i], 5, 4, 100, 1), 0);
    }
}

TEST(tasks_may_be_skipped_and_workers_many) {
    assert_int_equal(n_different("exp:mean=1", 3, 1, 5000, 7), 0);
    assert_int_equal(n_different("exp:mean=1", 3, 1, 100000, PL_RNG_LANES + 1), 0);
    assert_int_equal(n_different("exp:mean=1", 1024, 1, 40, 1), 0);
    assert_int_equal(n_different("exp:mean=1", 5000, 1, 3, 1), 0);
}

/* Halves are rounded up, and what is too long for the clock is cut. */
TEST(nanoseconds_are_rounded) {
    assert_true(pl_delay_ns(0) == 0);
    assert_true(pl_delay_ns(0.4e-9) == 0);
    assert_true(pl_delay_ns(0.5e-9) == 1);
    assert_true(pl_delay_ns(2.5e-9) == 3);
    assert_true(pl_delay_ns(1.25) == 1250000000);
    assert_true(pl_delay_ns(1e9) == UINT64_C(1000000000000000000));
    assert_true(pl_delay_ns(INFINITY) == UINT64_C(1000000000000000000));
}
