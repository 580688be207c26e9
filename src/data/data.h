/* Data sets: rows of features with a class label or a number to predict each, stored in the most
 * compact form they came in (bytes for pictures, floats, or sparse rows) and converted to dense
 * float rows on demand.
 *
 * Ratings are rows of three numbers, (user, item, rating), without classes. Factorisation reads
 * struct pl_ratings instead of rows.
 *
 * Specs: fashion, idx:DIR, cifar10:DIR, libsvm:FILE, csv:FILE, npy:FILE, blobs, digits, friedman,
 * ratings:FILE, lowrank (`paceline list data`, docs/data.md). */
#ifndef PL_DATA_DATA_H
#define PL_DATA_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/opt.h"

extern const struct pl_family pl_data_family;

struct pl_rows; /* one set of rows; private to src/data */

struct pl_rating {
    uint32_t user, item; /* 0 … n_users - 1, 0 … n_items - 1 */
    float value;
};

/* A set of ratings. There is one copy of it. */
struct pl_ratings {
    uint32_t n_users, n_items; /* up to 2^24, so that a float holds them exactly */
    uint32_t n_train, n_test;
    double mean;              /* of the training ratings */
    struct pl_rating *rating; /* [n_train + n_test]: training ratings first */
};

struct pl_data {
    uint32_t n_train, n_test; /* n_test may be 0 */
    uint32_t dim;             /* features of a row = shape[0] * shape[1] * shape[2] */
    uint32_t shape[3];        /* channels, height, width; {1, 1, dim} if not pictures */
    uint32_t n_classes;       /* 0 for ratings, and if rows have targets */
    bool has_targets;         /* rows have a number to predict instead of a class */
    double target_scale;      /* a target of 1 stands for that much in its own unit */
    struct pl_rows *train, *test;
    struct pl_ratings *ratings; /* NULL for all other sets */
};

/* Opens "name" or "name:ARGS"; `seed` is for generated data. Every size read from a file is
 * checked against the file and against limits before anything is allocated. */
int pl_data_open(const char *spec, uint64_t seed, struct pl_data **out, struct pl_why *why);
void pl_data_free(struct pl_data *data); /* NULL is allowed */

/* Data whose features the embedding program keeps: rows of dimension 0. label [n_train] has the
 * classes of the training rows; NULL: no classes. */
int pl_data_outside(uint32_t n_train, uint32_t n_test, const uint16_t *label, struct pl_data **out,
                    struct pl_why *why);

/* Copies rows index[0..n) of the training or test set to x [n][dim] (pictures scaled to [0,1]) and
 * their classes to label [n] (0 if there are no classes). Thread-safe. */
void pl_data_rows(const struct pl_data *data, bool test, const uint32_t *index, uint32_t n,
                  float *x, uint16_t *label);

/* Copies the numbers to predict of these rows to target [n], if the set has targets. */
void pl_data_targets(const struct pl_data *data, bool test, const uint32_t *index, uint32_t n,
                     float *target);

/* Which training samples a worker may draw: "whole" (all), "iid" (equal random shards),
 * "label:alpha=A" (shards by label, Dirichlet with parameter A). */
extern const struct pl_family pl_partition_family;

struct pl_partition;
int pl_partition_open(const char *spec, const struct pl_data *data, int n_workers, uint64_t seed,
                      struct pl_partition **out, struct pl_why *why);
void pl_partition_free(struct pl_partition *p);
uint32_t pl_partition_size(const struct pl_partition *p, uint32_t worker);

enum pl_sampling {
    PL_SAMPLE_IID,  /* independent draws with replacement */
    PL_SAMPLE_EPOCH /* shuffled passes over the worker's samples */
};

/* Writes the training rows of mini-batch `batch_no` (0, 1, 2, …) of `worker` to index[n]. A pure
 * function of its arguments; thread-safe. */
void pl_partition_draw(const struct pl_partition *p, enum pl_sampling sampling, uint64_t seed,
                       uint32_t worker, uint64_t batch_no, uint32_t n, uint32_t *index);

#endif
