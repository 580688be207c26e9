/* A simulation whose gradients and vectors belong to the caller (include/paceline_loop.h). The
 * simulator stops whenever something has to be computed, and continues with the result. */
#ifndef PL_SIM_STEPPED_H
#define PL_SIM_STEPPED_H

#include "paceline_loop.h"
#include "sim/sim.h"

struct pl_stepped;

/* `conf`, which is copied, and `out` must outlive it. 0 or PL_ENOMEM. */
int pl_stepped_new(const struct pl_sim_conf *conf, struct pl_outcome *out, struct pl_why *why,
                   struct pl_stepped **stepped);
void pl_stepped_free(struct pl_stepped *x); /* NULL is fine */

int pl_stepped_next(struct pl_stepped *x, struct pl_loop_step *step);
int pl_stepped_give(struct pl_stepped *x, float *address);
int pl_stepped_gradient(struct pl_stepped *x, double loss, bool finite);
int pl_stepped_score(struct pl_stepped *x, const struct pl_score *score);
void pl_stepped_stop(struct pl_stepped *x);

#endif
