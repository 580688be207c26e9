/* Inside src/model: one stage of the cnn - convolution with same padding, bias, ReLU and 2x2 max
 * pooling - on pictures kept as [height][width][channel] with a zero border. */
#ifndef PL_MODEL_CONV_H
#define PL_MODEL_CONV_H

#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"

/* Parameters of a stage: W [n_out][kernel][kernel][n_in], then b [n_out].
 * Input: in [n][h + 2 pad][w + 2 pad][n_in], the border zero, pad = kernel / 2.
 * Output: out [n][ph + 2 out_pad][pw + 2 out_pad][n_out], where ph = h / 2 and pw = w / 2: a last
 * odd line or column takes no part in the pooling and is not computed. */
struct pl_conv {
    uint32_t h, w, n_in, n_out, kernel;
    uint32_t out_pad; /* border that the next stage wants */
};

size_t pl_conv_dim(const struct pl_conv *c);
size_t pl_conv_in_size(const struct pl_conv *c);    /* floats of one padded input picture */
size_t pl_conv_out_size(const struct pl_conv *c);   /* floats of one padded output picture */
size_t pl_conv_which_size(const struct pl_conv *c); /* bytes of `which` for one picture */
size_t pl_conv_scratch(const struct pl_conv *c);    /* floats, whatever the number of pictures */

/* out gets its values and its zero border; which [n][ph][pw][n_out] records the position of each
 * maximum, 0..3, for the way back (NULL where there is none). 0 or PL_ECANCELLED. */
int pl_conv_forward(const struct pl_conv *c, const float *w, const float *in, uint32_t n,
                    float *out, uint8_t *which, float *scratch, const struct pl_cancel *cancel);

/* d_out, shaped as out, is the gradient with respect to out (border ignored). g [dim] is
 * written. d_in, shaped as in, is written unless NULL (border: unspecified). */
int pl_conv_backward(const struct pl_conv *c, const float *w, const float *in, const float *out,
                     const uint8_t *which, const float *d_out, uint32_t n, float *g, float *d_in,
                     float *scratch, const struct pl_cancel *cancel);

#endif
