/* A race: its entrants and their results, which race.c (running) and race_table.c (printing) share.
 */
#ifndef PL_CLI_RACE_H
#define PL_CLI_RACE_H

#include "cli.h"

#define RACE_ENTRANTS 64
#define RACE_SEEDS 200
#define RACE_PATH 512

/* One entrant, method[:options][@key=value…], and the results of its runs. */
struct race_entrant {
    const char *name;
    double to_target[RACE_SEEDS], loss[RACE_SEEDS];
    double accuracy[RACE_SEEDS]; /* or the test RMSE, if the model predicts ratings */
    double staleness[RACE_SEEDS], wasted[RACE_SEEDS], idle[RACE_SEEDS];
    double per_update[RACE_SEEDS];
    double predicted[RACE_SEEDS],
        predicted_per_update[RACE_SEEDS]; /* by the simulator, before a real race */
    bool predicts;                        /* whether the simulator was run first */
    int n_diverged;
};

struct race {
    pl_setup *setup;
    struct race_entrant *entrant;
    int n, n_seeds;
    double first_seed;
    char out[RACE_PATH];
    FILE *results;
    bool real, rates, target;
    int name_width; /* of the longest entrant */
};

void cli_race_board(const struct race *r);
void cli_race_prediction(const struct race *r); /* real races only */

#endif
