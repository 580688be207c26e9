/* Data that the embedding program keeps: the library knows how many rows there are, and their
 * classes, but has no features. */
#include <stdlib.h>
#include <string.h>

#include "data/rows.h"

static int counted_rows(struct pl_rows *rows, uint32_t n, const uint16_t *label,
                        struct pl_why *why) {
    int rc = pl_rows_array(&rows->label, n, sizeof *rows->label, why);
    if (!rc) rc = pl_rows_array(&rows->real, 0, sizeof *rows->real, why);
    if (rc) return rc;
    if (label)
        memcpy(rows->label, label, n * sizeof *label);
    else
        memset(rows->label, 0, n * sizeof *label);
    rows->n = n;
    return PL_OK;
}

int pl_data_counted(uint32_t n_train, uint32_t n_test, const uint16_t *label, struct pl_data **out,
                    struct pl_why *why) {
    if (n_train < 1) return pl_fail(why, PL_EUSAGE, "the data needs at least one training sample");
    struct pl_data *data = calloc(1, sizeof *data);
    if (data) data->train = calloc(1, sizeof *data->train);
    if (data) data->test = calloc(1, sizeof *data->test);
    int rc = data && data->train && data->test ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
    if (!rc) rc = counted_rows(data->train, n_train, label, why);
    if (!rc) rc = counted_rows(data->test, n_test, NULL, why);
    if (rc) {
        pl_data_free(data);
        return rc;
    }
    data->n_train = n_train;
    data->n_test = n_test;
    for (uint32_t i = 0; label && i < n_train; i++)
        if (label[i] >= data->n_classes) data->n_classes = (uint32_t)label[i] + 1;
    *out = data;
    return PL_OK;
}
