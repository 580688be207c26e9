/* Data sets and models that must open. */
#ifndef PL_TESTS_OPENED_H
#define PL_TESTS_OPENED_H

#include "model/model.h"
#include "test.h"

static inline struct pl_data *open_data(const char *spec, uint64_t seed) {
    struct pl_data *data = NULL;
    struct pl_why why = {""};
    if (pl_data_open(spec, seed, &data, &why)) fail_msg("%s: %s", spec, why.text);
    return data;
}

static inline struct pl_model *open_model(const char *spec, const struct pl_data *data) {
    struct pl_model *m = NULL;
    struct pl_why why = {""};
    if (pl_model_open(spec, data, &m, &why)) fail_msg("%s: %s", spec, why.text);
    return m;
}

#endif
