/* The learning rate that serves an entrant best, by simulated runs.
 *
 * Rates are the method's own times powers of two. The search walks up while that helps, then down,
 * and stops two steps after the best: the best is never the last that was tried, but for a bound.
 * A rate counts by its times to the target; a run may not take longer than the best so far, so bad
 * rates cost little. Where no rate reaches the target, the error at the end counts; in a race
 * without one, the training loss at the end, which ranks its entrants.
 * All entrants are tuned with the same random numbers, which are not those of the race. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "race.h"

#define TUNE_STEPS 12  /* at most, in each direction: up to 4096 times the rate, or as far below */
#define TUNE_MISSES 2  /* rates in a row that do not help end a direction */
#define TUNE_SEEDS 2   /* runs per rate */
#define TUNE_APART 1e6 /* the seeds of these runs come after those of any race */

struct tune {
    struct race *race;
    struct race_entrant *entrant;
    double base;  /* the method's own rate */
    double limit; /* seconds of the race; 0: none */
    double best, best_time, best_error;
    int n_runs; /* that have ended */
    int n_left; /* rates to try after the present one, at least */
};

_Static_assert(RACE_TUNE_LEAST == 1 + 2 * TUNE_MISSES, "its own rate, and those that do not help");

/* What a run has at the end, smaller being better. */
static double tune_error(const struct tune *t, const pl_run *run) {
    double rmse = pl_run_number(run, "test_rmse"), loss = pl_run_number(run, "loss");
    double accuracy = pl_run_number(run, "test_accuracy");
    if (pl_run_diverged(run)) return (double)INFINITY;
    if (!t->race->target) return loss;
    return isfinite(rmse) ? rmse : isfinite(accuracy) ? 1 - accuracy : loss;
}

/* One run at the rate. Adds up its time to the target, NAN if it is not reached, and its error. */
static int tune_run(struct tune *t, double lr, int seed, double *seconds, double *error) {
    pl_setup *one = NULL;
    pl_run *run = NULL;
    char text[64];
    struct cli_progress progress = {0};
    t->entrant->tuned = lr;
    int status = cli_race_setup(t->race, t->entrant, &one);
    t->entrant->tuned = NAN;
    if (status == CLI_OK) {
        double left = t->best_time - *seconds; /* NAN as long as no rate reached the target */
        cli_race_alone(one);
        snprintf(text, sizeof text, "%.0f", t->race->first_seed + TUNE_APART + seed);
        pl_setup_set(one, "seed", text);
        if (t->race->target && left > 0 && !(t->limit > 0 && t->limit < left)) {
            snprintf(text, sizeof text, "%.17g", left);
            pl_setup_set(one, "time", text);
        }
        snprintf(text, sizeof text, "tuning %.40s", t->entrant->name);
        if (isfinite(lr)) cli_append(text, sizeof text, ", lr %.3g", lr);
        pl_setup_watch(one, cli_progress_point, cli_progress_tick, &progress);
        cli_progress_begin(&progress, text,
                           t->race->quiet ? CLI_PROGRESS_QUIET : CLI_PROGRESS_TERMINAL, one);
        int rc = pl_simulate(one, &run);
        cli_progress_end(&progress);
        if (rc) status = cli_fail(rc, "in '%s': %s", t->entrant->name, pl_setup_why(one));
    }
    t->n_runs++;
    cli_progress_tell(t->n_runs, t->n_runs + t->n_left);
    if (run) {
        if (t->race->target) *seconds += pl_run_number(run, "time_to_target");
        *error += tune_error(t, run);
        if (isnan(lr)) t->base = pl_run_number(run, "lr");
    }
    pl_run_free(run);
    pl_setup_free(one);
    return status;
}

/* Notes a rate in the order of rates. */
static void tune_note(struct race_entrant *e, struct race_try now) {
    int i = e->n_tried;
    if (i == RACE_TRIES) return;
    for (; i > 0 && e->tried[i - 1].lr > now.lr; i--) e->tried[i] = e->tried[i - 1];
    e->tried[i] = now;
    e->n_tried++;
}

/* Tries a rate; *better tells whether it is the best so far. */
static int tune_try(struct tune *t, double lr, bool *better) {
    double seconds = 0, error = 0;
    int status = CLI_OK, n = 0;
    while (n < TUNE_SEEDS && isfinite(seconds + error) && status == CLI_OK && !cli_interrupted())
        status = tune_run(t, lr, n++, &seconds, &error);
    error /= n > 0 ? n : 1;
    if (status != CLI_OK || cli_interrupted()) return status;
    bool reached = t->race->target && isfinite(seconds);
    *better = reached ? !(seconds >= t->best_time)
                      : isnan(t->best_time) && !(error >= t->best_error) && !isnan(error);
    if (isnan(lr)) lr = t->base;
    tune_note(t->entrant, (struct race_try){lr, reached ? seconds / TUNE_SEEDS : NAN, error});
    if (*better) {
        t->best = lr;
        t->best_error = error;
        if (reached) t->best_time = seconds;
    }
    return status;
}

/* One line per entrant, also where nothing shows progress. */
static void tune_say(const struct tune *t) {
    const struct race_entrant *e = t->entrant;
    if (t->race->quiet) return;
    cli_progress_erase();
    fprintf(stderr, "  tuned %s: lr %.3g, the best of %d", e->name, e->tuned, e->n_tried);
    if (isfinite(t->best_time))
        fprintf(stderr, ", %.3g s to the target in simulated runs", t->best_time / TUNE_SEEDS);
    fputc('\n', stderr);
}

/* Rates to try after this one if none of them helps. */
static int tune_left(int way, int step, int misses) {
    int here = TUNE_MISSES - misses - 1, room = TUNE_STEPS - step;
    return (here < room ? here : room) + (way > 0 ? TUNE_MISSES : 0);
}

int cli_race_tune(struct race *r, int i) {
    struct tune t = {.race = r,
                     .entrant = &r->entrant[i],
                     .base = NAN,
                     .limit = cli_number(r->setup, "time"),
                     .best = NAN,
                     .best_time = NAN,
                     .best_error = NAN,
                     .n_left = RACE_TUNE_LEAST - 1};
    bool better = false;
    if (cli_race_has_rate(t.entrant)) return CLI_OK;
    t.entrant->n_tried = 0;
    int status = tune_try(&t, NAN, &better); /* the method's own rate */
    for (int way = 1; way >= -1; way -= 2)
        for (int step = 1, misses = 0; step <= TUNE_STEPS && misses < TUNE_MISSES; step++) {
            if (status != CLI_OK || cli_interrupted()) return status;
            t.n_left = tune_left(way, step, misses);
            status = tune_try(&t, ldexp(t.base, way * step), &better);
            misses = better ? 0 : misses + 1;
        }
    if (status != CLI_OK || cli_interrupted()) return status;
    t.entrant->tuned = isfinite(t.best) ? t.best : t.base;
    tune_say(&t);
    return status;
}

/* --- the rates of another race --------------------------------------------------------------- */

/* Whether the best learning rate depends on an option: on all but these. */
static bool tune_is_for(const char *option) {
    static const char *const others[] = {"seed",       "updates",      "epochs",  "time",
                                         "eval-every", "eval-samples", "spawn",   "respawn",
                                         "evict",      "lr",           "threads", "dashboard"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(option, others[i]) == 0) return false;
    return true;
}

struct tune_two {
    const struct race *one, *other;
    const char *folder; /* of the other */
    int status;
};

static void tune_compare(void *ctx, const struct pl_item *item) {
    struct tune_two *f = ctx;
    char now[RACE_PATH], then[RACE_PATH];
    if (f->status != CLI_OK || !(item->commands & PL_FOR_RACE) || !tune_is_for(item->name) ||
        pl_setup_get(f->one->setup, item->name, now, sizeof now) ||
        pl_setup_get(f->other->setup, item->name, then, sizeof then) || strcmp(now, then) == 0)
        return;
    f->status =
        cli_fail(CLI_USAGE,
                 "--rates %.200s: these rates were tuned with --%s %.100s, and this race has "
                 "%.100s; leave out --rates to tune, or give METHOD@lr=RATE",
                 f->folder, item->name, *then ? then : "none", *now ? now : "none");
}

int cli_race_rates(struct race *r, const char *folder) {
    struct race other = {.n_seeds = 1};
    int status = CLI_FAILED, n = 0;
    struct tune_two two = {r, &other, folder, CLI_OK};
    other.entrant = calloc(RACE_ENTRANTS, sizeof *other.entrant);
    if (!other.entrant || pl_setup_new(&other.setup))
        status = cli_fail(CLI_FAILED, "out of memory");
    else
        status = cli_race_load(&other, folder);
    if (status == CLI_OK) pl_list("option", tune_compare, &two);
    if (status == CLI_OK) status = two.status;
    for (int i = 0; status == CLI_OK && i < r->n; i++)
        for (int j = 0; j < other.n; j++)
            if (strcmp(r->entrant[i].name, other.entrant[j].name) == 0 &&
                isfinite(other.entrant[j].tuned)) {
                r->entrant[i].tuned = other.entrant[j].tuned;
                n++;
            }
    if (status == CLI_OK && n == 0)
        status =
            cli_fail(CLI_USAGE, "--rates %.200s: none of these methods was tuned there", folder);
    if (other.entrant) cli_race_free(&other);
    return status;
}
