/* Data sets from any source.
 *
 * Rows stay in the form they arrived in: as floats, a picture set would take four times its memory
 * and a sparse text set a thousand times. A mini-batch is made dense when it is drawn. This costs
 * one pass over memory that the first matrix product reads anyway. */
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "data/rows.h"
#include "data/schema.h"

#define DATA_FETCH 4096 /* bytes of the next row that are fetched; the rest is foreseen */

static void data_free_rows(struct pl_rows *rows) {
    if (!rows) return;
    free(rows->label);
    free(rows->target);
    free(rows->byte);
    free(rows->real);
    free(rows->start);
    free(rows->column);
    free(rows->value);
    free(rows);
}

void pl_data_free(struct pl_data *data) {
    if (!data) return;
    data_free_rows(data->train);
    data_free_rows(data->test);
    if (data->ratings) free(data->ratings->rating);
    if (data->ratings) free(data->ratings->id);
    free(data->ratings);
    pl_schema_free(data->schema);
    free(data);
}

static struct pl_data *data_new(void) {
    struct pl_data *data = calloc(1, sizeof *data);
    if (data) data->train = calloc(1, sizeof *data->train);
    if (data) data->test = calloc(1, sizeof *data->test);
    if (data) data->schema = calloc(1, sizeof *data->schema);
    if (data && data->train && data->test && data->schema) return data;
    pl_data_free(data);
    return NULL;
}

/* Derives the rest after open() or open_as(), or frees everything. */
static int data_done(struct pl_data *data, int rc, struct pl_data **out) {
    if (rc) {
        pl_data_free(data);
        return rc;
    }
    data->n_train = data->train->n;
    data->n_test = data->test->n;
    data->dim = data->shape[0] * data->shape[1] * data->shape[2];
    *out = data;
    return PL_OK;
}

int pl_data_open(const char *spec, uint64_t seed, struct pl_data **out, struct pl_why *why) {
    const struct pl_entry *entry;
    void *conf;
    int rc = pl_spec_parse(&pl_data_family, spec, 1, &entry, &conf, why);
    if (rc) return rc;
    struct pl_data *data = data_new();
    rc = data ? ((const struct pl_data_kind *)entry)->open(conf, seed, data, why)
              : pl_fail(why, PL_ENOMEM, "out of memory");
    free(conf);
    return data_done(data, rc, out);
}

/* Whether rows of `set` can be predicted by a model of `known`. */
static int data_same_shape(const struct pl_data *known, const struct pl_data *set, const char *spec,
                           struct pl_why *why) {
    bool same = !known->ratings == !set->ratings && known->has_targets == set->has_targets &&
                known->n_classes == set->n_classes;
    if (same && set->ratings)
        same = known->ratings->n_users == set->ratings->n_users &&
               known->ratings->n_items == set->ratings->n_items;
    for (int i = 0; i < 3; i++) same &= known->shape[i] == set->shape[i];
    if (same) return PL_OK;
    return pl_fail(
        why, PL_EDATA,
        "data set '%.100s' has rows of %ux%ux%u numbers and %u classes, but the model was "
        "trained on rows of %ux%ux%u and %u classes",
        spec, set->shape[0], set->shape[1], set->shape[2], set->n_classes, known->shape[0],
        known->shape[1], known->shape[2], known->n_classes);
}

int pl_data_open_as(const char *spec, uint64_t seed, const char *schema, struct pl_data **out,
                    struct pl_why *why) {
    const struct pl_entry *entry;
    void *conf;
    int rc = pl_spec_parse(&pl_data_family, spec, 1, &entry, &conf, why);
    if (rc) return rc;
    const struct pl_data_kind *kind = (const struct pl_data_kind *)entry;
    struct pl_data *data = data_new(), *whole = NULL;
    rc = data ? pl_schema_parse(schema, data, why) : pl_fail(why, PL_ENOMEM, "out of memory");
    if (!rc && kind->open_as) {
        rc = kind->open_as(conf, data, why);
    } else if (!rc) {
        rc = pl_data_open(spec, seed, &whole, why);
        if (!rc) rc = data_same_shape(data, whole, spec, why);
        if (!rc && whole->n_test == 0)
            rc = pl_fail(why, PL_EDATA, "data set '%.100s' has no test rows to predict", spec);
    }
    free(conf);
    if (rc || !whole) {
        pl_data_free(whole);
        return data_done(data, rc, out);
    }
    struct pl_schema *own = whole->schema; /* names and units are those of the model */
    whole->schema = data->schema;
    data->schema = own;
    pl_data_free(data);
    *out = whole;
    return PL_OK;
}

const char *pl_data_class(const struct pl_data *data, uint32_t class, char number[static 12]) {
    if (class < data->schema->n_classes) return data->schema->class[class];
    snprintf(number, 12, "%lu", (unsigned long)class);
    return number;
}

double pl_data_unscaled(const struct pl_data *data, double prediction) {
    return data->has_targets ? data->schema->target_mean + data->target_scale * prediction
                             : prediction;
}

/* from [dim] bytes, to [dim] */
static PL_VARIANTS(void, data_scale, (const uint8_t *restrict from, size_t dim, float *restrict to),
                   (from, dim, to)) {
    for (size_t j = 0; j < dim; j++) to[j] = (float)from[j] * (1.0f / 255.0f);
}

/* Fetches a row that is read next: rows are drawn at random, which the processor cannot foresee. */
static void data_fetch(const void *row, size_t bytes) {
    for (size_t at = 0; at < bytes && at < DATA_FETCH; at += 64)
        __builtin_prefetch((const char *)row + at);
}

/* x [n][3] */
static void data_ratings(const struct pl_rating *rating, const uint32_t *index, uint32_t n,
                         float *x, uint16_t *label) {
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_rating *r = &rating[index[i]];
        x[3 * (size_t)i] = (float)r->user;
        x[3 * (size_t)i + 1] = (float)r->item;
        x[3 * (size_t)i + 2] = r->value;
        label[i] = 0;
    }
}

void pl_data_rows(const struct pl_data *data, bool test, const uint32_t *index, uint32_t n,
                  float *x, uint16_t *label) {
    const struct pl_rows *rows = test ? data->test : data->train;
    size_t dim = data->dim;
    if (data->ratings) {
        const struct pl_rating *all = data->ratings->rating;
        data_ratings(test ? all + data->n_train : all, index, n, x, label);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t row = index[i];
        float *to = x + i * dim;
        label[i] = rows->label ? rows->label[row] : 0;
        size_t next = index[i + 1 < n ? i + 1 : i];
        if (rows->byte) {
            data_fetch(rows->byte + next * dim, dim);
            data_scale(rows->byte + row * dim, dim, to);
        } else if (rows->real) {
            data_fetch(rows->real + next * dim, dim * sizeof *to);
            memcpy(to, rows->real + row * dim, dim * sizeof *to);
        } else {
            memset(to, 0, dim * sizeof *to);
            for (uint64_t e = rows->start[row]; e < rows->start[row + 1]; e++)
                to[rows->column[e]] = rows->value[e];
        }
    }
}

void pl_data_targets(const struct pl_data *data, bool test, const uint32_t *index, uint32_t n,
                     float *target) {
    const float *from = (test ? data->test : data->train)->target;
    for (uint32_t i = 0; from && i < n; i++) target[i] = from[index[i]];
}
