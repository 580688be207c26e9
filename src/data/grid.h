/* Ratings cut into blocks, for factorising them in parallel.
 *
 * Users and items are each cut into g segments of consecutive ids. Block (row, col) holds the
 * training ratings of user segment `row` for item segment `col`. Blocks that share neither row nor
 * column can be processed at the same time. The ratings of a block are contiguous and sorted by
 * user, then by item, as in FPSGD (Zhuang, Chin, Juan, Lin, RecSys 2013), so a user's factors stay
 * in the first-level cache until all of that user's ratings are done.
 *
 * A rating takes eight bytes: the step from the previous user (8 bits), the item (24 bits), both
 * counted within the block, and the value. A step that does not fit gets an entry of its own. */
#ifndef PL_DATA_GRID_H
#define PL_DATA_GRID_H

#include <stddef.h>

#include "data/data.h"

struct pl_grid;

/* Copies the ratings into the grid; `r` is not needed afterwards. Returns 0 or PL_ENOMEM. g is at
 * least 1 and may exceed the number of users or items. */
int pl_grid_new(const struct pl_ratings *r, int g, struct pl_grid **out);
void pl_grid_free(struct pl_grid *grid); /* NULL is allowed */

int pl_grid_side(const struct pl_grid *grid);                      /* g */
size_t pl_grid_size(const struct pl_grid *grid, int row, int col); /* ratings in a block */

/* Segment i of n ids cut into g is [*from, *from + *count). Segments differ by at most one id. */
void pl_grid_segment(uint32_t n, int g, int i, uint32_t *from, uint32_t *count);

/* --- iterating over a block ------------------------------------------------------------- */

struct pl_grid_entry {
    uint32_t where; /* step << 24 | item */
    float value;
};

#define PL_GRID_ITEM 0xffffffu /* mask of the item bits */
#define PL_GRID_FAR 0xffu      /* as a step: not a rating; skip `item` users */

/* Returns the entries of a block in order; user numbers start from 0 plus the first step. */
const struct pl_grid_entry *pl_grid_block(const struct pl_grid *grid, int row, int col, size_t *n);

/* Returns the number of entries in the first half of a block, and in *user the steps before the
 * second half. No user has ratings in both. The second half begins with the first user that begins
 * in the middle or later, and may be empty. */
size_t pl_grid_half(const struct pl_grid *grid, int row, int col, uint32_t *user);

#endif
