#include "core/grid_locks.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

int pl_grid_locks_new(int side, struct pl_grid_locks *out) {
    size_t n = (size_t)side;
    *out = (struct pl_grid_locks){.side = side};
    if (side == 0) return PL_OK;
    out->in_row = malloc(n * sizeof *out->in_row);
    out->in_column = malloc(n * sizeof *out->in_column);
    if (!out->in_row || !out->in_column) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) out->in_row[i] = out->in_column[i] = -1;
    return PL_OK;
}

void pl_grid_locks_free(struct pl_grid_locks *p) {
    free(p->in_row);
    free(p->in_column);
    *p = (struct pl_grid_locks){0};
}

const char *pl_grid_locks_enter(struct pl_grid_locks *p, const struct pl_action *start, int n_taken,
                                char room[128]) {
    int row = start->row, column = start->col;
    if (p->side == 0)
        return row < 0 && column < 0 ? NULL : "it started a worker on a part but has no grid";
    if (row < 0 || column < 0) return "it has a grid but started a worker without a part";
    if (row >= p->side || column >= p->side)
        return "it started a worker on a part outside its grid";
    if (n_taken > 0) return "it started a worker on a part before it committed what it took";
    int there = p->in_row[row] >= 0 ? p->in_row[row] : p->in_column[column];
    if (there >= 0) {
        snprintf(room, 128, "it started W%d on block %d,%d while W%d is busy in the same %s",
                 start->worker + 1, row + 1, column + 1, there + 1,
                 p->in_row[row] >= 0 ? "row" : "column");
        return room;
    }
    p->in_row[row] = p->in_column[column] = start->worker;
    return NULL;
}

void pl_grid_locks_leave(struct pl_grid_locks *p, int row, int column) {
    if (p->side > 0) p->in_row[row] = p->in_column[column] = -1;
}
