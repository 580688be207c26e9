/* Data sets, models and delays that must open. The test owns them. */
#ifndef PL_TESTS_OPENED_H
#define PL_TESTS_OPENED_H

#include "data/grid.h"
#include "model/model.h"
#include "test.h"
#include "timing/delay.h"

static inline void close_data(void *data) {
    pl_data_free(data);
}

static inline void close_model(void *m) {
    pl_model_close(m);
}

static inline void close_delay(void *d) {
    pl_delay_free(d);
}

static inline void close_grid(void *grid) {
    pl_grid_free(grid);
}

static inline struct pl_data *open_data(const char *spec, uint64_t seed) {
    struct pl_data *data = NULL;
    struct pl_why why = {""};
    if (pl_data_open(spec, seed, &data, &why)) fail_msg("%s: %s", spec, why.text);
    return own(data, close_data);
}

static inline struct pl_model *open_model(const char *spec, const struct pl_data *data) {
    struct pl_model *m = NULL;
    struct pl_why why = {""};
    if (pl_model_open(spec, data, &m, &why)) fail_msg("%s: %s", spec, why.text);
    return own(m, close_model);
}

static inline struct pl_delay *open_delay(const char *spec, int n_workers) {
    struct pl_delay *d = NULL;
    struct pl_why why = {""};
    if (pl_delay_open(spec, n_workers, test_seed, &d, &why)) fail_msg("%s: %s", spec, why.text);
    return own(d, close_delay);
}

/* The ratings of a data set in a grid of this side. */
static inline struct pl_grid *open_grid(const struct pl_data *data, int side) {
    struct pl_grid *grid = NULL;
    assert_int_equal(pl_grid_new(data->ratings, side, &grid), PL_OK);
    assert_int_equal(pl_grid_side(grid), side);
    return own(grid, close_grid);
}

#endif
