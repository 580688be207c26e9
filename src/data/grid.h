/* Ratings cut into blocks, for factorising them in parallel.
 *
 * Users are cut into g segments of consecutive ids and items likewise; block (row, col) has the
 * training ratings of segment `row` of the users for segment `col` of the items. Blocks that share
 * neither row nor column can be worked on at the same time. The ratings of a block lie in one
 * piece, sorted by user and then by item, as FPSGD has them (Zhuang, Chin, Juan, Lin, RecSys 2013):
 * a user's factors stay in the first-level cache until all of that user's ratings are done.
 *
 * A rating takes eight bytes: the step from the user before it (8 bits), the item (24 bits) and the
 * value. Both count within the block. A step that does not fit is an entry of its own. */
#ifndef PL_DATA_GRID_H
#define PL_DATA_GRID_H

#include <stddef.h>

#include "data/data.h"

#define PL_GRID_MAX 4096 /* segments to a side */

struct pl_grid;

/* The grid has its own copy of the ratings: `r` is not needed afterwards. 0 or PL_ENOMEM; g is 1 to
 * PL_GRID_MAX and may exceed the users and the items. */
int pl_grid_new(const struct pl_ratings *r, int g, struct pl_grid **out);
void pl_grid_free(struct pl_grid *grid); /* NULL is fine */

int pl_grid_side(const struct pl_grid *grid);                      /* g */
size_t pl_grid_size(const struct pl_grid *grid, int row, int col); /* ratings of a block */

/* Segment i of n ids cut into g: [*from, *from + *count). They differ by one id at most. */
void pl_grid_segment(uint32_t n, int g, int i, uint32_t *from, uint32_t *count);

/* --- for those who walk a block ------------------------------------------------------------ */

struct pl_grid_entry {
    uint32_t where; /* step << 24 | item */
    float value;
};

#define PL_GRID_ITEM 0xffffffu /* bits of the item */
#define PL_GRID_FAR 0xffu      /* as a step: this is no rating, the user moves on by `item` */

/* The entries of a block, in order; the first user is 0 plus the first step. */
const struct pl_grid_entry *pl_grid_block(const struct pl_grid *grid, int row, int col, size_t *n);

#endif
