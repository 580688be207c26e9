/* Gaussian clusters: class c has a centre drawn from N(0, I) and its rows are centre + spread *
 * N(0, I). Two centres are about sqrt(2 dim) apart, so `spread` alone sets the difficulty: at
 * spread s a row is nearer to a given wrong centre with probability Phi(-sqrt(dim / 2) / s).
 *
 * Row i of a half is a pure function of (seed, half, i), and classes alternate. A larger set begins
 * with the rows of a smaller one. */
#include <stdlib.h>

#include "base/rng.h"
#include "data/rows.h"

struct blobs_conf {
    int64_t dim, classes, samples, test;
    double spread;
};

/* `worker` words of the generator's key: what a sequence is used for */
enum { BLOBS_TRAIN, BLOBS_TEST, BLOBS_CENTRE };

/* centre [classes][dim] */
static int blobs_fill(const struct blobs_conf *c, uint64_t seed, uint32_t half, uint64_t n,
                      const float *centre, struct pl_rows *rows, struct pl_why *why) {
    uint64_t dim = (uint64_t)c->dim;
    int rc = pl_rows_array(&rows->real, n, dim * sizeof *rows->real, why);
    if (!rc) rc = pl_rows_array(&rows->label, n, sizeof *rows->label, why);
    if (rc) return rc;
    for (uint64_t i = 0; i < n; i++) {
        struct pl_rng rng;
        pl_rng_init(&rng, seed, PL_STREAM_DATA, half, i);
        rows->label[i] = (uint16_t)(i % (uint64_t)c->classes);
        const float *from = centre + rows->label[i] * dim;
        float *to = rows->real + i * dim;
        for (uint64_t j = 0; j < dim; j++)
            to[j] = from[j] + (float)(c->spread * pl_rng_normal(&rng));
    }
    rows->n = (uint32_t)n;
    return PL_OK;
}

static int blobs_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct blobs_conf *c = conf;
    uint64_t dim = (uint64_t)c->dim;
    float *centre = NULL; /* [classes][dim] */
    int rc = pl_rows_array(&centre, (uint64_t)c->classes, dim * sizeof *centre, why);
    if (rc) return rc;
    for (uint64_t k = 0; k < (uint64_t)c->classes; k++) {
        struct pl_rng rng;
        pl_rng_init(&rng, seed, PL_STREAM_DATA, BLOBS_CENTRE, k);
        for (uint64_t j = 0; j < dim; j++) centre[k * dim + j] = (float)pl_rng_normal(&rng);
    }
    data->shape[0] = data->shape[1] = 1;
    data->shape[2] = (uint32_t)dim;
    data->n_classes = (uint32_t)c->classes;
    rc = blobs_fill(c, seed, BLOBS_TRAIN, (uint64_t)c->samples, centre, data->train, why);
    if (!rc) rc = blobs_fill(c, seed, BLOBS_TEST, (uint64_t)c->test, centre, data->test, why);
    free(centre);
    return rc;
}

static const struct pl_opt blobs_opts[] = {
    PL_OPT_INT(struct blobs_conf, dim, "20", 1, 1e6, "features per sample"),
    PL_OPT_INT(struct blobs_conf, classes, "10", 2, PL_DATA_CLASSES_MAX,
               "number of classes, one cluster each"),
    PL_OPT_INT(struct blobs_conf, samples, "10000", 1, 1e8, "training samples"),
    PL_OPT_INT(struct blobs_conf, test, "2000", 0, 1e8, "test samples"),
    PL_OPT_REAL(struct blobs_conf, spread, "1.5", 0, 1e6,
                "standard deviation within a cluster (cluster centres have 1)"),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_blobs = {
    .id = {"blobs", "generated: gaussian clusters", "", blobs_opts, sizeof(struct blobs_conf), 0},
    .open = blobs_open,
};
