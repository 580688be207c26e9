/* Random numbers: published vectors, keys that give the same numbers in any order, and moments. */
#include "base/rng.h"
#include "test.h"

TEST(rng_known_answers) {
    /* Random123, kat_vectors: philox4x32 10 */
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } row[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct pl_rng r = {.left = 0};
        memcpy(r.key, row[i].key, sizeof r.key);
        memcpy(r.ctr, row[i].ctr, sizeof r.ctr);
        uint32_t last = pl_rng_u32(&r);
        assert_memory_equal(r.out, row[i].out, sizeof r.out);
        assert_int_equal(last, row[i].out[3]); /* words are used from the end */
        assert_int_equal(pl_rng_u32(&r), row[i].out[2]);
    }
}

/* A generator is its key: no two differ in one part of it and agree in what they say. */
TEST(rng_is_its_key) {
    enum { N = 8 };
    const struct {
        uint64_t seed;
        enum pl_stream stream;
        uint32_t worker;
        uint64_t task;
    } key[] = {{test_seed, PL_STREAM_DELAY, 7, 0},     {test_seed + 1, PL_STREAM_DELAY, 7, 0},
               {test_seed, PL_STREAM_BATCH, 7, 0},     {test_seed, PL_STREAM_DELAY, 8, 0},
               {test_seed, PL_STREAM_DELAY, 7, 1},     {test_seed, PL_STREAM_DELAY, 7, 1ull << 32},
               {~test_seed, PL_STREAM_DELAY, 7, 0xff}, {test_seed, PL_STREAM_BATCH, 8, 0}};
    enum { KEYS = sizeof key / sizeof *key };
    uint64_t said[KEYS][N];
    for (int i = 0; i < KEYS; i++) {
        struct pl_rng r, again;
        pl_rng_init(&r, key[i].seed, key[i].stream, key[i].worker, key[i].task);
        pl_rng_init(&again, key[i].seed, key[i].stream, key[i].worker, key[i].task);
        for (int k = 0; k < N; k++) {
            said[i][k] = pl_rng_u64(&r);
            assert_true(pl_rng_u64(&again) == said[i][k]);
        }
    }
    for (int i = 0; i < KEYS; i++)
        for (int j = 0; j < i; j++)
            for (int k = 0; k < N * N; k++) assert_true(said[i][k % N] != said[j][k / N]);
}

static double draw_unit(struct pl_rng *r, double a) {
    double u = pl_rng_unit(r);
    assert_true(u >= 0 && u < 1);
    return u;
}

static double draw_exp(struct pl_rng *r, double a) {
    return pl_rng_exp(r);
}

static double draw_normal(struct pl_rng *r, double a) {
    return pl_rng_normal(r);
}

/* Mean and variance within six standard errors; fourth: the fourth central moment. */
TEST(rng_moments) {
    static const struct {
        const char *name;
        double (*draw)(struct pl_rng *r, double a);
        double a, mean, variance, fourth;
    } row[] = {
        {"unit", draw_unit, 0, 0.5, 1 / 12.0, 1 / 80.0},
        {"exp", draw_exp, 0, 1, 1, 9},
        {"normal", draw_normal, 0, 0, 1, 3},
        {"gamma 0.3", pl_rng_gamma, 0.3, 0.3, 0.3, 3 * 0.09 + 6 * 0.3},
        {"gamma 1", pl_rng_gamma, 1, 1, 1, 9},
        {"gamma 2.78", pl_rng_gamma, 2.78, 2.78, 2.78, 3 * 2.78 * 2.78 + 6 * 2.78},
        {"gamma 100", pl_rng_gamma, 100, 100, 100, 30600},
    };
    const int n = sanitized ? 50000 : 400000;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct pl_rng r;
        double sum = 0, square = 0;
        pl_rng_init(&r, test_seed, PL_STREAM_TEST, 2, i);
        for (int k = 0; k < n; k++) {
            double x = row[i].draw(&r, row[i].a) - row[i].mean;
            sum += x;
            square += x * x;
        }
        double fourth = row[i].fourth - row[i].variance * row[i].variance;
        if (!(fabs(sum / n) < 6 * sqrt(row[i].variance / n)))
            fail_msg("%s: the mean is off by %g", row[i].name, sum / n);
        if (!(fabs(square / n - row[i].variance) < 6 * sqrt(fourth / n)))
            fail_msg("%s: the variance is %g", row[i].name, square / n);
    }
}

/* Every value equally often. With d degrees of freedom, chi-square exceeds d + 2 sqrt(d x) + 2 x
 * with a probability below exp(-x) (Laurent and Massart 2000). */
TEST(rng_below_is_uniform) {
    static const uint32_t sizes[] = {1, 2, 3, 7, 10, 100};
    const int n = 60000;
    struct pl_rng r;
    pl_rng_init(&r, test_seed, PL_STREAM_TEST, 3, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int count[100] = {0};
        double chi2 = 0, each = (double)n / sizes[i];
        for (int k = 0; k < n; k++) {
            uint32_t x = pl_rng_below(&r, sizes[i]);
            assert_true(x < sizes[i]);
            count[x]++;
        }
        for (uint32_t k = 0; k < sizes[i]; k++)
            chi2 += (count[k] - each) * (count[k] - each) / each;
        double d = sizes[i] - 1.0, x = 20;
        if (!(chi2 <= d + 2 * sqrt(d * x) + 2 * x)) fail_msg("chi-square %g of %g", chi2, d);
    }
    for (int k = 0; k < 1000; k++) assert_true(pl_rng_below(&r, 0xfffffffeu) < 0xfffffffeu);
}
