/* Joins runtime.c and bound.c into a table and picks K by a search over its rows. There are at most
 * PL_PLANNER_K_MAX rows per variant, so no derivative and no special treatment of a law is needed.
 *
 * Unless the caller gives p0, the least probability of a fresh gradient, it is 1/P for exponential
 * delays with identical workers (exact for K = 1, a lower bound otherwise) and 0, the safe choice,
 * for all other laws. */
#include "theory/planner.h"

#include <math.h>

#define PLANNER_ALL_UP_TO 32

int pl_planner_ks(int n_workers, int k[PL_PLANNER_K_MAX]) {
    int n = 0;
    double next = PLANNER_ALL_UP_TO;
    for (int i = 1; i <= n_workers && i <= PLANNER_ALL_UP_TO; i++) k[n++] = i;
    if (n_workers <= PLANNER_ALL_UP_TO) return n;
    while ((next *= 1.4142135623730951) < 0.9 * n_workers && n < PL_PLANNER_K_MAX - 1)
        k[n++] = (int)lround(next);
    k[n++] = n_workers;
    return n;
}

static void planner_row(const struct pl_planner_in *in, double target, double p0,
                        struct pl_planner_row *r) {
    pl_bound_of(&in->problem, r->variant, r->k, r->time.lag, p0, &r->bound);
    r->updates_per_s = 1.0 / r->time.seconds;
    r->updates_to_target = pl_bound_updates(&in->problem, &r->bound, target);
    r->seconds_to_target =
        isinf(r->updates_to_target) ? (double)INFINITY : r->updates_to_target * r->time.seconds;
    r->best = false;
}

/* The row with the shortest time; of one variant, or of all (-1). */
static int planner_shortest(const struct pl_planner_row *rows, int n, int variant) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (variant >= 0 && rows[i].variant != (enum pl_variant)variant) continue;
        if (!rows[i].bound.valid || !isfinite(rows[i].seconds_to_target)) continue;
        if (best < 0 || rows[i].seconds_to_target < rows[best].seconds_to_target) best = i;
    }
    return best;
}

/* Compares the chosen row with the best one under other assumptions, in `rows`. */
static void planner_doubt(struct pl_planner_choice *c, const struct pl_planner_row *rows, int n,
                          int variant) {
    c->loose = planner_shortest(rows, n, variant);
    if (c->row < 0 || c->loose < 0) return;
    double ratio = rows[c->row].seconds_to_target / rows[c->loose].seconds_to_target;
    c->regret = fmax(c->regret, rows[c->row].bound.valid ? ratio : (double)INFINITY);
}

static void planner_pick(const struct pl_planner_in *in, double target, double p0,
                         struct pl_planner_row *rows, int n, struct pl_planner_best *best) {
    static const double noise[] = {1, 0.1, 0.01};
    struct pl_planner_row other[PL_PLANNER_ROWS_MAX];
    for (int v = 0; v <= PL_N_VARIANTS; v++) {
        bool all = v == PL_N_VARIANTS;
        int row = planner_shortest(rows, n, all ? -1 : v);
        struct pl_planner_choice *c = all ? &best->overall : &best->variant[v];
        *c = (struct pl_planner_choice){.row = row, .loose = -1, .regret = 1};
        if (!all && row >= 0) rows[row].best = true;
    }
    for (int fresh = 0; fresh < 2; fresh++)
        for (size_t s = 0; s < sizeof noise / sizeof *noise; s++) { /* the loosest one last */
            struct pl_planner_in loose = *in;
            loose.problem.sigma2 *= noise[s];
            if (fresh) loose.problem.gamma = 0;
            for (int i = 0; i < n; i++) {
                other[i] = rows[i];
                planner_row(&loose, target, p0, &other[i]);
            }
            for (int v = 0; v < PL_N_VARIANTS; v++) planner_doubt(&best->variant[v], other, n, v);
            planner_doubt(&best->overall, other, n, -1);
        }
}

int pl_planner_run(const struct pl_planner_in *in, struct pl_planner_row *rows, int *n_rows,
                   struct pl_planner_best *best, struct pl_why *why) {
    int k[PL_PLANNER_K_MAX];
    struct pl_runtime time[PL_PLANNER_K_MAX];
    double target = in->target == 0.0 ? PL_TARGET_DEFAULT : in->target;
    uint64_t draws = in->draws ? in->draws : PL_PLANNER_DRAWS;
    int rc = pl_problem_check(&in->problem, why);
    if (rc) return rc;
    if (!(target > 0.0 && isfinite(target)))
        return pl_fail(why, PL_EUSAGE, "target=%g is not accepted; target takes a number above 0",
                       target);
    if (in->n_workers < 1)
        return pl_fail(why, PL_EUSAGE, "workers=%d is not accepted; give at least 1",
                       in->n_workers);
    struct pl_delay_look look;
    pl_delay_look(in->delay, 0, &look);
    bool alike_exp = look.kind == PL_DELAY_EXP && pl_delay_alike(in->delay);
    double p0 = alike_exp ? 1.0 / in->n_workers : 0.0;
    int n = pl_planner_ks(in->n_workers, k);
    for (int v = 0; v < PL_N_VARIANTS; v++) {
        rc = pl_runtime_of(in->delay, in->n_workers, (enum pl_variant)v, k, n, in->seed, draws,
                           time, why);
        if (rc) return rc;
        for (int i = 0; i < n; i++) {
            struct pl_planner_row *r = &rows[i * PL_N_VARIANTS + v];
            r->variant = (enum pl_variant)v;
            r->k = k[i];
            r->time = time[i];
            planner_row(in, target, p0, r);
        }
    }
    *n_rows = n * PL_N_VARIANTS;
    planner_pick(in, target, p0, rows, *n_rows, best);
    return PL_OK;
}
