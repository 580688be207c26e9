/* Inside src/model: products with few columns, such as the outputs of a classifier or the filters
 * of a small convolution. A general matrix product first copies its operands into an order that
 * suits reuse, which so few columns do not repay. Here the columns are the lanes of vectors, and
 * rows are read where they are.
 *
 * Every sum has a fixed order, so results do not depend on the processor. */
#ifndef PL_MODEL_NARROW_H
#define PL_MODEL_NARROW_H

#include <stddef.h>

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

#endif
