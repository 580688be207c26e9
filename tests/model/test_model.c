/* Every model in the table is held to the same contract: the gradient agrees with finite
 * differences of the loss, repeats to the bit, stops when cancelled, and score() agrees with it.
 * Dense layers are also compared with a twin in double precision. */
#include "base/rng.h"
#include "model/conv.h"
#include "model/dense.h"
#include "opened.h"

/* What to open, for the laws that hold for all. Each kind in the table must appear. */
static const struct test_case {
    const char *model, *data;
    uint32_t n;
} test_cases[] = {
    {"quadratic:noise=0", NULL, 1},
    {"quadratic:dim=1,noise=0", NULL, 3},
    {"quadratic:dim=9001,cond=1000,noise=0", NULL, 2},
    {"softmax", "blobs:samples=40,test=0", 40},
    {"softmax", "digits:samples=30,test=0", 17},
    {"softmax", "blobs:dim=1,classes=2,samples=5,test=0", 1},
    {"mlp", "digits:samples=20,test=0", 20},
    {"mlp:hidden=13", "blobs:samples=30,test=0", 30},
    {"mlp:hidden=17,8,11", "blobs:samples=30,test=0,classes=3", 30},
    {"mlp:hidden=1", "blobs:samples=5,test=0", 1},
    {"cnn:filters=3,5,dense=12", "digits:samples=12,test=0", 12},
    {"cnn:filters=2,3,4,kernel=3,dense=", "digits:samples=9,test=0,side=19", 9},
    {"cnn:filters=4,kernel=1,dense=7,6", "digits:samples=9,test=0,side=9", 1},
    {"cnn:filters=33,4,dense=8", "digits:samples=7,test=0,side=28", 7},
    {"linear", "friedman:samples=30,test=0", 30},
    {"mlp:hidden=13", "friedman:samples=30,test=0", 30},
    {"mf:k=5,l2=0", "lowrank:users=9,items=7,ratings=60,test=0", 60},
    {"mf:k=12,l2=0", "lowrank:users=3,items=2,ratings=40,test=0.5", 1},
};

#define N_CASES (sizeof test_cases / sizeof *test_cases)

struct test_bench {
    struct pl_data *data;
    struct pl_model *m;
    float *w, *g, *x, *scratch;
    uint16_t *label;
    float *target;
    struct pl_batch batch;
};

static float *test_floats(size_t n) {
    /* one float at least, exactly sized otherwise, so that the sanitizer sees the edges */
    return own_room(n, sizeof(float));
}

static void bench_open(struct test_bench *b, const struct test_case *c) {
    memset(b, 0, sizeof *b);
    if (c->data) b->data = open_data(c->data, test_seed);
    b->m = open_model(c->model, b->data);
    b->w = test_floats(b->m->dim);
    b->g = test_floats(b->m->dim);
    b->scratch = test_floats(b->m->kind->scratch(b->m, c->n));
    b->batch = (struct pl_batch){.n = c->n, .seed = test_seed, .worker = 3, .batch_no = 7};
    b->m->kind->init(b->m, test_seed, b->w);
    /* away from zero: softmax and all biases start there */
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 0, 0);
    for (size_t i = 0; i < b->m->dim; i++) b->w[i] += 0.05f * (float)pl_rng_normal(&rng);
    if (!b->data) return;
    b->x = test_floats((size_t)c->n * b->data->dim);
    b->label = own_room(c->n, sizeof *b->label);
    uint32_t *index = own_room(c->n, sizeof *index);
    for (uint32_t i = 0; i < c->n; i++) index[i] = i;
    pl_data_rows(b->data, false, index, c->n, b->x, b->label);
    if (b->data->has_targets) {
        b->batch.target = b->target = test_floats(c->n);
        pl_data_targets(b->data, false, index, c->n, b->target);
    }
    b->batch.x = b->x;
    b->batch.label = b->label;
}

static double bench_gradient(struct test_bench *b, const float *w, float *g) {
    double loss = NAN;
    assert_int_equal(b->m->kind->gradient(b->m, w, &b->batch, g, &loss, b->scratch, NULL), PL_OK);
    return loss;
}

TEST(every_kind_has_a_case) {
    for (const struct pl_entry *const *e = pl_model_family.table; *e; e++) {
        /* what other programs compute has no gradient here */
        bool found = ((const struct pl_model_kind *)(const void *)*e)->by_clients;
        for (size_t i = 0; i < N_CASES; i++) {
            size_t n = strlen((*e)->name);
            found |= strncmp(test_cases[i].model, (*e)->name, n) == 0;
        }
        if (!found) fail_msg("model %s is not tested", (*e)->name);
    }
}

/* Directional derivatives: g.u against (f(w + h u) - f(w - h u)) / 2h for |u| = 1.
 *
 * Two errors pull h apart. The loss carries the rounding of single precision, a few 1e-7 of f,
 * which the quotient divides by h. And a ReLU or a maximum that changes sides within h bends it:
 * how far depends on the net, but it falls with h, and a direction that mixes all parameters meets
 * many small bends where a single coordinate could meet one large one. So h runs down from 0.02 to
 * 0.0003 and the best counts: somewhere both are well below 2 % of |g|, while a wrong gradient
 * is as wrong at every h. u is the gradient's own direction plus chance, which keeps g.u near |g|
 * and the comparison relative. */
TEST(gradient_is_the_slope) {
    for (size_t i = 0; i < N_CASES; i++) {
        struct test_bench b;
        bench_open(&b, &test_cases[i]);
        size_t dim = b.m->dim;
        float *at = test_floats(dim), *u = test_floats(dim), *g = test_floats(dim);
        bench_gradient(&b, b.w, g);
        double norm = 0;
        for (size_t j = 0; j < dim; j++) norm += (double)g[j] * g[j];
        norm = sqrt(norm);
        struct pl_rng rng;
        pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, i);
        for (int trial = 0; trial < 8; trial++) {
            double size = 0, slope = 0, best = INFINITY;
            for (size_t j = 0; j < dim; j++) {
                double mix = 0.7 * pl_rng_normal(&rng) / sqrt((double)dim);
                u[j] = (float)(g[j] / norm + mix);
                size += (double)u[j] * u[j];
            }
            for (size_t j = 0; j < dim; j++) {
                u[j] /= (float)sqrt(size);
                slope += (double)g[j] * u[j];
            }
            for (double h = 0.02; h > 0.0002; h /= 4) {
                double up, down;
                for (size_t j = 0; j < dim; j++) at[j] = b.w[j] + (float)h * u[j];
                up = bench_gradient(&b, at, b.g);
                for (size_t j = 0; j < dim; j++) at[j] = b.w[j] - (float)h * u[j];
                down = bench_gradient(&b, at, b.g);
                best = fmin(best, fabs((up - down) / (2 * h) - slope));
            }
            if (!(best <= 0.02 * norm))
                fail_msg("%s: slope %g is off by %g, |g| = %g", test_cases[i].model, slope, best,
                         norm);
        }
    }
}

TEST(same_inputs_same_bits) {
    for (size_t i = 0; i < N_CASES; i++) {
        struct test_bench b;
        bench_open(&b, &test_cases[i]);
        size_t dim = b.m->dim, n_scratch = b.m->kind->scratch(b.m, b.batch.n);
        float *g = test_floats(dim), *w = test_floats(dim);
        memcpy(w, b.w, dim * sizeof *w);
        /* whatever lies in scratch and in g before a call must not matter */
        memset(b.scratch, 0xff, n_scratch * sizeof *b.scratch);
        memset(b.g, 0xff, dim * sizeof *b.g);
        double first = bench_gradient(&b, b.w, b.g);
        memset(b.scratch, 0x3c, n_scratch * sizeof *b.scratch);
        double second = bench_gradient(&b, w, g);
        assert_memory_equal(&first, &second, sizeof first);
        assert_memory_equal(b.g, g, dim * sizeof *g);
        assert_memory_equal(b.w, w, dim * sizeof *w);
        b.m->kind->init(b.m, 5, g);
        b.m->kind->init(b.m, 5, w);
        assert_memory_equal(g, w, dim * sizeof *w);
    }
}

TEST(cancel_stops) {
    for (size_t i = 0; i < N_CASES; i++) {
        struct test_bench b;
        bench_open(&b, &test_cases[i]);
        atomic_bool flag = true;
        const struct pl_cancel cancel = {.flag = &flag};
        double loss;
        const struct pl_model_kind *kind = b.m->kind;
        assert_int_equal(kind->gradient(b.m, b.w, &b.batch, b.g, &loss, b.scratch, &cancel),
                         PL_ECANCELLED);
        flag = false;
        assert_int_equal(kind->gradient(b.m, b.w, &b.batch, b.g, &loss, b.scratch, &cancel), PL_OK);
    }
}

TEST(score_agrees_with_gradient) {
    for (size_t i = 0; i < N_CASES; i++) {
        struct test_bench b;
        bench_open(&b, &test_cases[i]);
        double mean = bench_gradient(&b, b.w, b.g), sum = 100;
        uint32_t n_right = 5;
        b.m->kind->score(b.m, b.w, &b.batch, b.scratch, &sum, &n_right, NULL);
        assert_true(fabs(sum - 100 - mean * b.batch.n) <= 1e-9 * (100 + fabs(sum)));
        assert_true(n_right >= 5 && n_right <= 5 + b.batch.n);
    }
}

/* A few steps of descent must get a training batch mostly right: labels, rows and gradient
 * belong together. */
TEST(descent_learns) {
    static const struct test_case cases[] = {
        {"softmax", "blobs:samples=100,test=0", 100},
        {"mlp:hidden=32", "digits:samples=100,test=0", 100},
        {"cnn:filters=4,8,dense=32", "digits:samples=100,test=0", 100},
    };
    for (size_t i = 0; i < 3; i++) {
        struct test_bench b;
        bench_open(&b, &cases[i]);
        for (int step = 0; step < 200; step++) {
            bench_gradient(&b, b.w, b.g);
            for (size_t j = 0; j < b.m->dim; j++) b.w[j] -= 0.1f * b.g[j];
        }
        double loss = 0;
        uint32_t n_right = 0;
        b.m->kind->score(b.m, b.w, &b.batch, b.scratch, &loss, &n_right, NULL);
        if (n_right < 80) fail_msg("%s: %u of 100 right", cases[i].model, (unsigned)n_right);
    }
}

TEST(quadratic_is_what_it_says) {
    const struct test_case plain = {"quadratic:dim=5,cond=16,noise=0,start=2", NULL, 1};
    const struct test_case noisy = {"quadratic:dim=50,noise=3", NULL, 4};
    struct test_bench b;
    bench_open(&b, &plain);
    b.m->kind->init(b.m, 1, b.w);
    double loss = bench_gradient(&b, b.w, b.g), expect = 0;
    for (int i = 0; i < 5; i++) {
        double lambda = pow(16, i / 4.0 - 1);
        assert_true(fabs(b.g[i] - 2 * lambda) < 1e-5);
        expect += 0.5 * lambda * 4;
    }
    assert_true(fabs(loss - expect) < 1e-5);

    /* E||noise||^2 = noise^2 / n = 9/4; over 2000 draws of 50 coordinates the mean square has
     * relative deviation sqrt(2 / 100000) = 0.0045; 5 of them are allowed */
    bench_open(&b, &noisy);
    memset(b.w, 0, b.m->dim * sizeof *b.w);
    double sum = 0;
    for (uint64_t t = 0; t < 2000; t++) {
        b.batch.batch_no = t;
        bench_gradient(&b, b.w, b.g);
        for (size_t j = 0; j < b.m->dim; j++) sum += (double)b.g[j] * b.g[j];
    }
    assert_true(fabs(sum / 2000 / 2.25 - 1) < 0.023);
    float first = b.g[0];
    b.batch.worker++;
    bench_gradient(&b, b.w, b.g);
    assert_true(b.g[0] != first);
}

TEST(entropy_does_not_overflow) {
    const struct test_case c = {"softmax", "blobs:samples=8,test=0", 8};
    struct test_bench b;
    bench_open(&b, &c);
    for (size_t j = 0; j < b.m->dim; j++) b.w[j] *= 1e5f;
    double loss = bench_gradient(&b, b.w, b.g);
    assert_true(isfinite(loss));
    for (size_t j = 0; j < b.m->dim; j++) assert_true(isfinite(b.g[j]));
    /* a model of NANs is right about nothing, and says so */
    for (size_t j = 0; j < b.m->dim; j++) b.w[j] = NAN;
    uint32_t n_right = 0;
    b.m->kind->score(b.m, b.w, &b.batch, b.scratch, &loss, &n_right, NULL);
    assert_int_equal(n_right, 0);
    assert_true(isnan(loss));
}

/* ---- plain twins ---- */

/* A dense stack, as plainly as possible: one row at a time, in double precision. */
TEST(mlp_equals_its_twin) {
    const struct test_case c = {"mlp:hidden=9,6", "blobs:dim=7,classes=4,samples=5,test=0", 5};
    const size_t width[4] = {7, 9, 6, 4};
    struct test_bench b;
    bench_open(&b, &c);
    double loss = bench_gradient(&b, b.w, b.g), twin_loss = 0;
    double *g = own_room(b.m->dim, sizeof *g);
    for (size_t i = 0; i < 5; i++) {
        double a[4][9], d[4][9] = {{0}}, sum = 0;
        const float *w = b.w;
        size_t at = 0;
        for (size_t j = 0; j < 7; j++) a[0][j] = b.x[i * 7 + j];
        for (size_t l = 0; l < 3; l++) {
            size_t in = width[l], out = width[l + 1];
            for (size_t o = 0; o < out; o++) {
                a[l + 1][o] = w[at + in * out + o];
                for (size_t j = 0; j < in; j++) a[l + 1][o] += w[at + o * in + j] * a[l][j];
                if (l < 2 && a[l + 1][o] < 0) a[l + 1][o] = 0;
            }
            at += (in + 1) * out;
        }
        for (size_t o = 0; o < 4; o++) sum += exp(a[3][o]);
        twin_loss += (log(sum) - a[3][b.label[i]]) / 5;
        for (size_t o = 0; o < 4; o++) d[3][o] = (exp(a[3][o]) / sum - (o == b.label[i])) / 5;
        for (size_t l = 3; l-- > 0;) {
            size_t in = width[l], out = width[l + 1];
            at -= (in + 1) * out;
            for (size_t o = 0; o < out; o++) {
                if (l < 2 && a[l + 1][o] <= 0) continue;
                g[at + in * out + o] += d[l + 1][o];
                for (size_t j = 0; j < in; j++) {
                    g[at + o * in + j] += d[l + 1][o] * a[l][j];
                    d[l][j] += d[l + 1][o] * w[at + o * in + j];
                }
            }
        }
    }
    assert_true(fabs(loss - twin_loss) < 1e-5);
    for (size_t j = 0; j < b.m->dim; j++) assert_true(fabs(b.g[j] - g[j]) < 1e-5);
}

TEST(bad_requests_get_a_sentence) {
    static const char *const bad[] = {"mlp:hidden=",
                                      "mlp:hidden=2.5",
                                      "mlp:hidden=0",
                                      "cnn",
                                      "cnn:kernel=4",
                                      "softmax:hidden=3",
                                      "nosuch",
                                      "quadratic:dim=0",
                                      "quadratic:cond=.5",
                                      "mlp:hidden=1000000,1000000"};
    struct pl_model *m = NULL;
    struct pl_why why;
    struct pl_data *data = open_data("blobs:samples=10,test=0", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why.text[0] = '\0';
        assert_int_equal(pl_model_open(bad[i], data, &m, &why), PL_EUSAGE);
        assert_true(strlen(why.text) > 10);
    }
    assert_int_equal(pl_model_open("softmax", NULL, &m, &why), PL_EUSAGE);
    static const char *const bad_cnn[] = {"cnn:kernel=4", "cnn:filters=1,1,1,1",
                                          "cnn:filters=", "cnn:filters=1.5"};
    data = open_data("digits:samples=10,test=0,side=8", 1);
    for (size_t i = 0; i < sizeof bad_cnn / sizeof *bad_cnn; i++)
        assert_int_equal(pl_model_open(bad_cnn[i], data, &m, &why), PL_EUSAGE);
    assert_null(m);
    pl_model_close(NULL);
}
