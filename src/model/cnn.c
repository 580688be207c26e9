/* A convolutional network for pictures: stages of convolution, ReLU and 2x2 max pooling, then
 * dense layers, after LeNet (LeCun, Bottou, Bengio, Haffner, Proc. IEEE 1998) in the form that
 * the asynchronous-SGD literature trains on MNIST and CIFAR.
 *
 * Scratch, front to back: the padded input of each stage and the pooled output of the last; the
 * gradients of all of these but the first; work space shared by stages and dense layers; one byte
 * per pooled value of every stage. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/conv.h"
#include "model/dense.h"
#include "model/model.h"

#define CNN_STAGES_MAX 8

struct cnn_conf {
    struct pl_list_of filters, dense;
    int64_t kernel;
};

struct cnn {
    struct pl_model base;
    int n_stages;
    uint32_t channels, h, w; /* of the data */
    struct pl_conv stage[CNN_STAGES_MAX];
    struct pl_dense dense;
};

static int cnn_plan(const struct cnn_conf *c, const struct pl_data *data, struct cnn *m,
                    struct pl_why *why) {
    uint32_t channels = data->shape[0], h = data->shape[1], w = data->shape[2];
    uint64_t dim = 0;
    m->channels = channels;
    m->h = h;
    m->w = w;
    m->n_stages = c->filters.n;
    if (h < 2 || w < 2)
        return pl_fail(why, PL_EUSAGE,
                       "model cnn needs pictures, but this data set has rows of %lu "
                       "features; use mlp",
                       (unsigned long)data->dim);
    if (c->filters.n < 1 || c->filters.n > CNN_STAGES_MAX)
        return pl_fail(why, PL_EUSAGE, "filters has %d entries; cnn takes 1 to %d", c->filters.n,
                       CNN_STAGES_MAX);
    if (c->kernel % 2 == 0)
        return pl_fail(why, PL_EUSAGE, "kernel=%d is even; give an odd number", (int)c->kernel);
    for (int s = 0; s < m->n_stages; s++) {
        double filters = c->filters.at[s];
        if (filters != floor(filters))
            return pl_fail(why, PL_EUSAGE, "filters=%.10g is not a whole number", filters);
        if (h < 2 || w < 2)
            return pl_fail(why, PL_EUSAGE,
                           "pictures of %lux%lu pixels cannot be halved %d times; give fewer "
                           "filters",
                           (unsigned long)m->h, (unsigned long)m->w, m->n_stages);
        m->stage[s] =
            (struct pl_conv){.h = h,
                             .w = w,
                             .n_in = channels,
                             .n_out = (uint32_t)filters,
                             .kernel = (uint32_t)c->kernel,
                             .out_pad = s + 1 < m->n_stages ? (uint32_t)c->kernel / 2 : 0};
        dim += pl_conv_dim(&m->stage[s]);
        channels = (uint32_t)filters;
        h /= 2;
        w /= 2;
    }
    int rc = pl_dense_plan(&m->dense, (uint64_t)h * w * channels, &c->dense,
                           data->has_targets ? 1 : data->n_classes, why);
    if (rc) return rc;
    m->base.dim = (size_t)dim + pl_dense_dim(&m->dense);
    return PL_OK;
}

static int cnn_open(const void *conf, const struct pl_data *data, struct pl_model **out,
                    struct pl_why *why) {
    struct cnn *m = calloc(1, sizeof *m);
    if (!m) return pl_fail(why, PL_ENOMEM, "out of memory");
    int rc = cnn_plan(conf, data, m, why);
    if (rc) {
        free(m);
        return rc;
    }
    *out = &m->base;
    return PL_OK;
}

static void cnn_init(const struct pl_model *base, uint64_t seed, float *w) {
    const struct cnn *m = (const struct cnn *)base;
    for (int s = 0; s < m->n_stages; s++) {
        const struct pl_conv *c = &m->stage[s];
        size_t n = pl_conv_dim(c), n_weights = n - c->n_out;
        pl_dense_he(w, n_weights, n_weights / c->n_out, seed, (uint32_t)s);
        memset(w + n_weights, 0, c->n_out * sizeof *w);
        w += n;
    }
    pl_dense_init(&m->dense, seed, (uint32_t)m->n_stages, w);
}

/* Addresses in scratch for a batch of n. */
struct cnn_layout {
    float *in[CNN_STAGES_MAX + 1]; /* input of stage s; the last is the input of the dense layers */
    float *d_in[CNN_STAGES_MAX + 1]; /* gradients of in[1..] */
    float *work;
    uint8_t *which[CNN_STAGES_MAX];
    size_t floats; /* total size */
};

/* With scratch NULL only `floats` is valid. */
static struct cnn_layout cnn_lay_out(const struct cnn *m, size_t n, float *scratch) {
    struct cnn_layout l = {.floats = 0};
    size_t at[2 * CNN_STAGES_MAX + 2], bytes = 0, work = pl_dense_scratch(&m->dense, (uint32_t)n);
    for (int s = 0; s <= m->n_stages; s++) {
        size_t size = n * (s < m->n_stages ? pl_conv_in_size(&m->stage[s])
                                           : pl_conv_out_size(&m->stage[s - 1]));
        at[2 * s] = l.floats;
        at[2 * s + 1] = l.floats + size;
        l.floats += s > 0 ? 2 * size : size;
    }
    size_t work_at = l.floats;
    for (int s = 0; s < m->n_stages; s++) {
        size_t need = pl_conv_scratch(&m->stage[s]);
        if (need > work) work = need;
    }
    l.floats += work;
    if (scratch) {
        for (int s = 0; s <= m->n_stages; s++) {
            l.in[s] = scratch + at[2 * s];
            l.d_in[s] = s > 0 ? scratch + at[2 * s + 1] : NULL;
        }
        l.work = scratch + work_at;
    }
    for (int s = 0; s < m->n_stages; s++) {
        if (scratch) l.which[s] = (uint8_t *)(scratch + l.floats) + bytes;
        bytes += n * pl_conv_which_size(&m->stage[s]);
    }
    l.floats += (bytes + sizeof(float) - 1) / sizeof(float);
    return l;
}

static size_t cnn_scratch(const struct pl_model *base, uint32_t n) {
    return cnn_lay_out((const struct cnn *)base, n, NULL).floats;
}

/* x [n][channels][h][w] to in [n][h + 2 pad][w + 2 pad][channels] */
static void cnn_enter(const struct cnn *m, const float *restrict x, uint32_t n,
                      float *restrict in) {
    size_t pad = m->stage[0].kernel / 2, channels = m->channels, h = m->h, w = m->w;
    memset(in, 0, n * pl_conv_in_size(&m->stage[0]) * sizeof *in);
    for (uint32_t i = 0; i < n; i++, in += pl_conv_in_size(&m->stage[0]))
        for (size_t c = 0; c < channels; c++)
            for (size_t y = 0; y < h; y++, x += w) {
                float *to = in + ((y + pad) * (w + 2 * pad) + pad) * channels + c;
                for (size_t j = 0; j < w; j++) to[j * channels] = x[j];
            }
}

/* Runs the stages. Returns the parameters of the dense layers, or NULL when cancelled. */
static const float *cnn_forward(const struct cnn *m, const float *w, const struct pl_batch *batch,
                                const struct cnn_layout *l, const struct pl_cancel *cancel) {
    cnn_enter(m, batch->x, batch->n, l->in[0]);
    for (int s = 0; s < m->n_stages; s++) {
        if (pl_conv_forward(&m->stage[s], w, l->in[s], batch->n, l->in[s + 1], l->which[s], l->work,
                            cancel))
            return NULL;
        w += pl_conv_dim(&m->stage[s]);
    }
    return w;
}

static int cnn_gradient(const struct pl_model *base, const float *w, const struct pl_batch *batch,
                        float *g, double *loss, float *scratch, const struct pl_cancel *cancel) {
    const struct cnn *m = (const struct cnn *)base;
    struct cnn_layout l = cnn_lay_out(m, batch->n, scratch);
    int top = m->n_stages;
    const float *w_at = cnn_forward(m, w, batch, &l, cancel);
    if (!w_at) return PL_ECANCELLED;
    float *g_at = g + (w_at - w);
    int rc = pl_dense_gradient(&m->dense, w_at, l.in[top], batch->label, batch->target, batch->n,
                               g_at, l.d_in[top], loss, l.work, cancel);
    for (int s = top - 1; s >= 0 && !rc; s--) {
        w_at -= pl_conv_dim(&m->stage[s]);
        g_at -= pl_conv_dim(&m->stage[s]);
        rc = pl_conv_backward(&m->stage[s], w_at, l.in[s], l.in[s + 1], l.which[s], l.d_in[s + 1],
                              batch->n, g_at, l.d_in[s], l.work, cancel);
    }
    return rc;
}

static void cnn_score(const struct pl_model *base, const float *w, const struct pl_batch *batch,
                      float *scratch, double *loss, uint32_t *n_right,
                      const struct pl_cancel *cancel) {
    const struct cnn *m = (const struct cnn *)base;
    struct cnn_layout l = cnn_lay_out(m, batch->n, scratch);
    const float *w_dense = cnn_forward(m, w, batch, &l, cancel);
    if (!w_dense) return;
    pl_dense_score(&m->dense, w_dense, l.in[m->n_stages], batch->label, batch->target, batch->n,
                   l.work, loss, n_right, cancel);
}

static void cnn_predict(const struct pl_model *base, const float *w, const struct pl_batch *batch,
                        float *scratch, float *out) {
    const struct cnn *m = (const struct cnn *)base;
    struct cnn_layout l = cnn_lay_out(m, batch->n, scratch);
    const float *w_dense = cnn_forward(m, w, batch, &l, NULL);
    pl_dense_predict(&m->dense, w_dense, l.in[m->n_stages], batch->n, l.work, out);
}

/* "conv1.weight" [out, kernel, kernel, in], "conv1.bias" [out], …, then the dense layers */
static bool cnn_tensor(const struct pl_model *base, int i, struct pl_model_tensor *out) {
    const struct cnn *m = (const struct cnn *)base;
    int stage = i / 2, n_before = stage < m->n_stages ? stage : m->n_stages;
    size_t offset = 0;
    if (i < 0) return false;
    for (int s = 0; s < n_before; s++) offset += pl_conv_dim(&m->stage[s]);
    if (stage >= m->n_stages) return pl_dense_tensor(&m->dense, offset, i - 2 * m->n_stages, out);
    const struct pl_conv *c = &m->stage[stage];
    if (i % 2 == 0)
        *out = (struct pl_model_tensor){
            .offset = offset, .n_dims = 4, .shape = {c->n_out, c->kernel, c->kernel, c->n_in}};
    else
        *out = (struct pl_model_tensor){
            .offset = offset + pl_conv_dim(c) - c->n_out, .n_dims = 1, .shape = {c->n_out}};
    snprintf(out->name, sizeof out->name, "conv%d.%s", stage + 1, i % 2 ? "bias" : "weight");
    return true;
}

static const struct pl_opt cnn_opts[] = {
    PL_OPT_LIST(struct cnn_conf, filters, "32,64", 1, 4096,
                "channels of each stage; every stage halves width and height"),
    PL_OPT_INT(struct cnn_conf, kernel, "5", 1, 31, "kernel size (odd)"),
    PL_OPT_LIST(struct cnn_conf, dense, "512", 1, PL_MODEL_WIDTH_MAX,
                "units of the dense layers before the output; may be empty"),
    PL_OPT_END,
};

const struct pl_model_kind pl_model_cnn = {
    .id = {"cnn", "convolution and pooling stages, then dense layers; for images",
           "LeCun, Bottou, Bengio, Haffner, Gradient-based learning applied to document "
           "recognition, Proc. IEEE 1998",
           cnn_opts, sizeof(struct cnn_conf), 0},
    .wants_data = true,
    .classifies = true,
    .regresses = true,
    .target_lr = 0.03,
    .open = cnn_open,
    .init = cnn_init,
    .scratch = cnn_scratch,
    .gradient = cnn_gradient,
    .score = cnn_score,
    .predict = cnn_predict,
    .tensor = cnn_tensor,
};
