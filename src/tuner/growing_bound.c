/* Growing bound: R = max(1, floor(sqrt(version))).
 *
 * The parameter-agnostic threshold of the Ringmaster LMO code. Ringmaster's own R needs the
 * gradient noise and the target accuracy, which are usually unknown. */
#include <math.h>

#include "core/tuner.h"

static void growing_bound_set(uint64_t version, struct pl_knobs *knobs) {
    double r = floor(sqrt((double)version));
    knobs->bound = r < 1 ? 1 : (uint64_t)r;
}

static void growing_bound_init(void *state, const struct pl_run_info *info,
                               struct pl_knobs *knobs) {
    (void)state;
    (void)info;
    growing_bound_set(0, knobs);
}

static void growing_bound_arrive(void *state, const struct pl_run_info *info,
                                 const struct pl_view *v, const struct pl_arrival *a,
                                 struct pl_knobs *knobs) {
    (void)state;
    (void)info;
    (void)a;
    growing_bound_set(v->version, knobs);
}

const struct pl_tuner pl_tuner_growing_bound = {
    .id = {"growing-bound", "the staleness bound grows as the square root of the updates",
           "after Maranjyan, Tyurin, Richtarik, ICML 2025 (Ringmaster, its LMO code)", pl_no_opts,
           0, 0},
    .moves = PL_USES_BOUND,
    .init = growing_bound_init,
    .arrive = growing_bound_arrive,
};
