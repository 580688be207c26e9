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
    struct pl_rating *rating; /* [n_train + n_test]: training ratings first; to predict, a user or
                                 item that is not known is UINT32_MAX */
    uint64_t *id;             /* [2 n_test]: ids of users and items, of rows to predict; or NULL */
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
    struct pl_schema *schema;   /* how rows of a file become these; private to src/data */
    char note[96];              /* what else the run's header says about the data; or "" */
};

/* Opens "name" or "name:ARGS"; `seed` is for generated data. Every size read from a file is
 * checked against the file and against limits before anything is allocated. */
int pl_data_open(const char *spec, uint64_t seed, struct pl_data **out, struct pl_why *why);
void pl_data_free(struct pl_data *data); /* NULL is allowed */

/* How rows of files become those of `data` and what is to be predicted, as text for
 * pl_data_open_as; the caller must free() *out, which is NULL if the text would be too long. */
int pl_data_schema(const struct pl_data *data, char **out, struct pl_why *why);

/* Opens rows to predict, which become numbers as the text says. They are the test rows, in the
 * order of the file; their targets need not be there and are not read. Sets that are generated or
 * have test rows of their own give those. */
int pl_data_open_as(const char *spec, uint64_t seed, const char *schema, struct pl_data **out,
                    struct pl_why *why);

/* The name of a class; `number` is for classes without names. */
const char *pl_data_class(const struct pl_data *data, uint32_t class, char number[static 12]);

/* A prediction of the model, in the unit of the target. */
double pl_data_unscaled(const struct pl_data *data, double prediction);

/* Data whose features the embedding program keeps: rows of dimension 0. label [n_train] has the
 * classes of the training rows. If it is NULL, there are no classes. */
int pl_data_counted(uint32_t n_train, uint32_t n_test, const uint16_t *label, struct pl_data **out,
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
