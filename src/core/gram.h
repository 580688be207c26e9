/* Inner products of the members of a group, block by block: BLAS multiplies a block in single
 * precision, and blocks are added up in double.
 *
 * They are relative to the origin, not to a member. A distance that is small compared with the
 * lengths loses digits that way, but never more than 1e-6 of the squared length, which affects no
 * rule: such vectors are practically equal. Relative to a member, all distances would depend on
 * that member, and one hostile vector of length 1e15 would hide the distances between all others.
 */
#ifndef PL_CORE_GRAM_H
#define PL_CORE_GRAM_H

#include "core/rule.h"

#define PL_GRAM_BLOCK 1024 /* elements whose products are added up in single precision */

/* Makes BLAS use one thread per call, because several threads call it. Affects the process. */
void pl_gram_init(void);

/* sum [n][n], lower triangle, += x x' for x [n][width] with rows `stride` apart. `room` [n * n]. */
void pl_gram_add(int n, size_t width, const pl_real *x, size_t stride, pl_real *room, double *sum);

#endif
