/* Who is where in a policy's grid: a busy worker has a row and a column to itself. */
#ifndef PL_CORE_PLACES_H
#define PL_CORE_PLACES_H

#include "core/plan.h"

struct pl_places {
    int side;                /* of the grid; 0: there is none */
    int *in_row, *in_column; /* [side] who is busy there; -1: nobody */
};

int pl_places_new(int side, struct pl_places *out); /* 0 or PL_ENOMEM */
void pl_places_free(struct pl_places *p);

/* A start as the policy said it, with `n_taken` contributions that are not applied yet. NULL: the
 * worker has its row and column; or words that say what is wrong, good until the next call with the
 * same `room`. */
const char *pl_places_enter(struct pl_places *p, const struct pl_action *start, int n_taken,
                            char room[128]);

/* Whoever was there is not busy any more. */
void pl_places_leave(struct pl_places *p, int row, int column);

#endif
