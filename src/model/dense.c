/* Dense layers on CBLAS.
 *
 * Everything that grows with the layer is one SGEMM: forward A W^T, weight gradient D^T A, input
 * gradient D W. (Those of a layer with few outputs are narrow.h's.) The other passes
 * touch [n][width] once each: bias and ReLU together after the forward product, ReLU mask and bias
 * gradient together after the backward one. The input gradient of the first layer is computed only
 * on request. ReLU is max(z, 0) with derivative 0 at 0, so the activation itself is the mask and
 * pre-activations are not stored. */
#include "model/dense.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/isa.h"
#include "base/rng.h"
#include "model/loss.h"
#include "model/model.h"
#include "model/narrow.h"

int pl_dense_plan(struct pl_dense *d, uint64_t n_in, const struct pl_list_of *hidden,
                  uint32_t n_out, struct pl_why *why) {
    uint64_t dim = 0, in = n_in;
    d->n_layers = hidden->n + 1;
    d->width[0] = (uint32_t)n_in;
    for (int l = 0; l < d->n_layers; l++) {
        double width = l < hidden->n ? hidden->at[l] : n_out;
        if (width != floor(width))
            return pl_fail(why, PL_EUSAGE, "a layer cannot have %.10g units; give a whole number",
                           width);
        d->width[l + 1] = (uint32_t)width;
        dim += (in + 1) * d->width[l + 1];
        in = d->width[l + 1];
        if (dim > PL_MODEL_DIM_MAX)
            return pl_fail(why, PL_EUSAGE,
                           "the model would have more than %llu parameters; use smaller layers",
                           (unsigned long long)PL_MODEL_DIM_MAX);
    }
    return PL_OK;
}

size_t pl_dense_dim(const struct pl_dense *d) {
    size_t dim = 0;
    for (int l = 0; l < d->n_layers; l++) dim += ((size_t)d->width[l] + 1) * d->width[l + 1];
    return dim;
}

/* The width of the widest hidden layer. */
static size_t dense_hidden_max(const struct pl_dense *d) {
    size_t max = 0;
    for (int l = 1; l < d->n_layers; l++) max = d->width[l] > max ? d->width[l] : max;
    return max;
}

/* Activations and two alternating deltas. */
size_t pl_dense_scratch(const struct pl_dense *d, uint32_t n) {
    size_t floats = 2 * dense_hidden_max(d);
    for (int l = 1; l <= d->n_layers; l++) floats += d->width[l];
    return floats * n;
}

void pl_dense_he(float *w, size_t n, size_t n_in, uint64_t seed, uint32_t layer) {
    struct pl_rng rng;
    double scale = sqrt(2.0 / (double)n_in);
    pl_rng_init(&rng, seed, PL_STREAM_INIT, layer, 0);
    for (size_t i = 0; i < n; i++) w[i] = (float)(scale * pl_rng_normal(&rng));
}

void pl_dense_init(const struct pl_dense *d, uint64_t seed, uint32_t layer, float *w) {
    for (int l = 0; l < d->n_layers; l++) {
        size_t in = d->width[l], out = d->width[l + 1];
        pl_dense_he(w, in * out, in, seed, layer + (uint32_t)l);
        memset(w + in * out, 0, out * sizeof *w);
        w += (in + 1) * out;
    }
}

bool pl_dense_tensor(const struct pl_dense *d, size_t offset, int i, struct pl_model_tensor *out) {
    int layer = i / 2;
    bool bias = i % 2 == 1;
    if (i < 0 || layer >= d->n_layers) return false;
    for (int l = 0; l < layer; l++) offset += ((size_t)d->width[l] + 1) * d->width[l + 1];
    uint64_t in = d->width[layer], n_out = d->width[layer + 1];
    *out = (struct pl_model_tensor){.offset = bias ? offset + in * n_out : offset,
                                    .n_dims = bias ? 1 : 2,
                                    .shape = {n_out, bias ? 0 : in}};
    snprintf(out->name, sizeof out->name, "layer%d.%s", layer + 1, bias ? "bias" : "weight");
    return true;
}

/* z [n][out] += b [out], and ReLU if it is a hidden layer */
static PL_VARIANTS(void, dense_bias,
                   (float *restrict z, const float *restrict b, size_t n, size_t out, bool relu),
                   (z, b, n, out, relu)) {
    for (size_t i = 0; i < n; i++, z += out) {
        if (relu)
            for (size_t j = 0; j < out; j++) z[j] = z[j] + b[j] > 0 ? z[j] + b[j] : 0;
        else
            for (size_t j = 0; j < out; j++) z[j] += b[j];
    }
}

/* Zeroes delta [n][out] where act [n][out] is not positive (act may be NULL: no mask) and writes
 * its sums over n to db [out]. */
static PL_VARIANTS(void, dense_mask,
                   (float *restrict delta, const float *restrict act, size_t n, size_t out,
                    float *restrict db),
                   (delta, act, n, out, db)) {
    memset(db, 0, out * sizeof *db);
    for (size_t i = 0; i < n; i++, delta += out) {
        if (act) {
            for (size_t j = 0; j < out; j++) delta[j] = act[j] > 0 ? delta[j] : 0;
            act += out;
        }
        for (size_t j = 0; j < out; j++) db[j] += delta[j];
    }
}

/* act [n][out] = x [n][in] w^T */
static void dense_product(const float *x, const float *w, size_t n, size_t in, size_t out,
                          float *act) {
    if (out <= PL_NARROW_MAX)
        pl_narrow_forward(x, w, n, in, out, act);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)out, (int)in, 1, x,
                    (int)in, w, (int)in, 0, act, (int)out);
}

/* g [out][in] = delta^T x */
static void dense_weights(const float *delta, const float *x, size_t n, size_t in, size_t out,
                          float *g) {
    if (out <= PL_NARROW_MAX)
        pl_narrow_weights(delta, x, n, in, out, g);
    else
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)n, 1, delta,
                    (int)out, x, (int)in, 0, g, (int)in);
}

/* dx [n][in] = delta w */
static void dense_inputs(const float *delta, const float *w, size_t n, size_t in, size_t out,
                         float *dx) {
    if (out <= PL_NARROW_MAX)
        pl_narrow_inputs(delta, w, n, in, out, dx);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)in, (int)out, 1, delta,
                    (int)out, w, (int)in, 0, dx, (int)in);
}

/* Stores the activations of layer l in act [n][width[l + 1]], one layer after the other. Returns
 * the last ones, the logits, or NULL when cancelled. */
static float *dense_forward(const struct pl_dense *d, const float *w, const float *x, uint32_t n,
                            float *act, const struct pl_cancel *cancel) {
    for (int l = 0; l < d->n_layers; l++) {
        size_t in = d->width[l], out = d->width[l + 1];
        if (pl_cancelled(cancel)) return NULL;
        dense_product(x, w, n, in, out, act);
        dense_bias(act, w + in * out, n, out, l + 1 < d->n_layers);
        x = act;
        act += n * out;
        w += (in + 1) * out;
    }
    return act - (size_t)n * d->width[d->n_layers];
}

int pl_dense_gradient(const struct pl_dense *d, const float *w, const float *x,
                      const uint16_t *label, const float *target, uint32_t n, float *g, float *dx,
                      double *loss, float *scratch, const struct pl_cancel *cancel) {
    int top = d->n_layers - 1;
    size_t k = d->width[top + 1], at = pl_dense_dim(d);
    float *logit = dense_forward(d, w, x, n, scratch, cancel); /* [n][k] */
    if (!logit) return PL_ECANCELLED;

    float *act = logit, *delta = logit;                                       /* of layer l */
    float *spare[2] = {logit + n * k, logit + n * (k + dense_hidden_max(d))}; /* next deltas */
    double sum = pl_loss_gradient(logit, n, k, label, target);
    for (int l = top; l >= 0; l--) {
        size_t in = d->width[l], out = d->width[l + 1];
        if (pl_cancelled(cancel)) return PL_ECANCELLED;
        at -= (in + 1) * out;
        dense_mask(delta, l < top ? act : NULL, n, out, g + at + in * out);
        const float *below = l > 0 ? act - n * in : x; /* [n][in] */
        dense_weights(delta, below, n, in, out, g + at);
        float *next = l > 0 ? spare[l % 2] : dx; /* [n][in] */
        if (!next) break;
        dense_inputs(delta, w + at, n, in, out, next);
        delta = next;
        if (l > 0) act -= n * in;
    }
    *loss = sum * (1.0 / n);
    return PL_OK;
}

void pl_dense_score(const struct pl_dense *d, const float *w, const float *x, const uint16_t *label,
                    const float *target, uint32_t n, float *scratch, double *loss,
                    uint32_t *n_right, const struct pl_cancel *cancel) {
    size_t k = d->width[d->n_layers];
    float *logit = dense_forward(d, w, x, n, scratch, cancel); /* [n][k] */
    if (!logit) return;
    for (size_t i = 0; i < n; i++) {
        float *z = logit + i * k;
        if (target) {
            double e = (double)z[0] - target[i];
            *loss += e * e;
            continue;
        }
        size_t best = 0;
        for (size_t j = 1; j < k; j++) best = z[j] > z[best] ? j : best;
        /* a model that has diverged gets nothing right */
        *n_right += best == label[i] && !isnan(z[best]);
    }
    if (!target) pl_loss_entropy(logit, n, k, label, loss);
}

void pl_dense_predict(const struct pl_dense *d, const float *w, const float *x, uint32_t n,
                      float *scratch, float *out) {
    size_t k = d->width[d->n_layers];
    const float *z = dense_forward(d, w, x, n, scratch, NULL); /* [n][k] */
    memcpy(out, z, n * k * sizeof *out);
    for (size_t i = 0; k > 1 && i < n; i++, z += k, out += k) {
        float most = z[0];
        double sum = 0;
        for (size_t j = 1; j < k; j++) most = z[j] > most ? z[j] : most;
        for (size_t j = 0; j < k; j++) sum += exp((double)(z[j] - most));
        for (size_t j = 0; j < k; j++) out[j] = (float)(exp((double)(z[j] - most)) / sum);
    }
}
