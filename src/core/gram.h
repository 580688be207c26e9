/* Inner products of the members of a group, block by block: a block is multiplied in the precision
 * of its numbers, and blocks are added up in double.
 *
 * They are relative to the origin, not to a member. A distance that is small compared with the
 * lengths loses digits that way, but never more than 1e-6 of the squared length, which affects no
 * rule: such vectors are practically equal. Relative to a member, all distances would depend on
 * that member, and one hostile vector of length 1e15 would hide the distances between all others.
 *
 * The order of the sums is fixed, so every processor and every number of threads gives the same
 * bits: lane l of PL_GRAM_LANES sums the products of elements l, l + PL_GRAM_LANES, …, and then the
 * upper half of the lanes is added to the lower half until one is left. */
#ifndef PL_CORE_GRAM_H
#define PL_CORE_GRAM_H

#include <stdbool.h>

#include "core/rule.h"

#define PL_GRAM_BLOCK 1024 /* elements whose products are added up in their own precision */
#define PL_GRAM_LANES 16

/* sum [n][n] with rows `stride` apart, lower triangle, += x x' for n rows x of `width` elements, at
 * most PL_GRAM_BLOCK. Returns false and adds nothing if the square of a row is not finite, hence
 * always if one of its elements is not. The `ahead` elements behind each row are read soon. `room`
 * [n * n]. */
bool pl_gram_add(int n, size_t width, const pl_real *const *x, size_t ahead, pl_real *room,
                 double *sum, size_t stride);

/* The same with products in double: for rows with large elements, whose squares overflow. */
void pl_gram_add_wide(int n, size_t width, const pl_real *const *x, double *sum, size_t stride);

#endif
