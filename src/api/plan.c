/* pl_plan: the public interface of the planner in src/theory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/setup.h"
#include "sys/numerals.h"
#include "theory/planner.h"
#include "timing/recording.h"

/* Replaces --trace by the --delay that it stands for and, if it is a recording, by the number of
 * workers, unless that is set. */
static int plan_trace(struct pl_setup *s) {
    const char *file = s->conf.trace;
    char law[PL_SPEC_MAX], workers[24];
    if (!file[0]) return PL_OK;
    if (pl_setup_is_set(s, "delay"))
        return pl_fail(&s->why, PL_EUSAGE,
                       "--trace and --delay both set the delay law; use one of them");
    bool recorded = pl_recording_is(file);
    snprintf(law, sizeof law, "%s:%sfile=%s", recorded ? "recording" : "trace",
             recorded ? "order=random," : "", file);
    int rc = PL_OK;
    if (recorded && !pl_setup_is_set(s, "workers")) {
        struct pl_recording r;
        rc = pl_recording_read(file, &r, &s->why);
        if (rc) return rc;
        snprintf(workers, sizeof workers, "%d", r.n_workers);
        pl_recording_free(&r);
        rc = pl_setup_set(s, "workers", workers);
    }
    if (!rc) rc = pl_setup_set(s, "delay", law);
    return rc ? rc : pl_setup_set(s, "trace", "");
}

int pl_plan(pl_setup *setup, void (*each)(void *ctx, const struct pl_plan_row *row), void *ctx) {
    PL_NUMERALS;
    const struct pl_setup_conf *c = &setup->conf;
    struct pl_why *why = &setup->why;
    why->text[0] = '\0';
    struct pl_delay *delay = NULL;
    int rc = plan_trace(setup);
    if (rc) return rc;
    int64_t given = pl_setup_resolve(setup, PL_HOST_VIRTUAL), n_workers = c->workers;
    setup->conf.workers = given;
    rc = pl_delay_open(pl_setup_delay(setup), (int)n_workers, (uint64_t)c->seed, &delay, why);
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
