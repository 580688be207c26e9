/* Every model in the table is held to the same contract: the gradient agrees with finite
 * differences of the loss, repeats to the bit, stops when cancelled, and score() agrees with it.
 * The layers are also compared with twins written as plainly as possible, in double precision.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/conv.h"
#include "model/dense.h"
#include "model/model.h"
#include "seed.h"

static uint64_t test_seed;

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
    float *p = malloc((n ? n : 1) * sizeof *p);
    assert_non_null(p);
    return p;
}

static void bench_open(struct test_bench *b, const struct test_case *c) {
    struct pl_why why = {""};
    memset(b, 0, sizeof *b);
    if (c->data && pl_data_open(c->data, test_seed, &b->data, &why)) fail_msg("%s", why.text);
    if (pl_model_open(c->model, b->data, &b->m, &why)) fail_msg("%s: %s", c->model, why.text);
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
    b->label = malloc(c->n * sizeof *b->label);
    uint32_t *index = malloc(c->n * sizeof *index);
    for (uint32_t i = 0; i < c->n; i++) index[i] = i;
    pl_data_rows(b->data, false, index, c->n, b->x, b->label);
    if (b->data->has_targets) {
        b->batch.target = b->target = test_floats(c->n);
        pl_data_targets(b->data, false, index, c->n, b->target);
    }
    free(index);
    b->batch.x = b->x;
    b->batch.label = b->label;
}

static void bench_close(struct test_bench *b) {
    pl_model_close(b->m);
    pl_data_free(b->data);
    free(b->w);
    free(b->g);
    free(b->x);
    free(b->scratch);
    free(b->label);
    free(b->target);
}

static double bench_gradient(struct test_bench *b, const float *w, float *g) {
    double loss = NAN;
    assert_int_equal(b->m->kind->gradient(b->m, w, &b->batch, g, &loss, b->scratch, NULL), PL_OK);
    return loss;
}

static void every_kind_has_a_case(void **state) {
    (void)state;
    for (const struct pl_entry *const *e = pl_model_family.table; *e; e++) {
        /* what other programs compute has no gradient here */
        bool found = ((const struct pl_model_kind *)(const void *)*e)->outside;
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
static void gradient_is_the_slope(void **state) {
    (void)state;
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
        free(at);
        free(u);
        free(g);
        bench_close(&b);
    }
}

static void same_inputs_same_bits(void **state) {
    (void)state;
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
        free(g);
        free(w);
        bench_close(&b);
    }
}

static void cancel_stops(void **state) {
    (void)state;
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
        bench_close(&b);
    }
}

static void score_agrees_with_gradient(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CASES; i++) {
        struct test_bench b;
        bench_open(&b, &test_cases[i]);
        double mean = bench_gradient(&b, b.w, b.g), sum = 100;
        uint32_t n_right = 5;
        b.m->kind->score(b.m, b.w, &b.batch, b.scratch, &sum, &n_right);
        assert_true(fabs(sum - 100 - mean * b.batch.n) <= 1e-9 * (100 + fabs(sum)));
        assert_true(n_right >= 5 && n_right <= 5 + b.batch.n);
        bench_close(&b);
    }
}

/* A few steps of descent must get a training batch mostly right: labels, rows and gradient
 * belong together. */
static void descent_learns(void **state) {
    static const struct test_case cases[] = {
        {"softmax", "blobs:samples=100,test=0", 100},
        {"mlp:hidden=32", "digits:samples=100,test=0", 100},
        {"cnn:filters=4,8,dense=32", "digits:samples=100,test=0", 100},
    };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct test_bench b;
        bench_open(&b, &cases[i]);
        for (int step = 0; step < 200; step++) {
            bench_gradient(&b, b.w, b.g);
            for (size_t j = 0; j < b.m->dim; j++) b.w[j] -= 0.1f * b.g[j];
        }
        double loss = 0;
        uint32_t n_right = 0;
        b.m->kind->score(b.m, b.w, &b.batch, b.scratch, &loss, &n_right);
        if (n_right < 80) fail_msg("%s: %u of 100 right", cases[i].model, (unsigned)n_right);
        bench_close(&b);
    }
}

static void quadratic_is_what_it_says(void **state) {
    const struct test_case plain = {"quadratic:dim=5,cond=16,noise=0,start=2", NULL, 1};
    const struct test_case noisy = {"quadratic:dim=50,noise=3", NULL, 4};
    struct test_bench b;
    (void)state;
    bench_open(&b, &plain);
    b.m->kind->init(b.m, 1, b.w);
    double loss = bench_gradient(&b, b.w, b.g), expect = 0;
    for (int i = 0; i < 5; i++) {
        double lambda = pow(16, i / 4.0 - 1);
        assert_true(fabs(b.g[i] - 2 * lambda) < 1e-5);
        expect += 0.5 * lambda * 4;
    }
    assert_true(fabs(loss - expect) < 1e-5);
    bench_close(&b);

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
    bench_close(&b);
}

static void entropy_does_not_overflow(void **state) {
    const struct test_case c = {"softmax", "blobs:samples=8,test=0", 8};
    struct test_bench b;
    (void)state;
    bench_open(&b, &c);
    for (size_t j = 0; j < b.m->dim; j++) b.w[j] *= 1e5f;
    double loss = bench_gradient(&b, b.w, b.g);
    assert_true(isfinite(loss));
    for (size_t j = 0; j < b.m->dim; j++) assert_true(isfinite(b.g[j]));
    /* a model of NANs is right about nothing, and says so */
    for (size_t j = 0; j < b.m->dim; j++) b.w[j] = NAN;
    uint32_t n_right = 0;
    b.m->kind->score(b.m, b.w, &b.batch, b.scratch, &loss, &n_right);
    assert_int_equal(n_right, 0);
    assert_true(isnan(loss));
    bench_close(&b);
}

/* ---- plain twins ---- */

/* Stage forward: out [n][ph][pw][n_out], no borders anywhere; in [n][h][w][n_in]. The place of
 * each maximum goes to best as y * w + x. */
static void twin_conv_forward(const struct pl_conv *c, const float *w, const double *in, uint32_t n,
                              double *out, size_t *best) {
    const int h = (int)c->h, width = (int)c->w, k = (int)c->kernel, p = k / 2;
    const int n_in = (int)c->n_in, n_out = (int)c->n_out, ph = h / 2, pw = width / 2;
    for (int i = 0; i < (int)n; i++)
        for (int y = 0; y < ph * 2; y++)
            for (int x = 0; x < pw * 2; x++)
                for (int f = 0; f < n_out; f++) {
                    double z = w[k * k * n_in * n_out + f];
                    for (int dy = -p; dy <= p; dy++)
                        for (int dx = -p; dx <= p; dx++) {
                            int yy = y + dy, xx = x + dx;
                            if (yy < 0 || yy >= h || xx < 0 || xx >= width) continue;
                            for (int a = 0; a < n_in; a++)
                                z += in[((i * h + yy) * width + xx) * n_in + a] *
                                     w[((f * k + dy + p) * k + dx + p) * n_in + a];
                        }
                    size_t at = (size_t)(((i * ph + y / 2) * pw + x / 2) * n_out + f);
                    bool first = y % 2 == 0 && x % 2 == 0;
                    if (first) out[at] = 0;
                    if (first || z > out[at]) best[at] = (size_t)(y * width + x);
                    /* before ReLU the largest may be negative; then its place is of no account */
                    if (z > out[at]) out[at] = z;
                }
}

static void twin_conv_backward(const struct pl_conv *c, const float *w, const double *in,
                               const double *out, const size_t *best, const double *d_out,
                               uint32_t n, double *g, double *d_in) {
    const int h = (int)c->h, width = (int)c->w, k = (int)c->kernel, p = k / 2;
    const int n_in = (int)c->n_in, n_out = (int)c->n_out, pooled = (h / 2) * (width / 2);
    for (int i = 0; i < (int)n; i++)
        for (int q = 0; q < pooled; q++)
            for (int f = 0; f < n_out; f++) {
                size_t at = (size_t)((i * pooled + q) * n_out + f);
                if (out[at] <= 0) continue;
                int y = (int)(best[at] / c->w), x = (int)(best[at] % c->w);
                g[k * k * n_in * n_out + f] += d_out[at];
                for (int dy = -p; dy <= p; dy++)
                    for (int dx = -p; dx <= p; dx++) {
                        int yy = y + dy, xx = x + dx;
                        if (yy < 0 || yy >= h || xx < 0 || xx >= width) continue;
                        for (int a = 0; a < n_in; a++) {
                            int from = ((i * h + yy) * width + xx) * n_in + a;
                            int weight = ((f * k + dy + p) * k + dx + p) * n_in + a;
                            g[weight] += d_out[at] * in[from];
                            d_in[from] += d_out[at] * w[weight];
                        }
                    }
            }
}

/* Copies pictures [n][h][w][channels] into the middle of [n][h + 2 pad][w + 2 pad][channels]. */
static void twin_pad(const double *from, size_t n, size_t h, size_t w, size_t channels, size_t pad,
                     float *to) {
    for (size_t i = 0; i < n; i++)
        for (size_t y = 0; y < h; y++)
            for (size_t j = 0; j < w * channels; j++) {
                size_t row = (w + 2 * pad) * channels;
                to[(i * (h + 2 * pad) + y + pad) * row + pad * channels + j] =
                    (float)from[(i * h + y) * w * channels + j];
            }
}

static void twin_same(const double *twin, const float *fast, size_t n, size_t h, size_t w,
                      size_t channels, size_t pad, const char *what) {
    for (size_t i = 0; i < n; i++)
        for (size_t y = 0; y < h; y++)
            for (size_t j = 0; j < w * channels; j++) {
                size_t row = (w + 2 * pad) * channels;
                double a = twin[(i * h + y) * w * channels + j];
                double b = fast[(i * (h + 2 * pad) + y + pad) * row + pad * channels + j];
                /* sums of some hundred terms of order 1 in single precision */
                if (!(fabs(a - b) <= 2e-4 * (1 + fabs(a))))
                    fail_msg("%s [%zu][%zu][%zu]: %g, its twin says %g", what, i, y, j, b, a);
            }
}

static void twin_run(const struct pl_conv *c, uint32_t n, uint64_t task) {
    size_t pad = c->kernel / 2, dim = pl_conv_dim(c), in_size = (size_t)c->h * c->w * c->n_in;
    size_t ph = c->h / 2, pw = c->w / 2, out_size = ph * pw * c->n_out;
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, task);
    double *in = calloc(n * in_size, sizeof *in), *d_in = calloc(n * in_size, sizeof *d_in);
    double *out = calloc(n * out_size, sizeof *out), *d_out = calloc(n * out_size, sizeof *d_out);
    double *g = calloc(dim, sizeof *g);
    size_t *best = calloc(n * out_size, sizeof *best);
    float *w = test_floats(dim), *fast_g = test_floats(dim);
    float *fast_in = calloc(n * pl_conv_in_size(c), sizeof *fast_in);
    float *fast_d_in = test_floats(n * pl_conv_in_size(c));
    float *fast_out = test_floats(n * pl_conv_out_size(c));
    float *fast_d_out = test_floats(n * pl_conv_out_size(c));
    float *scratch = test_floats(pl_conv_scratch(c));
    uint8_t *which = malloc(n * pl_conv_which_size(c));
    assert_true(in && d_in && out && d_out && g && best && fast_in && which);

    for (size_t i = 0; i < n * in_size; i++) in[i] = (float)pl_rng_normal(&rng);
    for (size_t i = 0; i < n * out_size; i++) d_out[i] = (float)pl_rng_normal(&rng);
    for (size_t i = 0; i < dim; i++)
        w[i] = (float)(pl_rng_normal(&rng) / sqrt((double)(dim / c->n_out)));
    /* a border of d_out must be ignored, a border of out must come out zero */
    memset(fast_d_out, 0xff, n * pl_conv_out_size(c) * sizeof *fast_d_out);
    memset(fast_out, 0xff, n * pl_conv_out_size(c) * sizeof *fast_out);
    twin_pad(in, n, c->h, c->w, c->n_in, pad, fast_in);
    twin_pad(d_out, n, ph, pw, c->n_out, c->out_pad, fast_d_out);

    twin_conv_forward(c, w, in, n, out, best);
    twin_conv_backward(c, w, in, out, best, d_out, n, g, d_in);
    assert_int_equal(pl_conv_forward(c, w, fast_in, n, fast_out, which, scratch, NULL), PL_OK);
    assert_int_equal(pl_conv_backward(c, w, fast_in, fast_out, which, fast_d_out, n, fast_g,
                                      fast_d_in, scratch, NULL),
                     PL_OK);
    twin_same(out, fast_out, n, ph, pw, c->n_out, c->out_pad, "out");
    twin_same(d_in, fast_d_in, n, c->h, c->w, c->n_in, pad, "d_in");
    twin_same(g, fast_g, 1, 1, 1, dim, 0, "g");
    if (c->out_pad) assert_true(fast_out[0] == 0 && fast_out[n * pl_conv_out_size(c) - 1] == 0);

    free(in);
    free(d_in);
    free(out);
    free(d_out);
    free(g);
    free(best);
    free(w);
    free(fast_g);
    free(fast_in);
    free(fast_d_in);
    free(fast_out);
    free(fast_d_out);
    free(scratch);
    free(which);
}

static void conv_equals_its_twin(void **state) {
    static const struct pl_conv stages[] = {
        {.h = 8, .w = 8, .n_in = 1, .n_out = 4, .kernel = 5, .out_pad = 2},
        {.h = 7, .w = 10, .n_in = 3, .n_out = 5, .kernel = 3, .out_pad = 1},
        {.h = 2, .w = 2, .n_in = 6, .n_out = 3, .kernel = 5, .out_pad = 0},
        {.h = 2, .w = 9, .n_in = 2, .n_out = 1, .kernel = 1, .out_pad = 0},
        {.h = 14, .w = 14, .n_in = 32, .n_out = 16, .kernel = 5, .out_pad = 0},
        {.h = 9, .w = 11, .n_in = 8, .n_out = 16, .kernel = 5, .out_pad = 2},
        {.h = 6, .w = 7, .n_in = 16, .n_out = 8, .kernel = 3, .out_pad = 0},
        {.h = 4, .w = 28, .n_in = 1, .n_out = 48, .kernel = 5, .out_pad = 1},
        {.h = 6, .w = 6, .n_in = 3, .n_out = 64, .kernel = 3, .out_pad = 0},
    };
    (void)state;
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (uint32_t n = 1; n <= 6; n += 5) twin_run(&stages[s], n, s);
}

/* Planes of colours come in one after the other and are read side by side. */
static void cnn_reads_colours(void **state) {
    const struct pl_data data = {
        .n_train = 1, .dim = 3 * 4 * 6, .shape = {3, 4, 6}, .n_classes = 2};
    const struct pl_conv stage = {.h = 4, .w = 6, .n_in = 3, .n_out = 5, .kernel = 3};
    struct pl_model *m;
    struct pl_why why;
    struct pl_rng rng;
    float x[72], w[300];
    double in[72], out[30], logit[2], loss = 0;
    size_t best[30], at = pl_conv_dim(&stage);
    uint16_t label = 1;
    uint32_t n_right = 0;
    (void)state;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, 0);
    assert_int_equal(pl_model_open("cnn:filters=5,kernel=3,dense=", &data, &m, &why), PL_OK);
    assert_int_equal(m->dim, at + 2 * 31);
    for (size_t i = 0; i < m->dim; i++) w[i] = (float)pl_rng_normal(&rng) * 0.2f;
    for (size_t i = 0; i < 72; i++) x[i] = (float)pl_rng_normal(&rng);
    for (size_t i = 0; i < 72; i++) in[i % 24 * 3 + i / 24] = x[i];
    twin_conv_forward(&stage, w, in, 1, out, best);
    for (size_t k = 0; k < 2; k++) {
        logit[k] = w[at + 60 + k];
        for (size_t j = 0; j < 30; j++) logit[k] += w[at + k * 30 + j] * out[j];
    }
    float *scratch = test_floats(m->kind->scratch(m, 1));
    struct pl_batch batch = {.n = 1, .x = x, .label = &label};
    m->kind->score(m, w, &batch, scratch, &loss, &n_right);
    assert_true(fabs(loss - log1p(exp(logit[0] - logit[1]))) < 1e-5);
    assert_int_equal(n_right, logit[1] > logit[0]);
    free(scratch);
    pl_model_close(m);
}

/* A dense stack, as plainly as possible: one row at a time, in double precision. */
static void mlp_equals_its_twin(void **state) {
    const struct test_case c = {"mlp:hidden=9,6", "blobs:dim=7,classes=4,samples=5,test=0", 5};
    const size_t width[4] = {7, 9, 6, 4};
    struct test_bench b;
    (void)state;
    bench_open(&b, &c);
    double loss = bench_gradient(&b, b.w, b.g), twin_loss = 0;
    double *g = calloc(b.m->dim, sizeof *g);
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
    free(g);
    bench_close(&b);
}

static void bad_requests_get_a_sentence(void **state) {
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
    struct pl_data *data;
    struct pl_model *m = NULL;
    struct pl_why why;
    (void)state;
    assert_int_equal(pl_data_open("blobs:samples=10,test=0", 1, &data, &why), PL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why.text[0] = '\0';
        assert_int_equal(pl_model_open(bad[i], data, &m, &why), PL_EUSAGE);
        assert_true(strlen(why.text) > 10);
    }
    assert_int_equal(pl_model_open("softmax", NULL, &m, &why), PL_EUSAGE);
    pl_data_free(data);
    static const char *const bad_cnn[] = {"cnn:kernel=4", "cnn:filters=1,1,1,1",
                                          "cnn:filters=", "cnn:filters=1.5"};
    assert_int_equal(pl_data_open("digits:samples=10,test=0,side=8", 1, &data, &why), PL_OK);
    for (size_t i = 0; i < sizeof bad_cnn / sizeof *bad_cnn; i++)
        assert_int_equal(pl_model_open(bad_cnn[i], data, &m, &why), PL_EUSAGE);
    pl_data_free(data);
    assert_null(m);
    pl_model_close(NULL);
}

int main(void) {
    test_seed = seed_of_test(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_case),      cmocka_unit_test(gradient_is_the_slope),
        cmocka_unit_test(same_inputs_same_bits),      cmocka_unit_test(cancel_stops),
        cmocka_unit_test(score_agrees_with_gradient), cmocka_unit_test(descent_learns),
        cmocka_unit_test(quadratic_is_what_it_says),  cmocka_unit_test(entropy_does_not_overflow),
        cmocka_unit_test(conv_equals_its_twin),       cmocka_unit_test(cnn_reads_colours),
        cmocka_unit_test(mlp_equals_its_twin),        cmocka_unit_test(bad_requests_get_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
