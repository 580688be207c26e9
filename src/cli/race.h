/* A race: its entrants and their results, which race.c (running), race_tune.c (learning rates),
 * race_file.c (its folder) and race_table.c (printing) share. */
#ifndef PL_CLI_RACE_H
#define PL_CLI_RACE_H

#include "cli.h"

#define RACE_ENTRANTS 64
#define RACE_SEEDS 200
#define RACE_PATH 512

/* One entrant, method[:options][@key=value…], and the results of its runs by seed. Numbers of runs
 * that are not done, and unknown numbers, are NAN. */
struct race_entrant {
    char *name;
    double tuned; /* its learning rate; NAN: it was not tuned */
    bool done[RACE_SEEDS], diverged[RACE_SEEDS];
    double to_target[RACE_SEEDS], loss[RACE_SEEDS];
    double accuracy[RACE_SEEDS]; /* or the test RMSE, if the model predicts ratings */
    double staleness[RACE_SEEDS], wasted[RACE_SEEDS], idle[RACE_SEEDS];
    double per_update[RACE_SEEDS];
    double lr[RACE_SEEDS];
    double predicted[RACE_SEEDS],
        predicted_per_update[RACE_SEEDS]; /* by the simulator, before a real race */
};

struct race {
    pl_setup *setup;
    struct race_entrant *entrant; /* [RACE_ENTRANTS] */
    int n, n_seeds;
    double first_seed;
    char out[RACE_PATH];
    FILE *results;
    bool real, rates, target, tune, json, quiet;
    int name_width; /* of the longest entrant */
    int entrant_now, seed_now; /* the run that is under way */
    char *described;           /* the setup that all share, as JSON */
};

/* Adds an entrant whose results are unknown. CLI_USAGE if there are too many or it is there. */
int cli_race_add(struct race *r, const char *name);

void cli_race_free(struct race *r); /* entrants and setup */

/* The setup of one run: the race's, with the entrant's method, options and tuned rate. The caller
 * frees it, also after a failure. */
int cli_race_setup(const struct race *r, const struct race_entrant *e, pl_setup **out);

/* Clears the options that name files and servers, for a run beside the race. */
void cli_race_alone(pl_setup *one);

/* Finds the entrant's best learning rate by simulated runs. */
int cli_race_tune(struct race *r, int i);

/* --- the folder -------------------------------------------------------------------------- */

/* Creates the folder: the given one, or the first free of race, race-2, … */
int cli_race_create(struct race *r, const char *named);

/* Removes the folder if the race failed before its first result. */
void cli_race_forget(const struct race *r);

/* Reads the folder of an earlier race: options into the setup, entrants, results, curves. */
int cli_race_load(struct race *r, const char *folder);

/* Takes the tuned rates of the race in another folder, for entrants of the same name. */
int cli_race_rates(struct race *r, const char *folder);

/* Refuses options that differ from those of the race that was loaded. */
int cli_race_same(const struct race *r);

/* Writes what the race is, for cli_race_load: once when it begins, and when a rate is tuned. */
int cli_race_save(const struct race *r);

/* Opens results.jsonl of the folder for more results. */
int cli_race_open(struct race *r);

/* Enters the result of a run and appends it to results.jsonl. */
int cli_race_result(struct race *r, struct race_entrant *e, int seed, pl_run *run);

/* The file for the curve of one run. */
void cli_race_curve(const struct race *r, int i, int seed, char *path, size_t max);

/* What the race is (docs/runs.md), for people and other programs. `why` is NULL at the start, and a
 * word of docs/runs.md at the end. */
void cli_race_describe(const struct race *r, const char *why);
void cli_race_run_begins(void *race, const char *header, const char *json); /* for pl_setup_start */
void cli_race_run_ended(const struct race *r, const pl_run *run);

/* --- printing ---------------------------------------------------------------------------- */

struct race_mean {
    double mean, half; /* half: of the 95 % interval; NAN with one value */
    int n;             /* known values */
};
struct race_mean cli_race_mean(const double *x, int n);

/* How many of the entrant's runs are done. */
int cli_race_done(const struct race *r, const struct race_entrant *e);

/* The entrants in the order of the leaderboard; returns how many have a result. */
int cli_race_order(const struct race *r, const struct race_entrant *order[RACE_ENTRANTS]);

void cli_race_board(const struct race *r);
void cli_race_prediction(const struct race *r); /* real races only */
int cli_race_print_json(const struct race *r);

/* What the table's caption and the JSON object say about the ranking. */
const char *cli_race_sorting(const struct race *r);

#endif
