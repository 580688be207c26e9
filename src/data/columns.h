/* Inside src/data: tables of numbers with one column to predict, whatever file they came from. The
 * features are standardised, part of the rows is held out for testing, and what is to be predicted
 * becomes classes or scaled numbers. */
#ifndef PL_DATA_COLUMNS_H
#define PL_DATA_COLUMNS_H

#include "data/rows.h"
#include "data/schema.h"

/* Rows read so far. The arrays are malloc()ed and grow by doubling. */
struct pl_columns {
    uint64_t n, room, dim;
    float *x;  /* [n][dim]; see pl_columns_apply */
    double *y; /* [n]: what is to be predicted; classes by any finite number */
};

/* Options that all tables share. */
struct pl_columns_conf {
    int task;     /* enum pl_columns_task */
    double share; /* of the rows to hold out, if there is no file of test rows */
    bool scale;   /* features to mean 0 and variance 1 */
};
enum pl_columns_task { PL_TASK_CLASSIFY, PL_TASK_REGRESS };
#define PL_COLUMNS_OPTS(conf)                                                                      \
    PL_OPT("task", CHOICE, conf, ready.task, "classify", 0, 0, "classify|regress",                 \
           "what the target is: a class, or a number to predict", 0),                              \
        PL_OPT("share", REAL, conf, ready.share, "0.2", 0, 0.9, NULL,                              \
               "fraction of the rows, drawn at random, that is held out for testing (without a "   \
               "test file)",                                                                       \
               0),                                                                                 \
        PL_OPT("scale", BOOL, conf, ready.scale, "yes", 0, 0, NULL,                                \
               "shift and scale every feature to mean 0 and variance 1 over the training rows", 0)

/* Makes room for one more row of dim features. */
int pl_columns_room(struct pl_columns *c, struct pl_why *why);
void pl_columns_free(struct pl_columns *c);

/* Makes the data set from the training rows and the test rows, which may be none. `path` is for
 * messages. */
int pl_columns_give(struct pl_data *data, struct pl_columns *train, struct pl_columns *test,
                    const struct pl_columns_conf *conf, uint64_t seed, const char *path,
                    struct pl_why *why);

/* Turns rows of columns (NAN where a value is missing; the number of a category, or -1 for none)
 * into rows of features. */
int pl_columns_apply(const struct pl_schema *s, struct pl_rows *rows, struct pl_why *why);

/* Splits n rows at random: deck [n] has the training rows first, then *n_test others. */
int pl_columns_deck(uint64_t n, double share, uint64_t seed, uint32_t **deck, uint64_t *n_test,
                    struct pl_why *why);

/* Fills the labels or targets of both halves from y, row order[i] of it for row i, or row i if
 * order is NULL. */
int pl_columns_targets(struct pl_data *data, const double *y, const uint32_t *order, uint64_t n,
                       uint64_t n_test, const struct pl_columns_conf *conf, const char *path,
                       struct pl_why *why);

#endif
