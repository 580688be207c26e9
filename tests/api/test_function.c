/* A model of one's own, as a program that embeds the library defines it. */
#include <stdatomic.h>

#include "embedding.h"

#define LS_DIM 8
#define LS_ROWS 200

/* Least squares: rows a_i, targets b_i = a_i . x; mini-batches of `n` rows named by the sample. */
struct least_squares {
    double a[LS_ROWS][LS_DIM], b[LS_ROWS], x[LS_DIM];
    atomic_int n_gradients, n_scores, n_cancelled;
    int fail_after; /* gradients; 0: never */
    int status;
};

static uint64_t ls_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static double ls_unit(uint64_t x) {
    return (double)(ls_mix(x) >> 11) * 0x1p-52 - 1;
}

static void ls_make(struct least_squares *ls) {
    memset(ls, 0, sizeof *ls);
    for (int k = 0; k < LS_DIM; k++) ls->x[k] = 3 * ls_unit(test_seed * 1000 + (unsigned)k);
    for (int i = 0; i < LS_ROWS; i++)
        for (int k = 0; k < LS_DIM; k++) {
            ls->a[i][k] = ls_unit(test_seed * 999983 + (unsigned)(i * LS_DIM + k));
            ls->b[i] += ls->a[i][k] * ls->x[k];
        }
}

static double ls_row(const struct least_squares *ls, const float *w, int i, float *g,
                     double scale) {
    double error = -ls->b[i];
    for (int k = 0; k < LS_DIM; k++) error += ls->a[i][k] * w[k];
    for (int k = 0; g && k < LS_DIM; k++) g[k] += (float)(scale * error * ls->a[i][k]);
    return error * error / 2;
}

static int ls_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                       double *loss) {
    struct least_squares *ls = ctx;
    int n = atomic_fetch_add(&ls->n_gradients, 1);
    if (ls->fail_after && n >= ls->fail_after) return ls->status;
    if (s->x || s->label || s->dim != 0) return PL_EDATA; /* wants_data is 0 */
    memset(g, 0, LS_DIM * sizeof *g);
    *loss = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->cancelled(s->token)) {
            ls->n_cancelled++;
            return PL_ECANCELLED;
        }
        uint64_t key = s->seed ^ (s->batch_no << 20) ^ ((uint64_t)s->worker << 50) ^ i;
        *loss += ls_row(ls, w, (int)(ls_mix(key) % LS_ROWS), g, 1.0 / s->n) / s->n;
    }
    return PL_OK;
}

static void ls_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                     uint32_t *n_right) {
    struct least_squares *ls = ctx;
    ls->n_scores++;
    *n_right = 0;
    *loss = 0;
    for (int i = 0; i < LS_ROWS; i++) *loss += ls_row(ls, w, i, NULL, 0) / LS_ROWS * s->n;
}

static void ls_init(void *ctx, uint64_t seed, float *w) {
    for (int k = 0; k < LS_DIM; k++) w[k] = (float)ls_unit(seed + (uint64_t)k);
}

TEST(functions_train) {
    static const char *const methods[] = {"sync", "async", "ksync", "abs", "gap-aware", "dana"};
    struct least_squares ls;
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        float first[LS_DIM];
        for (int threads = 1; threads <= 3; threads += 2) {
            size_t n;
            const struct pl_point *p;
            ls_make(&ls);
            pl_setup *s = make("method", methods[m], "workers", "4", "batch", "16", "lr",
                               m < 4 ? "0.2" : "0.02", "updates", sanitized ? "300" : "1000",
                               "threads", threads == 1 ? "1" : "3", NULL);
            const struct pl_function f = {.dim = LS_DIM,
                                          .ctx = &ls,
                                          .init = ls_init,
                                          .gradient = ls_gradient,
                                          .score = ls_score};
            assert_int_equal(pl_setup_function(s, &f), 0);
            pl_run *run = run_setup(s);
            const float *w = pl_run_weights(run, &n);
            assert_int_equal(n, LS_DIM);
            size_t n_points = pl_run_points(run, &p);
            assert_int_equal(ls.n_scores, n_points);
            if (!(p[n_points - 1].loss < 0.05 * p[0].loss))
                fail_msg("%s: %g to %g", methods[m], p[0].loss, p[n_points - 1].loss);
            assert_true(isnan(pl_run_number(run, "test_accuracy")));
            if (threads == 1)
                memcpy(first, w, sizeof first);
            else
                assert_memory_equal(first, w, sizeof first);
        }
    }
}

/* Without score() the loss is that of gradient(); without init() the start is zero. */
TEST(functions_need_little) {
    struct least_squares ls;
    const struct pl_point *p;
    ls_make(&ls);
    pl_setup *s = make("method", "sync", "workers", "2", "updates", "100", "batch", "32", NULL);
    const struct pl_function f = {.dim = LS_DIM, .ctx = &ls, .gradient = ls_gradient};
    assert_int_equal(pl_setup_function(s, &f), 0);
    pl_run *run = run_setup(s);
    assert_int_equal(ls.n_scores, 0);
    size_t n = pl_run_points(run, &p);
    assert_true(n > 1 && isfinite(p[0].loss) && p[n - 1].loss < p[0].loss);
}

/* A gradient that fails ends the run with its status and a sentence about itself. */
TEST(functions_may_fail) {
    static const int statuses[] = {PL_EDATA, PL_EIO, PL_ENOMEM, PL_ECANCELLED, 7};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        for (int threads = 1; threads <= 2; threads++) {
            struct least_squares ls;
            pl_run *run = NULL;
            ls_make(&ls);
            ls.fail_after = 20;
            ls.status = statuses[i];
            pl_setup *s = make("method", "async", "threads", threads == 1 ? "1" : "2", NULL);
            const struct pl_function f = {
                .dim = LS_DIM, .ctx = &ls, .gradient = ls_gradient, .score = ls_score};
            assert_int_equal(pl_setup_function(s, &f), 0);
            int rc = pl_simulate(s, &run);
            assert_int_equal(rc, statuses[i] < 0 ? statuses[i] : PL_EUSAGE);
            check_sentence(pl_setup_why(s));
            if (rc != PL_ENOMEM) assert_non_null(strstr(pl_setup_why(s), "the gradient of worker"));
            assert_null(run);
        }
    pl_setup *s = make(NULL);
    struct pl_function none = {.dim = 0, .gradient = ls_gradient};
    assert_int_equal(pl_setup_function(s, &none), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
    none = (struct pl_function){.dim = 3};
    assert_int_equal(pl_setup_function(s, &none), PL_EUSAGE);
    check_sentence(pl_setup_why(s));
}

/* A nearest-mean classifier on the setup's data: rows and labels come as they should. */
static int means_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                          double *loss) {
    atomic_int *n_bad = ctx;
    if (s->dim != 64 || !s->x || !s->label) ++*n_bad;
    memset(g, 0, 640 * sizeof *g);
    *loss = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->label[i] >= 10) ++*n_bad;
        for (uint32_t k = 0; k < 64; k++) {
            double x = s->x[i * 64 + k], d = w[s->label[i] * 64u + k] - x;
            if (!(x >= 0 && x <= 1)) ++*n_bad;
            g[s->label[i] * 64u + k] += (float)(d / s->n);
            *loss += d * d / 2 / s->n;
        }
    }
    return PL_OK;
}

static void means_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                        uint32_t *n_right) {
    *loss = 0;
    *n_right = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        double least = INFINITY;
        uint32_t best = 0;
        for (uint32_t c = 0; c < 10; c++) {
            double d2 = 0;
            for (uint32_t k = 0; k < 64; k++) {
                double d = w[c * 64 + k] - s->x[i * 64 + k];
                d2 += d * d;
            }
            if (d2 < least) {
                least = d2;
                best = c;
            }
            if (c == s->label[i]) *loss += d2 / 2;
        }
        *n_right += best == s->label[i];
    }
}

TEST(functions_on_data) {
    atomic_int n_bad = 0;
    pl_setup *s = make("method", "sync", "workers", "3", "lr", "1", "updates", "60", "data",
                       "digits:samples=500,test=100,side=8", NULL);
    const struct pl_function f = {.dim = 640,
                                  .wants_data = 1,
                                  .classifies = 1,
                                  .ctx = &n_bad,
                                  .gradient = means_gradient,
                                  .score = means_score};
    assert_int_equal(pl_setup_function(s, &f), 0);
    pl_run *run = run_setup(s);
    assert_int_equal(n_bad, 0);
    assert_true(pl_run_number(run, "test_accuracy") > 0.3); /* a guess has 0.1 */
}
