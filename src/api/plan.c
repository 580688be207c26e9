/* pl_plan: the planner of src/theory behind the public header. */
#include <math.h>
#include <stdlib.h>

#include "api/setup.h"
#include "theory/planner.h"

int pl_plan(pl_setup *setup, void (*each)(void *ctx, const struct pl_plan_row *row), void *ctx) {
    const struct pl_setup_conf *c = &setup->conf;
    struct pl_why *why = &setup->why;
    why->text[0] = '\0';
    struct pl_delay *delay = NULL;
    int rc = pl_delay_open(c->delay, (int)c->workers, (uint64_t)c->seed, &delay, why);
    if (rc) return rc;
    struct pl_planner_in in = {.delay = delay,
                               .n_workers = (int)c->workers,
                               .problem = pl_problem_default,
                               .target = c->target,
                               .seed = (uint64_t)c->seed};
    in.problem.eta = c->lr;
    in.problem.batch = (double)c->batch;
    in.problem.smooth = c->smoothness;
    in.problem.sigma2 = c->noise;
    in.problem.convex = c->convexity;
    in.problem.gap = c->start_loss;
    struct pl_planner_best best;
    int n = 0;
    struct pl_planner_row *row = malloc(PL_PLANNER_ROWS_MAX * sizeof *row);
    rc = row ? pl_planner_run(&in, row, &n, &best, why) : pl_fail(why, PL_ENOMEM, "out of memory");
    for (int i = 0; !rc && i < n; i++) {
        struct pl_plan_row r = {.policy = pl_variant_names[row[i].variant],
                                .k = row[i].k,
                                .time_per_update = row[i].time.seconds,
                                .staleness = row[i].time.lag,
                                .error_floor = row[i].bound.valid ? row[i].bound.floor : NAN,
                                .time_to_target =
                                    row[i].bound.valid ? row[i].seconds_to_target : NAN,
                                .exact = row[i].time.how != PL_HOW_SIMULATED,
                                .best = row[i].best,
                                .best_of_all = i == best.overall};
        each(ctx, &r);
    }
    free(row);
    pl_delay_free(delay);
    return rc;
}
