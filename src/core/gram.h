/* Inner products of the members of a group, one block after the other: BLAS multiplies a block in
 * single precision, blocks are added up in double.
 *
 * They are taken about the origin, not about a member. A distance that is small against the lengths
 * loses digits that way, but never more than 1e-6 of the squared length, which no rule can feel:
 * vectors that close to one another are as good as equal. About a member all distances would depend
 * on that member, and one hostile vector of length 1e15 would swallow those between all others. */
#ifndef PL_CORE_GRAM_H
#define PL_CORE_GRAM_H

#include "core/rule.h"

#define PL_GRAM_BLOCK 1024 /* elements; their products are added up in single precision */

/* BLAS is called from several threads, on one each. The setting is the whole process's. */
void pl_gram_init(void);

/* sum [n][n], lower triangle, += x x' for x [n][width] with rows `stride` apart. `room` [n * n]. */
void pl_gram_add(int n, size_t width, const pl_real *x, size_t stride, pl_real *room, double *sum);

#endif
