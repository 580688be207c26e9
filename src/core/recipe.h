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

/* Specs. A column that is NULL has its default. */
struct pl_recipe {
    struct pl_entry id; /* its options are those of its columns */
    union {
        struct {
            const char *policy, *tuner, *correct, *reduce, *optim, *local, *filter;
        };
        const char *column[PL_N_COLUMNS]; /* the same, by number */
    };
    const char *schedule; /* of the learning rate, unless lr-schedule is given; NULL: constant */
    const char *average;  /* of the weights, unless one is given; NULL: none */
    double lr;            /* unless one is given; 0: that of the optimizer */
    const char *when;     /* when to use it, in a sentence or two */
};

extern const struct pl_family pl_recipe_family;

/* What a column is if neither the method nor the user gives it; NULL for the policy. */
extern const char *const pl_column_default[PL_N_COLUMNS];

/* The spec of a column, which is its default if the row does not give it. */
const char *pl_recipe_column(const struct pl_recipe *r, int column);

/* The families of the columns, in order. */
extern const struct pl_family *const pl_column_family[PL_N_COLUMNS];

/* The columns of "name" or "name:key=value,…" into spec[][PL_SPEC_MAX]. Each key=value goes to the
 * first column that has such an option, so "kasync:k=4" and "gap-aware:beta=0.95" both work. */
int pl_recipe_resolve(const char *method, const struct pl_recipe **recipe,
                      char spec[PL_N_COLUMNS][PL_SPEC_MAX], struct pl_why *why);

/* Returns the family that has what `spec` names, if `family` has not and no hint is for it: a
 * method that was given as a policy, a reduction as a filter. Otherwise NULL. */
const struct pl_family *pl_column_meant(const struct pl_family *family, const char *spec);

#endif
