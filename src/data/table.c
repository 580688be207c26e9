/* All data sets. A new one needs its file and one line here. */
#include "data/rows.h"

extern const struct pl_data_kind pl_data_fashion, pl_data_idx, pl_data_cifar10, pl_data_libsvm,
    pl_data_blobs, pl_data_digits, pl_data_ratings, pl_data_lowrank, pl_data_csv, pl_data_npy,
    pl_data_friedman;

static const struct pl_entry *const data_table[] = {
    &pl_data_fashion.id, &pl_data_idx.id,    &pl_data_cifar10.id,  &pl_data_libsvm.id,
    &pl_data_blobs.id,   &pl_data_digits.id, &pl_data_ratings.id,  &pl_data_lowrank.id,
    &pl_data_csv.id,     &pl_data_npy.id,    &pl_data_friedman.id, NULL};

const struct pl_family pl_data_family = {"data", "what is the model trained on?", data_table};
