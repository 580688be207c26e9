/* Inside src/data: how a row of a file becomes a row of numbers, and what an output of the model
 * stands for. The training rows decide it. It travels with the weights as text, so that rows read
 * later become the same numbers. */
#ifndef PL_DATA_SCHEMA_H
#define PL_DATA_SCHEMA_H

#include "data/names.h"

#define PL_SCHEMA_MAX ((size_t)1 << 24) /* bytes of the text */

/* A column of numbers is one feature, a column of texts one per category. */
enum pl_column_kind { PL_COLUMN_UNKNOWN, PL_COLUMN_NUMBER, PL_COLUMN_TEXTS };

struct pl_schema_column {
    enum pl_column_kind kind;
    char *name;             /* NULL if the file has no names */
    uint64_t field;         /* of the file, from 0 */
    double shift, by;       /* x becomes (x - shift) by */
    double fill;            /* x where it is missing */
    struct pl_names *texts; /* if the kind is TEXTS; "" where it is missing */
};

struct pl_schema {
    struct pl_schema_column *column; /* [n_columns]; none: rows of the file are rows of numbers */
    uint64_t n_columns;
    uint64_t n_fields, target; /* of a line; the field of the target */
    char **class;              /* [n_classes]: names; none: classes are their numbers */
    uint64_t n_classes;
    double target_mean;    /* of numbers to predict, in their own unit */
    uint64_t *user, *item; /* [n_users], [n_items]: ids of ratings */
    uint64_t n_users, n_items;
};

/* Makes n more columns. */
int pl_schema_columns(struct pl_schema *s, uint64_t n, struct pl_why *why);

/* Makes the column one of texts. */
int pl_schema_texts(struct pl_schema_column *c, struct pl_why *why);

/* Features that the columns make. */
uint64_t pl_schema_width(const struct pl_schema *s);

/* Copies the name of a class, the next one. */
int pl_schema_class(struct pl_schema *s, const char *name, struct pl_why *why);

/* Fills the schema, the shape and what is to be predicted of an empty data set. */
struct pl_data;
int pl_schema_parse(const char *text, struct pl_data *data, struct pl_why *why);

void pl_schema_free(struct pl_schema *s); /* NULL is allowed */

#endif
