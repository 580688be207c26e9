/* Inside src/model: one stage of the cnn - convolution with same padding, bias, ReLU and 2x2 max
 * pooling - on pictures stored as [height][width][channel] with a zero border. */
#ifndef PL_MODEL_CONV_H
#define PL_MODEL_CONV_H

#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"

/* Parameters of a stage: W [n_out][kernel][kernel][n_in], then b [n_out].
 * Input: in [n][h + 2 pad][w + 2 pad][n_in], the border zero, pad = kernel / 2.
 * Output: out [n][ph + 2 out_pad][pw + 2 out_pad][n_out], where ph = h / 2 and pw = w / 2. The last
 * line or column of an odd number is neither computed nor pooled. */
struct pl_conv {
    uint32_t h, w, n_in, n_out, kernel;
    uint32_t out_pad; /* border that the next stage needs */
};

size_t pl_conv_dim(const struct pl_conv *c);
size_t pl_conv_in_size(const struct pl_conv *c);    /* floats of one padded input picture */
size_t pl_conv_out_size(const struct pl_conv *c);   /* floats of one padded output picture */
size_t pl_conv_which_size(const struct pl_conv *c); /* bytes of `which` for one picture */
size_t pl_conv_scratch(const struct pl_conv *c);    /* floats, for any number of pictures */

/* Writes the values and the zero border of out. which [n][ph][pw][n_out] records the position of
 * each maximum, 0..3, for the backward pass. Returns 0 or PL_ECANCELLED. */
int pl_conv_forward(const struct pl_conv *c, const float *w, const float *in, uint32_t n,
                    float *out, uint8_t *which, float *scratch, const struct pl_cancel *cancel);

/* d_out, shaped like out, is the gradient with respect to out (border ignored). Writes g [dim] and,
 * unless d_in is NULL, d_in, shaped like in (border unspecified). */
int pl_conv_backward(const struct pl_conv *c, const float *w, const float *in, const float *out,
                     const uint8_t *which, const float *d_out, uint32_t n, float *g, float *d_in,
                     float *scratch, const struct pl_cancel *cancel);

#endif
