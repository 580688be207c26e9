/* Inside src/data: how rows are stored, the interface of a format, and limits for all formats. */
#ifndef PL_DATA_ROWS_H
#define PL_DATA_ROWS_H

#include "data/data.h"

/* The most that a file may ask for: generous for real sets, finite for hostile ones. */
#define PL_DATA_BYTES_MAX ((uint64_t)1 << 36) /* size of one array */
#define PL_DATA_ROWS_MAX ((uint64_t)1 << 30)
#define PL_DATA_DIM_MAX ((uint64_t)1 << 26)
#define PL_DATA_SIDE_MAX 4096 /* of a picture, in pixels */
#define PL_DATA_CLASSES_MAX 65535

/* Exactly one of the three forms is set; none if the data are ratings. */
struct pl_rows {
    uint32_t n;
    uint16_t *label; /* [n]; NULL if rows have targets: */
    float *target;   /* [n] */
    uint8_t *byte;   /* [n][dim]: pictures, 0..255 means 0..1 */
    float *real;     /* [n][dim] */
    uint64_t *start; /* [n + 1]: row i has entries start[i]..start[i+1) of: */
    uint32_t *column;
    float *value;
};

struct pl_data_kind {
    struct pl_entry id;
    /* Fills `data`, whose train and test members are allocated and empty. On failure the caller
     * frees what was filled in. The caller then derives dim from shape. */
    int (*open)(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why);
    /* The same for rows to predict: schema, shape and what is to be predicted are set. If it is
     * NULL, these are the test rows of open(). */
    int (*open_as)(const void *conf, struct pl_data *data, struct pl_why *why);
};

/* Allocates n items of `size` bytes, uninitialised, for the pointer whose address is `out`, which
 * stays as it was if this fails; checks the limits above. */
int pl_rows_array(void *out, uint64_t n, uint64_t size, struct pl_why *why);

/* A random order of 0 … n-1 (Fisher and Yates), at most 2^32 of them. `use` tells the sequences of
 * one data set apart: the `worker` word of the generator's key. */
int pl_rows_deck(uint64_t n, uint64_t seed, uint32_t use, uint32_t **out, struct pl_why *why);

#define PL_RATINGS_IDS_MAX ((uint64_t)1 << 24) /* users, and items */
#define PL_RATINGS_MAX ((uint64_t)1 << 31)

/* Options that both kinds of rating data share. */
struct pl_ratings_conf {
    double test;     /* fraction of the ratings reserved for testing */
    bool shuffle;    /* renumber users and items at random */
    uint64_t n_last; /* not 0: this many ratings, the last ones, are for testing; none is drawn */
};
#define PL_RATINGS_OPTS(conf)                                                                      \
    PL_OPT("test", REAL, conf, ready.test, "0.1", 0, 0.9, NULL,                                    \
           "fraction of the ratings, drawn at random, that is held out for testing", 0),           \
        PL_OPT("shuffle", BOOL, conf, ready.shuffle, "yes", 0, 0, NULL,                            \
               "number users and items in random order, for blocks of similar size", 0)

/* Hands n ratings to the data set (malloc()ed; owned by it even on failure), with users and items
 * numbered from 0. Renumbers them if requested and splits off the test set, both by the seed. */
int pl_ratings_give(struct pl_data *data, struct pl_rating *rating, uint64_t n, uint64_t n_users,
                    uint64_t n_items, const struct pl_ratings_conf *conf, uint64_t seed,
                    struct pl_why *why);

#endif
