/* Inside src/model: products with few columns, such as the outputs of a classifier or the filters
 * of a small convolution. A general matrix product first copies its operands into an order that
 * suits reuse, which so few columns do not repay. Here the columns are the lanes of vectors, and
 * rows are read where they are.
 *
 * Every sum has a fixed order, so results do not depend on the processor. */
#ifndef PL_MODEL_NARROW_H
#define PL_MODEL_NARROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of a matrix, or the windows of a convolution. A row has n_runs runs of `run` consecutive
 * elements, the runs `apart` elements apart. Rows are in n_lines lines of `width`; a row begins
 * `step` elements after the one before it in its line, and a line `next` elements after the line
 * before it. */
struct pl_rows {
    size_t n_runs, run, apart;
    size_t n_lines, width, next, step;
};

/* n_out rounded up to whole vectors: the width of results and of packed weights. */
size_t pl_narrow_width(size_t n_out);

/* w [n_out][n_in] to packed [n_in * width], and the reverse. */
void pl_narrow_pack(const float *w, size_t n_in, size_t n_out, float *packed);
void pl_narrow_unpack(const float *packed, size_t n_in, size_t n_out, float *w);

/* z [n][width] = X W^T, for the n rows from x on. */
void pl_narrow_product(const struct pl_rows *rows, const float *x, const float *packed,
                       size_t n_out, float *z);

/* packed = packed + D^T X, for the n rows from x on; line l of d is [width of a line][width] at d +
 * l * apart. Each sum over the rows is added as a whole. */
void pl_narrow_gradient(const struct pl_rows *rows, const float *x, const float *d, size_t apart,
                        size_t n_out, float *packed);

/* Eight columns fill half a vector of sixteen lanes. Two pictures that are interleaved, a number of
 * the first and then one of the second, fill it; their sums remain apart, so the results are those
 * of one picture after the other. Whether this processor has such vectors; the two functions for
 * pairs may be called only if it does: */
bool pl_narrow_pairs(size_t n_out);

/* both [n][2] from a [n] and b [n] */
void pl_narrow_interleave(const float *a, const float *b, size_t n, float *both);

/* The same for two pictures of eight columns. x, d and the packed weights of the product are
 * interleaved (the weights with themselves); z [n][8] is of the first picture and z2 of the second.
 * All sizes are those of one picture. */
void pl_narrow_product_pair(const struct pl_rows *rows, const float *x, const float *packed,
                            float *z, float *z2);
void pl_narrow_gradient_pair(const struct pl_rows *rows, const float *x, const float *d,
                             size_t apart, float *packed);

/* The three products of a dense layer with at most PL_NARROW_MAX outputs: x [n][n_in], w and g
 * [n_out][n_in], z and d [n][n_out]. */
#define PL_NARROW_MAX 16

/* z = X W^T. Lane l of 16 has the sum over the inputs l, l + 16, …; the lanes are then added as
 * ((0 + 8) + (4 + 12)) + ((2 + 10) + (6 + 14)), plus the same of the odd ones. */
void pl_narrow_forward(const float *x, const float *w, size_t n, size_t n_in, size_t n_out,
                       float *z);

/* g = D^T X, each sum in the order of the rows */
void pl_narrow_weights(const float *d, const float *x, size_t n, size_t n_in, size_t n_out,
                       float *g);

/* dx = D W, each sum in the order of the outputs */
void pl_narrow_inputs(const float *d, const float *w, size_t n, size_t n_in, size_t n_out,
                      float *dx);

#endif
