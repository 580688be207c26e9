/* pl_plan: the public interface of the planner in src/theory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/setup.h"
#include "sys/numerals.h"
#include "theory/planner.h"
#include "timing/recording.h"

/* The delay law to plan with: --delay, or what was measured. A recording also gives the number of
 * workers, unless that is set. */
static int plan_law(struct pl_setup *s, char *law, size_t max, int64_t *n_workers) {
    const struct pl_setup_conf *c = &s->conf;
    int64_t given = pl_setup_resolve(s, PL_HOST_VIRTUAL);
    *n_workers = c->workers;
    s->conf.workers = given;
    snprintf(law, max, "%s", pl_setup_delay(s));
    if (!c->trace[0]) return PL_OK;
    if (pl_setup_is_set(s, "delay"))
        return pl_fail(&s->why, PL_EUSAGE,
                       "--trace and --delay both set the delay law; use one of them");
    if (!pl_recording_is(c->trace)) {
        snprintf(law, max, "trace:file=%s", c->trace);
        return PL_OK;
    }
    snprintf(law, max, "recording:order=random,file=%s", c->trace);
    if (pl_setup_is_set(s, "workers")) return PL_OK;
    struct pl_recording r;
    int rc = pl_recording_read(c->trace, &r, &s->why);
    if (rc) return rc;
    *n_workers = r.n_workers;
    pl_recording_free(&r);
    return PL_OK;
}

int pl_plan(pl_setup *setup, void (*each)(void *ctx, const struct pl_plan_row *row), void *ctx) {
    PL_NUMERALS;
    const struct pl_setup_conf *c = &setup->conf;
    struct pl_why *why = &setup->why;
    why->text[0] = '\0';
    struct pl_delay *delay = NULL;
    char law[PL_SPEC_MAX];
    int64_t n_workers;
    int rc = plan_law(setup, law, sizeof law, &n_workers);
    if (!rc) rc = pl_delay_open(law, (int)n_workers, (uint64_t)c->seed, &delay, why);
    if (rc) return rc;
    struct pl_planner_in in = {.delay = delay,
                               .n_workers = (int)n_workers,
                               .problem = pl_problem_default,
                               .target = c->target,
                               .seed = (uint64_t)c->seed};
    in.problem.eta = c->lr > 0 ? c->lr : 0.1;
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
                                .best_of_all = i == best.overall.row,
                                .loose = i == best.variant[row[i].variant].loose,
                                .loose_of_all = i == best.overall.loose,
                                .regret = best.variant[row[i].variant].regret,
                                .regret_of_all = best.overall.regret};
        each(ctx, &r);
    }
    free(row);
    pl_delay_free(delay);
    return rc;
}
