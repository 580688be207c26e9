/* Convolutions against twins written as plainly as possible, in double precision. */
#include "base/rng.h"
#include "model/conv.h"
#include "opened.h"

static float *test_floats(size_t n) {
    /* one float at least, exactly sized otherwise, so that the sanitizer sees the edges */
    float *p = own_room(n ? n : 1, sizeof *p);
    return p;
}

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
    double *in = own_room(n * in_size, sizeof *in), *d_in = own_room(n * in_size, sizeof *d_in);
    double *out = own_room(n * out_size, sizeof *out),
           *d_out = own_room(n * out_size, sizeof *d_out);
    double *g = own_room(dim, sizeof *g);
    size_t *best = own_room(n * out_size, sizeof *best);
    float *w = test_floats(dim), *fast_g = test_floats(dim);
    float *fast_in = own_room(n * pl_conv_in_size(c), sizeof *fast_in);
    float *fast_d_in = test_floats(n * pl_conv_in_size(c));
    float *fast_out = test_floats(n * pl_conv_out_size(c));
    float *fast_d_out = test_floats(n * pl_conv_out_size(c));
    float *scratch = test_floats(pl_conv_scratch(c));
    uint8_t *which = own_room(n, pl_conv_which_size(c));

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
}

TEST(conv_equals_its_twin) {
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
    for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
        for (uint32_t n = 1; n <= 6; n += 5) twin_run(&stages[s], n, s);
}

/* Planes of colours come in one after the other and are read side by side. */
TEST(cnn_reads_colours) {
    const struct pl_data data = {
        .n_train = 1, .dim = 3 * 4 * 6, .shape = {3, 4, 6}, .n_classes = 2};
    const struct pl_conv stage = {.h = 4, .w = 6, .n_in = 3, .n_out = 5, .kernel = 3};
    struct pl_rng rng;
    float x[72], w[300];
    double in[72], out[30], logit[2], loss = 0;
    size_t best[30], at = pl_conv_dim(&stage);
    uint16_t label = 1;
    uint32_t n_right = 0;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, 0);
    struct pl_model *m = open_model("cnn:filters=5,kernel=3,dense=", &data);
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
    m->kind->score(m, w, &batch, scratch, &loss, &n_right, NULL);
    assert_true(fabs(loss - log1p(exp(logit[0] - logit[1]))) < 1e-5);
    assert_int_equal(n_right, logit[1] > logit[0]);
}
