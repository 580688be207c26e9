/* Tables of numbers. See columns.h. */
#include "data/columns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

#define COLUMNS_SPLIT 96 /* `worker` word of the generator's key */

int pl_columns_room(struct pl_columns *c, struct pl_why *why) {
    if (c->n < c->room) return PL_OK;
    uint64_t room = c->room ? 2 * c->room : 256;
    if (c->n >= PL_DATA_ROWS_MAX)
        return pl_fail(why, PL_EDATA, "more than %llu rows; no more are accepted",
                       (unsigned long long)PL_DATA_ROWS_MAX);
    if (c->dim > 0 && room > PL_DATA_BYTES_MAX / sizeof *c->x / c->dim)
        return pl_fail(why, PL_EDATA, "the table needs more than %llu GiB, the most accepted",
                       (unsigned long long)(PL_DATA_BYTES_MAX >> 30));
    if (!PL_RESIZE(c->x, room * c->dim + 1) || !PL_RESIZE(c->y, room))
        return pl_fail(why, PL_ENOMEM, "out of memory for a table of %llu rows and %llu features",
                       (unsigned long long)room, (unsigned long long)c->dim);
    c->room = room;
    return PL_OK;
}

void pl_columns_free(struct pl_columns *c) {
    free(c->x);
    free(c->y);
    *c = (struct pl_columns){0};
}

int pl_columns_deck(uint64_t n, double share, uint64_t seed, uint32_t **deck, uint64_t *n_test,
                    struct pl_why *why) {
    *n_test = (uint64_t)(share * (double)n);
    return pl_rows_deck(n, seed, COLUMNS_SPLIT, deck, why);
}

/* --- what is to be predicted --------------------------------------------------------------- */

static int columns_less(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The distinct values, ascending, in class[*n], which the caller frees. */
static int columns_classes(const double *y, uint64_t n_rows, const char *path, double **class,
                           uint64_t *n, struct pl_why *why) {
    void *mem;
    int rc = pl_rows_array(&mem, n_rows, sizeof **class, why);
    if (rc) return rc;
    double *all = mem;
    uint64_t k = 0;
    memcpy(all, y, (size_t)n_rows * sizeof *all);
    qsort(all, (size_t)n_rows, sizeof *all, columns_less);
    for (uint64_t i = 0; i < n_rows; i++)
        if (i == 0 || all[i] != all[k - 1]) all[k++] = all[i];
    if (k < 2 || k > PL_DATA_CLASSES_MAX) {
        free(all);
        if (k == 1)
            return pl_fail(why, PL_EDATA,
                           "%s: all rows have the same target; there must be 2 classes or more",
                           path);
        return pl_fail(why, PL_EDATA,
                       "%s has %llu different targets; 2 to %d classes are accepted%s", path,
                       (unsigned long long)k, PL_DATA_CLASSES_MAX,
                       k > 1 ? "; to predict numbers, add task=regress" : "");
    }
    *class = all;
    *n = k;
    return PL_OK;
}

static double columns_y(const double *y, const uint32_t *order, uint64_t i) {
    return y[order ? order[i] : i];
}

static int columns_labels(struct pl_data *data, const double *y, const uint32_t *order, uint64_t n,
                          uint64_t n_test, const char *path, struct pl_why *why) {
    double *class = NULL;
    uint64_t n_classes = 0, first = 0;
    struct pl_rows *const half[2] = {data->train, data->test};
    const uint64_t size[2] = {n - n_test, n_test};
    int rc = columns_classes(y, n, path, &class, &n_classes, why);
    for (int h = 0; !rc && h < 2; first += size[h++]) {
        void *mem;
        rc = pl_rows_array(&mem, size[h], sizeof *half[h]->label, why);
        if (rc) break;
        half[h]->label = mem;
        for (uint64_t i = 0; i < size[h]; i++) {
            double value = columns_y(y, order, first + i);
            const double *at =
                bsearch(&value, class, (size_t)n_classes, sizeof *class, columns_less);
            half[h]->label[i] = (uint16_t)(at - class);
        }
    }
    for (uint64_t i = 0; !rc && data->schema->n_classes < n_classes; i++) {
        char name[40]; /* texts have theirs already */
        snprintf(name, sizeof name, "%.15g", class[i]);
        rc = pl_schema_class(data->schema, name, why);
    }
    free(class);
    data->n_classes = (uint32_t)n_classes;
    return rc;
}

/* Mean 0 and variance 1 over the training rows: a loss of 1 is that of the mean, and the root of
 * the loss times target_scale is the error in the target's own unit. */
static int columns_numbers(struct pl_data *data, const double *y, const uint32_t *order, uint64_t n,
                           uint64_t n_test, struct pl_why *why) {
    struct pl_rows *const half[2] = {data->train, data->test};
    const uint64_t size[2] = {n - n_test, n_test};
    double mean = 0, square = 0;
    uint64_t first = 0;
    for (uint64_t i = 0; i < size[0]; i++)
        mean += (columns_y(y, order, i) - mean) / ((double)i + 1);
    for (uint64_t i = 0; i < size[0]; i++) {
        double d = columns_y(y, order, i) - mean;
        square += d * d;
    }
    double sd = sqrt(square / (double)size[0]);
    data->has_targets = true;
    data->schema->target_mean = mean;
    data->target_scale = sd > 0 && isfinite(sd) ? sd : 1;
    for (int h = 0; h < 2; first += size[h++]) {
        void *mem;
        int rc = pl_rows_array(&mem, size[h], sizeof *half[h]->target, why);
        if (rc) return rc;
        half[h]->target = mem;
        for (uint64_t i = 0; i < size[h]; i++)
            half[h]->target[i] =
                (float)((columns_y(y, order, first + i) - mean) / data->target_scale);
    }
    return PL_OK;
}

int pl_columns_targets(struct pl_data *data, const double *y, const uint32_t *order, uint64_t n,
                       uint64_t n_test, const struct pl_columns_conf *conf, const char *path,
                       struct pl_why *why) {
    if (n == n_test) return pl_fail(why, PL_EDATA, "%s has no rows to train on", path);
    data->train->n = (uint32_t)(n - n_test);
    data->test->n = (uint32_t)n_test;
    if (conf->task == PL_TASK_REGRESS) return columns_numbers(data, y, order, n, n_test, why);
    for (uint64_t i = 0; i < n; i++)
        if (y[i] != floor(y[i]))
            return pl_fail(why, PL_EDATA,
                           "%s: the target %.6g is not a class; to predict numbers, add "
                           "task=regress",
                           path, y[i]);
    return columns_labels(data, y, order, n, n_test, path, why);
}

/* --- features ------------------------------------------------------------------------------ */

/* Notes how a number becomes a feature: by mean 0 and variance 1 over the training rows. A column
 * that is constant there only moves. */
static void columns_fit(const struct pl_rows *train, uint64_t n_columns, bool scale, uint64_t j,
                        struct pl_schema_column *c) {
    double mean = 0, square = 0, n = 0;
    for (uint64_t i = 0; i < train->n; i++) {
        double x = train->real[i * n_columns + j];
        if (!isnan(x)) mean += (x - mean) / (n += 1);
    }
    for (uint64_t i = 0; i < train->n; i++) {
        double d = train->real[i * n_columns + j] - mean;
        if (!isnan(d)) square += d * d;
    }
    double sd = sqrt(square / n);
    c->fill = mean;
    if (!scale) return;
    c->shift = mean;
    c->by = sd > 0 && isfinite(sd) ? 1 / sd : 1;
}

/* One row of columns to one row of features; `to` may be `from` if the schema has no texts. */
static void columns_features(const struct pl_schema *s, const float *from, float *to) {
    for (uint64_t j = 0; j < s->n_columns; j++) {
        const struct pl_schema_column *c = &s->column[j];
        double x = from[j];
        if (!c->texts) {
            if (isnan(x)) x = c->fill;
            *to++ = c->shift == 0 && c->by == 1 ? (float)x : (float)((x - c->shift) * c->by);
            continue;
        }
        for (uint64_t k = 0; k < c->texts->n; k++) *to++ = x == (double)k ? 1.0f : 0.0f;
    }
}

int pl_columns_apply(const struct pl_schema *s, struct pl_rows *rows, struct pl_why *why) {
    uint64_t width = pl_schema_width(s);
    float *to = rows->real;
    if (width > PL_DATA_DIM_MAX)
        return pl_fail(why, PL_EDATA, "the columns make %llu features; %llu are accepted",
                       (unsigned long long)width, (unsigned long long)PL_DATA_DIM_MAX);
    bool texts = false;
    for (uint64_t j = 0; j < s->n_columns; j++) texts |= s->column[j].texts != NULL;
    void *mem = NULL;
    int rc = texts ? pl_rows_array(&mem, rows->n, width * sizeof *to, why) : PL_OK;
    if (rc) return rc;
    if (texts) to = mem;
    for (uint64_t i = 0; i < rows->n; i++)
        columns_features(s, rows->real + i * s->n_columns, to + i * width);
    if (texts) free(rows->real);
    rows->real = to;
    return PL_OK;
}

static int columns_rows(const struct pl_columns *from, const uint32_t *order, uint64_t n,
                        struct pl_rows *rows, struct pl_why *why) {
    void *mem;
    int rc = pl_rows_array(&mem, n, from->dim * sizeof *rows->real, why);
    if (rc) return rc;
    rows->real = mem;
    for (uint64_t i = 0; i < n; i++)
        memcpy(rows->real + i * from->dim, from->x + order[i] * from->dim,
               (size_t)from->dim * sizeof *rows->real);
    return PL_OK;
}

int pl_columns_give(struct pl_data *data, struct pl_columns *train, struct pl_columns *test,
                    const struct pl_columns_conf *conf, uint64_t seed, const char *path,
                    struct pl_why *why) {
    uint32_t *order = NULL;
    uint64_t n_test = test->n, n = train->n + test->n;
    int rc = PL_OK;
    if (n_test == 0) {
        rc = pl_columns_deck(n, conf->share, seed, &order, &n_test, why);
        if (!rc) rc = pl_columns_targets(data, train->y, order, n, n_test, conf, path, why);
        if (!rc) rc = columns_rows(train, order, n - n_test, data->train, why);
        if (!rc) rc = columns_rows(train, order + n - n_test, n_test, data->test, why);
        free(order);
    } else {
        if (!PL_RESIZE(train->y, n))
            return pl_fail(why, PL_ENOMEM, "out of memory for %llu rows", (unsigned long long)n);
        memcpy(train->y + train->n, test->y, (size_t)n_test * sizeof *test->y);
        rc = pl_columns_targets(data, train->y, NULL, n, n_test, conf, path, why);
        data->train->real = train->x;
        data->test->real = test->x;
        train->x = test->x = NULL;
    }
    struct pl_schema *s = data->schema;
    if (!rc && s->n_columns == 0) rc = pl_schema_columns(s, train->dim, why);
    for (uint64_t j = 0; !rc && j < s->n_columns; j++)
        if (!s->column[j].texts)
            columns_fit(data->train, train->dim, conf->scale, j, &s->column[j]);
    if (!rc) rc = pl_columns_apply(s, data->train, why);
    if (!rc) rc = pl_columns_apply(s, data->test, why);
    data->shape[0] = data->shape[1] = 1;
    data->shape[2] = rc ? 1 : (uint32_t)pl_schema_width(s);
    return rc;
}
