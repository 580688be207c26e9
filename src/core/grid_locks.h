/* Which worker is where in a policy's grid: a busy worker has a row and a column to itself. */
#ifndef PL_CORE_GRID_LOCKS_H
#define PL_CORE_GRID_LOCKS_H

#include "core/plan.h"

struct pl_grid_locks {
    int side;                /* of the grid; 0: there is none */
    int *in_row, *in_column; /* [side] the worker that is busy there; -1: none */
};

int pl_grid_locks_new(int side, struct pl_grid_locks *out); /* 0 or PL_ENOMEM */
void pl_grid_locks_free(struct pl_grid_locks *p);

/* Locks the row and the column of a start, with `n_taken` members in the open group. Returns NULL,
 * or what is wrong with the start; the text may be in `room`. */
const char *pl_grid_locks_enter(struct pl_grid_locks *p, const struct pl_action *start, int n_taken,
                                char room[128]);

/* The worker that was there is not busy any more. */
void pl_grid_locks_leave(struct pl_grid_locks *p, int row, int column);

#endif
