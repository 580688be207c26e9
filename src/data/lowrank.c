/* Generated ratings: r = 3.5 + a_u + b_v + p_u . q_v + noise * N(0, 1).
 *
 * a and b are N(0, 0.3^2), and the factors are normal such that p_u . q_v has standard deviation
 * 0.7. A model of the same rank can approach an RMSE of `noise`; no model gets below it. User u is
 * drawn with weight (u + 1)^-skew, and item v likewise, so low ids are popular, as in sets that
 * grew over time. Unshuffled blocks are then very uneven.
 *
 * Rating i is a pure function of (seed, i), so a larger set begins with the smaller one. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "data/rows.h"

#define LOWRANK_MEAN 3.5
#define LOWRANK_BIAS 0.3
#define LOWRANK_PRODUCT 0.7

struct lowrank_conf {
    int64_t users, items, rank, ratings;
    double noise, skew;
    struct pl_ratings_conf ready;
};

/* `worker` words of the generator's key: what a sequence is used for */
enum { LOWRANK_USERS, LOWRANK_ITEMS, LOWRANK_RATINGS };

/* One side of the product. */
struct lowrank_side {
    float *row;    /* [n][rank + 1]: factors, bias */
    double *reach; /* [n]: cumulative sum of the weights */
    uint32_t n;
};

static int lowrank_side_new(const struct lowrank_conf *c, int64_t n, uint32_t word, uint64_t seed,
                            struct lowrank_side *s, struct pl_why *why) {
    size_t width = (size_t)c->rank + 1;
    double scale = sqrt(LOWRANK_PRODUCT / sqrt((double)c->rank)), sum = 0;
    int rc = pl_rows_array(&s->row, (uint64_t)n, width * sizeof *s->row, why);
    if (!rc) rc = pl_rows_array(&s->reach, (uint64_t)n, sizeof *s->reach, why);
    if (rc) return rc;
    s->n = (uint32_t)n;
    for (uint32_t i = 0; i < s->n; i++) {
        struct pl_rng rng;
        float *to = s->row + i * width;
        pl_rng_init(&rng, seed, PL_STREAM_DATA, word, i);
        for (size_t j = 0; j + 1 < width; j++) to[j] = (float)(scale * pl_rng_normal(&rng));
        to[width - 1] = (float)(LOWRANK_BIAS * pl_rng_normal(&rng));
        s->reach[i] = sum += pow(i + 1.0, -c->skew);
    }
    return PL_OK;
}

static void lowrank_side_free(struct lowrank_side *s) {
    free(s->row);
    free(s->reach);
}

/* Draws the first row whose cumulative weight exceeds a uniform number. */
static uint32_t lowrank_draw(const struct lowrank_side *s, struct pl_rng *rng) {
    double at = pl_rng_unit(rng) * s->reach[s->n - 1];
    uint32_t low = 0, high = s->n - 1;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->reach[mid] > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static void lowrank_fill(const struct lowrank_conf *c, const struct lowrank_side *users,
                         const struct lowrank_side *items, uint64_t seed, struct pl_rating *r) {
    size_t rank = (size_t)c->rank, width = rank + 1;
    for (uint64_t i = 0; i < (uint64_t)c->ratings; i++) {
        struct pl_rng rng;
        pl_rng_init(&rng, seed, PL_STREAM_DATA, LOWRANK_RATINGS, i);
        uint32_t u = lowrank_draw(users, &rng), v = lowrank_draw(items, &rng);
        const float *p = users->row + u * width, *q = items->row + v * width;
        double sum = LOWRANK_MEAN + p[rank] + q[rank];
        for (size_t j = 0; j < rank; j++) sum += p[j] * q[j];
        sum += c->noise * pl_rng_normal(&rng);
        r[i] = (struct pl_rating){.user = u, .item = v, .value = (float)sum};
    }
}

static int lowrank_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct lowrank_conf *c = conf;
    struct lowrank_side users = {.n = 0}, items = {.n = 0};
    struct pl_rating *rating = NULL;
    int rc = pl_rows_array(&rating, (uint64_t)c->ratings, sizeof *rating, why);
    if (!rc) rc = lowrank_side_new(c, c->users, LOWRANK_USERS, seed, &users, why);
    if (!rc) rc = lowrank_side_new(c, c->items, LOWRANK_ITEMS, seed, &items, why);
    if (!rc) lowrank_fill(c, &users, &items, seed, rating);
    lowrank_side_free(&users);
    lowrank_side_free(&items);
    if (rc) {
        free(rating);
        return rc;
    }
    return pl_ratings_give(data, rating, (uint64_t)c->ratings, (uint64_t)c->users,
                           (uint64_t)c->items, &c->ready, seed, why);
}

static const struct pl_opt lowrank_opts[] = {
    PL_OPT_INT(struct lowrank_conf, users, "6000", 1, (double)PL_RATINGS_IDS_MAX,
               "number of users (rows)"),
    PL_OPT_INT(struct lowrank_conf, items, "4000", 1, (double)PL_RATINGS_IDS_MAX,
               "number of items (columns)"),
    PL_OPT_INT(struct lowrank_conf, rank, "8", 1, 1024, "rank of the ratings, not counting biases"),
    PL_OPT_INT(struct lowrank_conf, ratings, "1000000", 1, (double)PL_RATINGS_MAX,
               "number of ratings, training and test together"),
    PL_OPT_REAL(struct lowrank_conf, noise, "0.3", 0, 1e6,
                "standard deviation of the noise on a rating"),
    PL_OPT_REAL(struct lowrank_conf, skew, "0.5", 0, 4,
                "the i-th user or item has popularity i^-skew (0: all equal)"),
    PL_RATINGS_OPTS(struct lowrank_conf),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_lowrank = {
    .id = {"lowrank", "generated: ratings of low rank with noise", "", lowrank_opts,
           sizeof(struct lowrank_conf), 0},
    .open = lowrank_open,
};
