/* Inside src/data: how rows are kept, what a format promises, and the limits that hold for all. */
#ifndef PL_DATA_ROWS_H
#define PL_DATA_ROWS_H

#include "data/data.h"

/* What a file may ask for at most; generous for real sets, finite for hostile ones. */
#define PL_DATA_BYTES_MAX ((uint64_t)1 << 36) /* of one array */
#define PL_DATA_ROWS_MAX ((uint64_t)1 << 30)
#define PL_DATA_DIM_MAX ((uint64_t)1 << 26)
#define PL_DATA_SIDE_MAX 4096 /* of a picture */
#define PL_DATA_CLASSES_MAX 65535

/* Exactly one of the three forms is set; none where the data are ratings. */
struct pl_rows {
    uint32_t n;
    uint16_t *label; /* [n] */
    uint8_t *byte;   /* [n][dim]: pictures, 0..255 stands for 0..1 */
    float *real;     /* [n][dim] */
    uint64_t *start; /* [n + 1]: row i is entries start[i]..start[i+1) of: */
    uint32_t *column;
    float *value;
};

struct pl_data_kind {
    struct pl_entry id;
    /* Fills data (zeroed, with data->train and data->test allocated and empty). On failure
     * whatever was filled in is freed by the caller. dim is set from shape afterwards. */
    int (*open)(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why);
};

/* n items of `size` bytes, not initialised; checks the limits above. */
int pl_rows_array(void **out, uint64_t n, uint64_t size, struct pl_why *why);

#define PL_RATINGS_IDS_MAX ((uint64_t)1 << 24) /* users, and items */
#define PL_RATINGS_MAX ((uint64_t)1 << 31)

/* How a set of ratings is made ready; both kinds that have them have these options. */
struct pl_ratings_conf {
    double test;  /* share of the ratings that is kept for testing */
    bool shuffle; /* new ids in random order */
};
#define PL_RATINGS_OPTS(conf)                                                                      \
    PL_OPT("test", REAL, conf, ready.test, "0.1", 0, 0.9, NULL,                                    \
           "fraction of the ratings, drawn at random, that is held out for testing", 0),           \
        PL_OPT("shuffle", BOOL, conf, ready.shuffle, "yes", 0, 0, NULL,                            \
               "number users and items in random order, for blocks of similar size", 0)

/* Gives the data n ratings (malloc()ed, taken over even on failure) of users and items numbered
 * from 0: renames them where that is wished, parts training from testing, both by the seed. */
int pl_ratings_give(struct pl_data *data, struct pl_rating *rating, uint64_t n, uint64_t n_users,
                    uint64_t n_items, const struct pl_ratings_conf *conf, uint64_t seed,
                    struct pl_why *why);

#endif
