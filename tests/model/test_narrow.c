/* Products with few columns against plain loops, bit for bit, on every instruction set that this
 * processor has; and gradients of models, which must not depend on the set either. */
#include "base/isa.h"
#include "base/rng.h"
#include "model/narrow.h"
#include "opened.h"

static float *test_floats(size_t n, uint32_t stream) {
    struct pl_rng rng;
    float *x = own_room(n, sizeof *x);
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, stream, n);
    for (size_t i = 0; i < n; i++) x[i] = (float)pl_rng_normal(&rng);
    return x;
}

struct test_case {
    struct pl_rows rows;
    size_t n_out;
};

/* Where element k of row i of a line is. */
static size_t test_at(const struct pl_rows *r, size_t line, size_t i, size_t k) {
    return line * r->next + i * r->step + k / r->run * r->apart + k % r->run;
}

/* z [n][n_out]: each sum in the order of k */
static void plain_product(const struct test_case *c, const float *x, const float *w, float *z) {
    const struct pl_rows *r = &c->rows;
    size_t n_in = r->n_runs * r->run;
    for (size_t line = 0; line < r->n_lines; line++)
        for (size_t i = 0; i < r->width; i++)
            for (size_t j = 0; j < c->n_out; j++) {
                float sum = 0;
                for (size_t k = 0; k < n_in; k++)
                    sum += x[test_at(r, line, i, k)] * w[j * n_in + k];
                *z++ = sum;
            }
}

/* g [n_out][n_in] += the sum over rows, in their order */
static void plain_gradient(const struct test_case *c, const float *x, const float *d, float *g) {
    const struct pl_rows *r = &c->rows;
    size_t n_in = r->n_runs * r->run;
    for (size_t j = 0; j < c->n_out; j++)
        for (size_t k = 0; k < n_in; k++) {
            float sum = 0;
            for (size_t i = 0; i < r->n_lines * r->width; i++)
                sum += x[test_at(r, i / r->width, i % r->width, k)] * d[i * c->n_out + j];
            g[j * n_in + k] += sum;
        }
}

static void test_same(const float *a, const float *b, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s: %s[%zu] is %a, its twin %a", pl_isa_name(pl_isa), what, i, (double)a[i],
                     (double)b[i]);
}

static void test_one(const struct test_case *c) {
    const struct pl_rows *r = &c->rows;
    size_t n_in = r->n_runs * r->run, n = r->n_lines * r->width;
    size_t last = test_at(r, r->n_lines - 1, r->width - 1, n_in - 1);
    float *x = test_floats(last + 1, 1), *w = test_floats(n_in * c->n_out, 2);
    float *plain_z = test_floats(n * c->n_out, 3), *plain_g = test_floats(n_in * c->n_out, 4);
    size_t width = pl_narrow_width(c->n_out);
    float *packed = test_floats(n_in * width, 5), *z = test_floats(n * width, 6);
    float *flat = test_floats(n * c->n_out, 7), *g = test_floats(n_in * c->n_out, 8);

    plain_product(c, x, w, plain_z);
    pl_narrow_pack(w, n_in, c->n_out, packed);
    pl_narrow_product(r, x, packed, c->n_out, z);
    for (size_t i = 0; i < n; i++) memcpy(flat + i * c->n_out, z + i * width, c->n_out * sizeof *z);
    test_same(flat, plain_z, n * c->n_out, "product");

    memcpy(plain_g, w, n_in * c->n_out * sizeof *w);
    plain_gradient(c, x, plain_z, plain_g);
    pl_narrow_gradient(r, x, z, r->width * width, c->n_out, packed);
    pl_narrow_unpack(packed, n_in, c->n_out, g);
    test_same(g, plain_g, n_in * c->n_out, "gradient");
}

/* Two pictures at a time give what one after the other gives. */
static void test_pair(const struct pl_rows *r) {
    const struct test_case c = {*r, 8};
    size_t n_in = r->n_runs * r->run, n = r->n_lines * r->width;
    size_t size = test_at(r, r->n_lines - 1, r->width - 1, n_in - 1) + 1;
    float *x = test_floats(2 * size, 1), *xs = test_floats(2 * size, 2);
    float *w = test_floats(n_in * 8, 3), *packed = test_floats(n_in * 8, 4);
    float *plain_z = test_floats(2 * n * 8, 5), *z = test_floats(2 * n * 8, 6);
    float *zs = test_floats(2 * n * 8, 7), *doubled = test_floats(2 * n_in * 8, 8);
    float *g = test_floats(n_in * 8, 9);

    for (size_t i = 0; i < 2; i++) plain_product(&c, x + i * size, w, plain_z + i * n * 8);
    pl_narrow_pack(w, n_in, 8, packed);
    pl_narrow_interleave(packed, packed, n_in * 8, doubled);
    pl_narrow_interleave(x, x + size, size, xs);
    pl_narrow_product_pair(r, xs, doubled, z, z + n * 8);
    test_same(z, plain_z, 2 * n * 8, "product of a pair");

    for (size_t i = 0; i < 2; i++) plain_gradient(&c, x + i * size, plain_z + i * n * 8, w);
    pl_narrow_interleave(z, z + n * 8, n * 8, zs);
    pl_narrow_gradient_pair(r, xs, zs, r->width * 8, packed);
    pl_narrow_unpack(packed, n_in, 8, g);
    test_same(g, w, n_in * 8, "gradient of a pair");
}

/* The three products of a dense layer, in the orders that narrow.h gives. */
static void plain_dense(const float *x, const float *w, const float *d, size_t n, size_t n_in,
                        size_t n_out, float *z, float *g, float *dx) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_out; j++) {
            float lane[16] = {0}, half[4];
            for (size_t k = 0; k < (n_in + 15) / 16 * 16; k++)
                lane[k % 16] += k < n_in ? x[i * n_in + k] * w[j * n_in + k] : 0;
            for (size_t l = 0; l < 4; l++)
                half[l] = (lane[l] + lane[l + 8]) + (lane[l + 4] + lane[l + 12]);
            z[i * n_out + j] = (half[0] + half[2]) + (half[1] + half[3]);
        }
    for (size_t j = 0; j < n_out; j++)
        for (size_t k = 0; k < n_in; k++) {
            float sum = 0;
            for (size_t i = 0; i < n; i++) sum += d[i * n_out + j] * x[i * n_in + k];
            g[j * n_in + k] = sum;
        }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_in; k++) {
            float sum = 0;
            for (size_t j = 0; j < n_out; j++) sum += d[i * n_out + j] * w[j * n_in + k];
            dx[i * n_in + k] = sum;
        }
}

static void test_dense(size_t n, size_t n_in, size_t n_out) {
    float *x = test_floats(n * n_in, 1), *w = test_floats(n_out * n_in, 2);
    float *d = test_floats(n * n_out, 3), *plain_z = test_floats(n * n_out, 4);
    float *plain_g = test_floats(n_out * n_in, 5), *plain_dx = test_floats(n * n_in, 6);
    float *z = test_floats(n * n_out, 7), *g = test_floats(n_out * n_in, 8);
    float *dx = test_floats(n * n_in, 9);
    plain_dense(x, w, d, n, n_in, n_out, plain_z, plain_g, plain_dx);
    pl_narrow_forward(x, w, n, n_in, n_out, z);
    pl_narrow_weights(d, x, n, n_in, n_out, g);
    pl_narrow_inputs(d, w, n, n_in, n_out, dx);
    test_same(z, plain_z, n * n_out, "dense product");
    test_same(g, plain_g, n_out * n_in, "dense weight gradient");
    test_same(dx, plain_dx, n * n_in, "dense input gradient");
}

/* Calls `test` with every instruction set. */
static void on_every_set(void (*test)(void *), void *arg) {
    enum pl_isa before = pl_isa;
    for (int isa = 0; isa < PL_N_ISAS; isa++) {
        if (!pl_isa_present((enum pl_isa)isa)) continue;
        pl_isa = (enum pl_isa)isa;
        test(arg);
    }
    pl_isa = before;
}

static void test_products(void *arg) {
    for (size_t n_out = 1; n_out <= 33; n_out += n_out < 18 ? 1 : 5) {
        const struct test_case rows = {
            {.n_runs = 1, .run = 37, .n_lines = 1, .width = 29, .step = 37}, n_out};
        const struct test_case windows = {
            {.n_runs = 3, .run = 9, .apart = 40, .n_lines = 5, .width = 11, .next = 40, .step = 3},
            n_out};
        const struct test_case one = {{.n_runs = 1, .run = 1, .n_lines = 1, .width = 1, .step = 1},
                                      n_out};
        test_one(&rows);
        test_one(&windows);
        test_one(&one);
    }
}

static void test_pairs(void *arg) {
    if (!pl_narrow_pairs(8)) return;
    for (size_t width = 1; width <= 23; width++) {
        const struct pl_rows rows = {.n_runs = 3,
                                     .run = width + 4,
                                     .apart = 110,
                                     .n_lines = 4,
                                     .width = width,
                                     .next = 110,
                                     .step = 3};
        test_pair(&rows);
    }
}

TEST(pairs_equal_single_pictures) {
    on_every_set(test_pairs, NULL);
}

static void test_dense_layers(void *arg) {
    static const size_t rows[] = {1, 2, 15, 16, 17, 32, 33, 70};
    static const size_t inputs[] = {1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 48, 100, 384, 400, 801};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++)
            for (size_t j = 1; j <= PL_NARROW_MAX; j += 3) test_dense(rows[i], inputs[k], j);
    for (size_t j = 1; j <= PL_NARROW_MAX; j++) test_dense(35, 52, j);
}

TEST(dense_layers_equal_plain_loops) {
    on_every_set(test_dense_layers, NULL);
}

TEST(products_equal_plain_loops) {
    on_every_set(test_products, NULL);
}

struct test_gradient {
    const char *model;
    float *first; /* of the first set; NULL before it */
};

static void test_gradients(void *arg) {
    struct test_gradient *t = arg;
    uint32_t index[25];
    uint16_t label[25];
    double loss;
    struct pl_data *data = open_data("digits:samples=25,test=0", 1);
    struct pl_model *m = open_model(t->model, data);
    float *x = test_floats(25 * data->dim, 1), *w = test_floats(m->dim, 2);
    float *g = test_floats(m->dim, 3), *scratch = test_floats(m->kind->scratch(m, 25), 4);
    for (uint32_t i = 0; i < 25; i++) index[i] = i;
    pl_data_rows(data, false, index, 25, x, label);
    m->kind->init(m, 1, w);
    struct pl_batch batch = {.n = 25, .x = x, .label = label};
    assert_int_equal(m->kind->gradient(m, w, &batch, g, &loss, scratch, NULL), PL_OK);
    if (t->first) test_same(g, t->first, m->dim, t->model);
    if (!t->first) t->first = g;
}

TEST(gradients_have_the_same_bits_on_every_set) {
    static const char *const models[] = {"softmax", "mlp:hidden=24", "cnn:filters=8,16,dense=64",
                                         "cnn:filters=32,24,dense=12", "cnn:filters=5,kernel=3"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct test_gradient t = {.model = models[i]};
        on_every_set(test_gradients, &t);
    }
}
