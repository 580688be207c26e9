/* Recipes: a published method is one row of choices from the seven families. */
#ifndef PL_CORE_RECIPE_H
#define PL_CORE_RECIPE_H

#include "base/opt.h"

enum pl_column {
    PL_COLUMN_POLICY,
    PL_COLUMN_TUNER,
    PL_COLUMN_CORRECT,
    PL_COLUMN_REDUCE,
    PL_COLUMN_OPTIM,
    PL_COLUMN_LOCAL,
    PL_COLUMN_FILTER,
    PL_N_COLUMNS
};

struct pl_recipe {
    struct pl_entry id;               /* its options are those of its columns */
    const char *column[PL_N_COLUMNS]; /* specs */
    const char *schedule;             /* of the learning rate; NULL: constant */
};

extern const struct pl_family pl_recipe_family;

/* The families of the columns, in order. */
extern const struct pl_family *const pl_column_family[PL_N_COLUMNS];

/* The columns of "name" or "name:key=value,…" into spec[][PL_SPEC_MAX]. Each key=value goes to the
 * first column that has such an option, so "kasync:k=4" and "gap-aware:beta=0.95" both work. */
int pl_recipe_resolve(const char *method, const struct pl_recipe **recipe,
                      char spec[PL_N_COLUMNS][PL_SPEC_MAX], struct pl_why *why);

#endif
