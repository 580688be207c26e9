/* Random groups of vectors for reductions. */
#ifndef PL_TESTS_GROUPS_H
#define PL_TESTS_GROUPS_H

#include "base/rng.h"
#include "golden_reduce.h"

#define N_ROUNDS (sanitized ? 50 : 400)

struct group {
    int n;
    size_t dim;
    float *x;
    double *wide, *wanted;
    float *got, *again;
};

static inline void group_new(struct group *g, struct pl_rng *rng, int n, size_t dim) {
    double spread = pow(10, 4 * pl_rng_unit(rng) - 2);
    *g = (struct group){.n = n, .dim = dim};
    size_t all = (size_t)n * dim;
    g->x = malloc(all * sizeof *g->x);
    g->wide = malloc(all * sizeof *g->wide);
    g->wanted = malloc(dim * sizeof *g->wanted);
    g->got = malloc(dim * sizeof *g->got);
    g->again = malloc(dim * sizeof *g->again);
    assert_true(g->x && g->wide && g->wanted && g->got && g->again);
    for (size_t i = 0; i < all; i++)
        g->wide[i] = g->x[i] = (float)(spread * (pl_rng_normal(rng) + (double)(i % dim % 3)));
}

static inline void group_free(struct group *g) {
    free(g->x);
    free(g->wide);
    free(g->wanted);
    free(g->got);
    free(g->again);
}

/* Relative to the largest value of the group. */
static inline void compare(const char *spec, const struct group *g) {
    double size = 0;
    for (size_t i = 0; i < (size_t)g->n * g->dim; i++) size = fmax(size, fabs(g->wide[i]));
    for (size_t k = 0; k < g->dim; k++)
        if (!(fabs(g->got[k] - g->wanted[k]) <= 4e-6 * size))
            fail_msg("%s of %d x %zu: coordinate %zu is %.9g, the twin has %.9g", spec, g->n,
                     g->dim, k, (double)g->got[k], g->wanted[k]);
}

#endif
