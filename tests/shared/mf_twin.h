/* pl_mf_sweep, written as simply as possible, for tests and benchmarks to compare with. It sums in
 * another order, so results differ in the last digits. */
#ifndef PL_TESTS_MF_TWIN_H
#define PL_TESTS_MF_TWIN_H

#include "model/mf.h"

int mf_sweep_plain(const struct pl_model *m, const struct pl_grid *grid, int row, int col,
                   enum pl_mf_step step, double lr, bool first, float *p, float *q, double *loss,
                   const struct pl_cancel *cancel);

#endif
