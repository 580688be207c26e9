/* Friedman's first regression problem: five features matter, the others do not.
 *
 *     y = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + noise N(0, 1),   x uniform in [0, 1]
 *
 * The best possible RMSE is the noise, a linear model comes to about 2.6. Row i of a half is a pure
 * function of (seed, half, i). */
#include <math.h>

#include "base/rng.h"
#include "data/columns.h"

#define FRIEDMAN_PI 3.14159265358979323846

struct friedman_conf {
    int64_t samples, test, dim;
    double noise;
};

/* `worker` words of the generator's key */
enum { FRIEDMAN_TRAIN = 112, FRIEDMAN_TEST };

static int friedman_fill(const struct friedman_conf *c, uint64_t seed, uint32_t half, int64_t n,
                         struct pl_columns *set, struct pl_why *why) {
    set->dim = (uint64_t)c->dim;
    for (int64_t i = 0; i < n; i++) {
        struct pl_rng rng;
        int rc = pl_columns_room(set, why);
        if (rc) return rc;
        float *x = set->x + set->n * set->dim;
        pl_rng_init(&rng, seed, PL_STREAM_DATA, half, (uint64_t)i);
        for (int64_t j = 0; j < c->dim; j++) x[j] = (float)pl_rng_unit(&rng);
        set->y[set->n++] = 10 * sin(FRIEDMAN_PI * x[0] * x[1]) + 20 * (x[2] - 0.5) * (x[2] - 0.5) +
                           10 * x[3] + 5 * x[4] + c->noise * pl_rng_normal(&rng);
    }
    return PL_OK;
}

static int friedman_open(const void *conf, uint64_t seed, struct pl_data *data,
                         struct pl_why *why) {
    const struct friedman_conf *c = conf;
    const struct pl_columns_conf ready = {.task = PL_TASK_REGRESS, .scale = true};
    struct pl_columns train = {0}, test = {0};
    int rc = friedman_fill(c, seed, FRIEDMAN_TRAIN, c->samples, &train, why);
    if (!rc) rc = friedman_fill(c, seed, FRIEDMAN_TEST, c->test, &test, why);
    if (!rc) rc = pl_columns_give(data, &train, &test, &ready, seed, "friedman", why);
    pl_columns_free(&train);
    pl_columns_free(&test);
    return rc;
}

static const struct pl_opt friedman_opts[] = {
    PL_OPT_INT(struct friedman_conf, samples, "10000", 1, 1e8, "training samples"),
    PL_OPT_INT(struct friedman_conf, test, "2000", 0, 1e8, "test samples"),
    PL_OPT_INT(struct friedman_conf, dim, "10", 5, 1e6, "features, of which five matter"),
    PL_OPT_REAL(struct friedman_conf, noise, "1", 0, 1e6, "standard deviation of the noise"),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_friedman = {
    .id = {"friedman", "generated: numbers to predict from ten features, not linear",
           "Friedman, Multivariate adaptive regression splines, Annals of Statistics 1991",
           friedman_opts, sizeof(struct friedman_conf), 0},
    .open = friedman_open,
};
