/* Inside src/model: a stack of dense layers with ReLU between them and softmax cross-entropy, or a
 * squared error, on top. softmax, linear and mlp consist of it, and cnn ends in it. */
#ifndef PL_MODEL_DENSE_H
#define PL_MODEL_DENSE_H

#include "base/cancel.h"
#include "base/opt.h"

#define PL_MODEL_DIM_MAX ((uint64_t)1 << 31) /* parameters */
#define PL_MODEL_WIDTH_MAX 1000000           /* outputs of one layer */

/* Layer l (0-based) maps width[l] to width[l + 1]. Its parameters are W [out][in], then b [out]. */
struct pl_dense {
    int n_layers;
    uint32_t width[PL_LIST_MAX + 2];
};

int pl_dense_plan(struct pl_dense *d, uint64_t n_in, const struct pl_list_of *hidden,
                  uint32_t n_out, struct pl_why *why);

size_t pl_dense_dim(const struct pl_dense *d);
size_t pl_dense_scratch(const struct pl_dense *d, uint32_t n); /* floats */

/* Draws n weights from N(0, 2 / n_in), sequence `layer` of PL_STREAM_INIT (He et al. 2015). */
void pl_dense_he(float *w, size_t n, size_t n_in, uint64_t seed, uint32_t layer);

/* He-normal weights and zero biases; `layer` is the number of the first layer. */
void pl_dense_init(const struct pl_dense *d, uint64_t seed, uint32_t layer, float *w);

/* Describes the i-th named part: "layer1.weight" [out, in], "layer1.bias" [out], "layer2.weight", …
 * The first layer begins at w[offset]. Returns false if there is no i-th part. */
struct pl_model_tensor;
bool pl_dense_tensor(const struct pl_dense *d, size_t offset, int i, struct pl_model_tensor *out);

/* x [n][width[0]], label [n], w and g [dim]. If target [n] is not NULL, the loss is the squared
 * error of the only output instead of the cross-entropy. If dx [n][width[0]] is not NULL it
 * receives the gradient with respect to x. *loss is the mean loss. Returns 0 or PL_ECANCELLED. */
int pl_dense_gradient(const struct pl_dense *d, const float *w, const float *x,
                      const uint16_t *label, const float *target, uint32_t n, float *g, float *dx,
                      double *loss, float *scratch, const struct pl_cancel *cancel);

/* out [n][width of the last layer]: probabilities of classes; of one output, the output itself. */
void pl_dense_predict(const struct pl_dense *d, const float *w, const float *x, uint32_t n,
                      float *scratch, float *out);

/* Adds the summed loss and the number of rows whose largest output is their label, or nothing if it
 * is cancelled. */
void pl_dense_score(const struct pl_dense *d, const float *w, const float *x, const uint16_t *label,
                    const float *target, uint32_t n, float *scratch, double *loss,
                    uint32_t *n_right, const struct pl_cancel *cancel);

#endif
