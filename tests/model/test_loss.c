/* Softmax and cross-entropy: exponentials against the C library's in double precision, and rows
 * against a plain loop, bit for bit, on every instruction set that this processor has. */
#include "base/isa.h"
#include "base/rng.h"
#include "model/loss.h"
#include "test.h"

static void on_every_set(void (*test)(void)) {
    enum pl_isa before = pl_isa;
    for (int isa = 0; isa < PL_N_ISAS; isa++) {
        if (!pl_isa_present((enum pl_isa)isa)) continue;
        pl_isa = (enum pl_isa)isa;
        test();
    }
    pl_isa = before;
}

static void test_exp(void) {
    enum { N = 20000 };
    float *x = own_room(N, sizeof *x), *e = own_room(N, sizeof *e);
    for (size_t i = 0; i < N; i++) x[i] = e[i] = -105.0f * (float)i / N; /* down to denormals */
    pl_loss_exp(e, N);
    for (size_t i = 0; i < N; i++) {
        double right = exp((double)x[i]);
        double ulp = (double)nextafterf((float)right, INFINITY) - (double)(float)right;
        if (fabs(e[i] - right) > 0.51 * ulp)
            fail_msg("%s: exp(%a) is %a, not %a", pl_isa_name(pl_isa), (double)x[i], (double)e[i],
                     right);
    }
}

TEST(exponentials_are_rounded_well) {
    on_every_set(test_exp);
}

static void test_limits(void) {
    /* more than the widest vector, so that each value is computed in a vector and after it */
    float x[33];
    for (size_t at = 0; at < 33; at++) {
        memset(x, 0, sizeof x);
        x[at] = NAN;
        pl_loss_exp(x, 33);
        for (size_t i = 0; i < 33; i++)
            assert_true(i == at ? (bool)isnan(x[i]) : x[i] == 1); /* exp(0) is 1, exactly */
        memset(x, 0, sizeof x);
        x[at] = at % 2 ? -INFINITY : -3e38f;
        pl_loss_exp(x, 33);
        assert_true(x[at] == 0 && !signbit(x[at]));
    }
}

TEST(limits_are_exact) {
    on_every_set(test_limits);
}

/* One row after the other; returns the loss. */
static double plain_gradient(float *z, size_t n, size_t k, const uint16_t *label) {
    double loss = 0;
    for (size_t i = 0; i < n; i++, z += k) {
        float max = z[0], target = z[label[i]];
        double sum = 0;
        for (size_t j = 1; j < k; j++) max = z[j] > max ? z[j] : max;
        for (size_t j = 0; j < k; j++) {
            z[j] -= max;
            pl_loss_exp(&z[j], 1);
            sum += z[j];
        }
        loss += log(sum) + ((double)max - target);
        for (size_t j = 0; j < k; j++) z[j] *= (float)(1.0 / sum);
        z[label[i]] -= 1;
        for (size_t j = 0; j < k; j++) z[j] *= (float)(1.0 / (double)n);
    }
    return loss;
}

static void test_rows(void) {
    static const size_t classes[] = {2, 3, 10, 16, 33, 100};
    enum { N = 131 };
    for (size_t c = 0; c < sizeof classes / sizeof *classes; c++) {
        size_t k = classes[c], size = N * k * sizeof(float);
        float *z = own_room(1, size), *plain = own_room(1, size);
        uint16_t label[N];
        struct pl_rng rng;
        assert_non_null(z);
        assert_non_null(plain);
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, k);
        for (size_t i = 0; i < N * k; i++) z[i] = (float)(9 * pl_rng_normal(&rng));
        for (size_t i = 0; i < N; i++) label[i] = (uint16_t)(pl_rng_unit(&rng) * (double)k);
        memcpy(plain, z, size);
        double loss = plain_gradient(plain, N, k, label);
        assert_true(pl_loss_gradient(z, N, k, label, NULL) == loss);
        assert_memory_equal(z, plain, size);
    }
}

TEST(rows_equal_a_plain_loop) {
    on_every_set(test_rows);
}
