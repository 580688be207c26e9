/* Matrix factorisation: the interface of model "mf" for block schedulers.
 *
 * A rating of user u for item v is predicted as mean + a_u + b_v + p_u . q_v. The flat vector has a
 * row for every user and then one for every item, so a segment of users is one range of it and a
 * segment of items another. A row is
 *
 *     k factors, zeros up to a multiple of 4, bias, G_slow, G_fast, G_bias
 *
 * where the G are the sums that LIBMF's adaptive step divides by: one for the first 8 factors, one
 * for the others and one for the bias. (LIBMF itself has no biases.)
 *
 * A sweep passes once over a block, rating by rating, and changes the two ranges in place. It runs
 * on the calling thread, and its result does not depend on the thread. */
#ifndef PL_MODEL_MF_H
#define PL_MODEL_MF_H

#include "data/grid.h"
#include "model/model.h"

#define PL_MF_SLOW 8 /* factors that share G_slow */

enum { PL_MF_BIAS, PL_MF_G_SLOW, PL_MF_G_FAST, PL_MF_G_BIAS, PL_MF_TAIL }; /* after the factors */

struct pl_mf {
    struct pl_model base;
    const struct pl_ratings *ratings;
    size_t k, width, row; /* factors; plus zeros; plus tail = floats per row */
    float mean, l2;
};

enum pl_mf_step {
    PL_MF_PLAIN,   /* p += lr (e q - l2 p), and the same for q, a and b */
    PL_MF_ADAPTIVE /* p -= lr / sqrt(G) (l2 p - e q), then G += mean square of the bracket */
};

/* Returns the model as an mf, or NULL if it is another kind. */
const struct pl_mf *pl_mf(const struct pl_model *m);

/* The two ranges [from, from + n) of the flat vector, users and items, that block (row, col) of a
 * g x g grid reads and writes. n may be 0. */
void pl_mf_ranges(const struct pl_model *m, int g, int row, int col, size_t from[2], size_t n[2]);

/* Sweeps one block of a grid made from the model's ratings. p and q hold the two ranges. Plain
 * steps take the ratings in the grid's order; adaptive ones take a rating of the first half of the
 * block, one of the second half, and so on (pl_grid_half). `first` (adaptive step only) changes
 * just the first 8 factors, as LIBMF does in its first iteration. *loss is the mean squared error,
 * each rating's before its step; 0 for an empty block. `cancel` is polled every few thousand
 * ratings. Returns 0, or PL_ECANCELLED with p and q partly changed. */
int pl_mf_sweep(const struct pl_model *m, const struct pl_grid *grid, int row, int col,
                enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                const struct pl_cancel *cancel);

/* Its adaptive steps (mf_adaptive.c). */
int pl_mf_sweep_adaptive(const struct pl_mf *m, const struct pl_grid *grid, int row, int col,
                         double lr, bool first, float *p, float *q, double *loss,
                         const struct pl_cancel *cancel);

#endif
