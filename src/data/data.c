/* Data sets from any source.
 *
 * Rows stay in the form they arrived in: as floats, a picture set would take four times its memory
 * and a sparse text set a thousand times. A mini-batch is made dense when it is drawn. This costs
 * one pass over memory that the first matrix product reads anyway. */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/rows.h"

int pl_rows_array(void **out, uint64_t n, uint64_t size, struct pl_why *why) {
    if (n > PL_DATA_BYTES_MAX / size || n * size > SIZE_MAX)
        return pl_fail(why, PL_EUSAGE,
                       "the data set needs an array of more than %llu GiB, the largest allowed",
                       (unsigned long long)(PL_DATA_BYTES_MAX >> 30));
    void *fresh = malloc(n > 0 ? (size_t)(n * size) : 1);
    if (!fresh)
        return pl_fail(why, PL_ENOMEM, "out of memory: the data set needs an array of %llu bytes",
                       (unsigned long long)(n * size));
    *out = fresh;
    return PL_OK;
}

int pl_rows_deck(uint64_t n, uint64_t seed, uint32_t use, uint32_t **out, struct pl_why *why) {
    void *mem = NULL;
    struct pl_rng rng;
    int rc = pl_rows_array(&mem, n, sizeof **out, why);
    if (rc) return rc;
    uint32_t *deck = mem;
    pl_rng_init(&rng, seed, PL_STREAM_DATA, use, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = pl_rng_below(&rng, i + 1);
        deck[i] = deck[j];
        deck[j] = i;
    }
    *out = deck;
    return PL_OK;
}

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
    free(data->ratings);
    free(data);
}

int pl_data_open(const char *spec, uint64_t seed, struct pl_data **out, struct pl_why *why) {
    const struct pl_entry *entry;
    void *conf;
    int rc = pl_spec_parse(&pl_data_family, spec, 1, &entry, &conf, why);
    if (rc) return rc;
    /* every kind begins with its entry */
    const struct pl_data_kind *kind = (const struct pl_data_kind *)(const void *)entry;

    struct pl_data *data = calloc(1, sizeof *data);
    if (data) data->train = calloc(1, sizeof *data->train);
    if (data) data->test = calloc(1, sizeof *data->test);
    if (!data || !data->train || !data->test)
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
    else
        rc = kind->open(conf, seed, data, why);
    free(conf);
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

/* from [dim] bytes, to [dim] */
static void data_scale(const uint8_t *restrict from, uint32_t dim, float *restrict to) {
    for (uint32_t j = 0; j < dim; j++) to[j] = (float)from[j] * (1.0f / 255.0f);
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
        if (rows->byte) {
            data_scale(rows->byte + row * dim, data->dim, to);
        } else if (rows->real) {
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
