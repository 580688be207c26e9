/* How close a gradient step comes to the machine's matrix-product rate.
 *
 * The peer is SGEMM at 512^3 on one thread, measured in the same run. A step's
 * flops are those of its products: forward, weight gradient, and input gradient for all layers but
 * the first; bias, ReLU, pooling and window gathering count for nothing and so show as loss. Each
 * step is timed in the same few moments as a product of the peer, and medians are compared, so
 * that a neighbour on the machine slows both. */
#include <cblas.h>

#include "bench.h"
#include "model/model.h"

#define BENCH_SIDE 512
#define BENCH_BATCH 128
#define BENCH_REPEATS 41

struct bench_case {
    const char *name, *model, *data;
    const char *key; /* of its row in the summary; NULL: none */
    double flops;    /* per sample, forward; see bench_cases */
    double first;    /* the part of it that is the first layer's */
};

/* Seconds of one 512^3 product. */
static double bench_sgemm(const float *a, const float *b, float *c) {
    double start = bench_now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, BENCH_SIDE, BENCH_SIDE, BENCH_SIDE, 1, a,
                BENCH_SIDE, b, BENCH_SIDE, 0, c, BENCH_SIDE);
    return bench_now() - start;
}

static int bench_run(const struct bench_case *k, const float *a, const float *b, float *c) {
    struct pl_why why;
    struct pl_data *data;
    struct pl_model *m;
    if (pl_data_open(k->data, 1, &data, &why) || pl_model_open(k->model, data, &m, &why)) {
        fprintf(stderr, "bench_model: %s\n", why.text);
        return 1;
    }
    uint32_t index[BENCH_BATCH];
    uint16_t label[BENCH_BATCH];
    float *x = bench_floats((size_t)BENCH_BATCH * data->dim);
    float *w = bench_floats(m->dim), *g = bench_floats(m->dim);
    float *scratch = bench_floats(m->kind->scratch(m, BENCH_BATCH));
    for (uint32_t i = 0; i < BENCH_BATCH; i++) index[i] = i;
    pl_data_rows(data, false, index, BENCH_BATCH, x, label);
    m->kind->init(m, 1, w);
    struct pl_batch batch = {.n = BENCH_BATCH, .x = x, .label = label};

    double step[BENCH_REPEATS], peer[BENCH_REPEATS], loss;
    for (int i = -3; i < BENCH_REPEATS; i++) {
        double t_peer = bench_sgemm(a, b, c), start = bench_now();
        m->kind->gradient(m, w, &batch, g, &loss, scratch, NULL);
        double t_step = bench_now() - start;
        if (i < 0) continue;
        step[i] = t_step;
        peer[i] = t_peer;
    }
    double t_step = bench_median(step, BENCH_REPEATS), t_peer = bench_median(peer, BENCH_REPEATS);
    double flops = BENCH_BATCH * (3 * k->flops - k->first);
    double rate = flops / t_step * 1e-9;
    double limit = 2.0 * BENCH_SIDE * BENCH_SIDE * BENCH_SIDE / t_peer * 1e-9;
    printf("%-24s %8.3f %10.1f %10.1f %8.2f\n", k->name, t_step * 1e3, rate, limit, rate / limit);
    if (k->key) bench_row(k->key, rate, "GFLOP/s", "SGEMM", limit, rate / limit);
    free(x);
    free(w);
    free(g);
    free(scratch);
    pl_model_close(m);
    pl_data_free(data);
    return 0;
}

int main(void) {
    /* digits at 28 pixels stand in for MNIST: flops do not care */
    const double conv1 = 2.0 * 784 * 25 * 32, conv2 = 2.0 * 196 * 800 * 64;
    const struct bench_case cases[] = {
        {"softmax 784-10", "softmax", "digits:side=28,samples=128,test=0", "model.softmax",
         2.0 * 784 * 10, 2.0 * 784 * 10},
        {"mlp 784-256-10", "mlp:hidden=256", "digits:side=28,samples=128,test=0", "model.mlp",
         2.0 * (784 * 256 + 256 * 10), 2.0 * 784 * 256},
        {"mlp 784-512-256-10", "mlp:hidden=512,256", "digits:side=28,samples=128,test=0", NULL,
         2.0 * (784 * 512 + 512 * 256 + 256 * 10), 2.0 * 784 * 512},
        {"cnn 28x28 32,64 512", "cnn", "digits:side=28,samples=128,test=0", "model.cnn.large",
         conv1 + conv2 + 2.0 * (3136 * 512 + 512 * 10), conv1},
        {"cnn 16x16 8,16 64", "cnn:filters=8,16,dense=64", "digits:samples=128,test=0",
         "model.cnn.small", 2.0 * (256 * 25 * 8 + 64 * 200 * 16 + 256 * 64 + 64 * 10),
         2.0 * 256 * 25 * 8},
    };
    size_t square = (size_t)BENCH_SIDE * BENCH_SIDE;
    float *a = bench_floats(square), *b = bench_floats(square), *c = bench_floats(square);
    int rc = 0;
    bench_begin();
    bench_about("OpenBLAS", openblas_get_config());
    openblas_set_num_threads(1);
    printf("one thread, batch of %d, medians of %d\n", BENCH_BATCH, BENCH_REPEATS);
    printf("%-24s %8s %10s %10s %8s\n", "gradient step", "ms", "GFLOP/s", "SGEMM", "ratio");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) rc |= bench_run(&cases[i], a, b, c);
    free(a);
    free(b);
    free(c);
    return rc;
}
