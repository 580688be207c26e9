/* The planner: predictions for every K and every variant before anything runs.
 *
 * For each K (all up to 32, then about two per doubling, and P) and each of the four variants it
 * gives the time per update, the staleness, the error floor, and the time at which the bound of
 * Dutta et al. reaches a target error: seconds per update times updates needed. The recommended K
 * of a variant has the smallest such time among those whose bound is valid (eta small enough) and
 * whose floor is below the target; the overall recommendation is the best of the four. Bounds are
 * pessimistic: use the times for comparison, not as estimates. */
#ifndef PL_THEORY_PLANNER_H
#define PL_THEORY_PLANNER_H

#include "theory/bound.h"

#define PL_PLANNER_K_MAX 80
#define PL_PLANNER_ROWS_MAX (PL_N_VARIANTS * PL_PLANNER_K_MAX)
#define PL_PLANNER_DRAWS 100000 /* default number of delays drawn per simulated cell */

struct pl_planner_in {
    const struct pl_delay *delay; /* opened for n_workers */
    int n_workers;
    struct pl_problem problem;
    double target;  /* target error, as in struct pl_bound; 0: PL_TARGET_DEFAULT */
    uint64_t seed;  /* for the simulated cells */
    uint64_t draws; /* 0: PL_PLANNER_DRAWS */
};

struct pl_planner_row {
    enum pl_variant variant;
    int k;
    struct pl_runtime time;   /* seconds per update and how they were computed, lag, fresh share */
    double updates_per_s;     /* 1 / time.seconds */
    struct pl_bound bound;    /* floor, eta_max, valid, … */
    double updates_to_target; /* INFINITY if the floor is too high */
    double seconds_to_target; /* likewise */
    bool best;                /* the recommended K of this variant */
};

/* A choice among some of the rows. The bound is a worst case: it is also evaluated with a tenth and
 * a hundredth of the noise, and without an effect of staleness. If the chosen row is then far from
 * the best, the bound does not tell which row is. */
struct pl_planner_choice {
    int row;       /* the recommended row; -1: none reaches the target */
    int loose;     /* the best row if the bound is that loose; -1: none */
    double regret; /* most that the time of `row` exceeds the best one by, as a factor */
};

struct pl_planner_best {
    struct pl_planner_choice variant[PL_N_VARIANTS], overall;
};

/* Selects the values of K to list for P workers, ascending from 1 to P. Returns their number. */
int pl_planner_ks(int n_workers, int k[PL_PLANNER_K_MAX]);

/* Writes *n_rows rows (room for PL_PLANNER_ROWS_MAX), ordered by K, then by variant. */
int pl_planner_run(const struct pl_planner_in *in, struct pl_planner_row *rows, int *n_rows,
                   struct pl_planner_best *best, struct pl_why *why);

#endif
