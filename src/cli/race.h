/* A race: its entrants and their results, which race.c (running), race_entrants.c (who races),
 * race_jobs.c (side by side), race_share.c (several processes), race_tune.c (learning rates),
 * race_file.c and race_runs.c (its folder), race_means.c (statistics), race_verdict.c (sentences),
 * race_table.c (printing) and race_plot.c (drawing) share. */
#ifndef PL_CLI_RACE_H
#define PL_CLI_RACE_H

#include "cli.h"

#define RACE_ENTRANTS 64
#define RACE_SEEDS 200
#define RACE_PATH 512
#define RACE_TRIES 32
#define RACE_JOBS 1024

/* A learning rate that was tried, by runs with seeds of their own. */
struct race_try {
    double lr;
    double seconds; /* mean time to the target; NAN: longer than the best before it, or never */
    double error;   /* at the end: RMSE, 1 - accuracy or loss; without a target, training loss */
};

/* One entrant, method[:options][@key=value…], and the results of its runs by seed. Numbers of runs
 * that are not done, and unknown numbers, are NAN. */
struct race_entrant {
    char *name;
    bool synchronous;                  /* every update waits for all workers */
    double tuned;                      /* its learning rate; NAN: it was not tuned */
    struct race_try tried[RACE_TRIES]; /* in the order of rates */
    int n_tried;
    bool done[RACE_SEEDS], diverged[RACE_SEEDS];
    double to_target[RACE_SEEDS], loss[RACE_SEEDS];
    double within[RACE_SEEDS];   /* to_target may be so much earlier or later */
    double accuracy[RACE_SEEDS]; /* or the test RMSE, if the model predicts ratings */
    double end[RACE_SEEDS];      /* seconds that the run took */
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
    bool serves;               /* a dashboard that shows the runs */
    bool part;                 /* of a larger command, which says what came out */
    int share, shares;         /* which part of the runs is this process's, of how many parts */
    bool closes;               /* this process entered the last result that was missing */
    int jobs;                  /* runs at once, at most */
    int name_width;            /* of the longest entrant */
    int entrant_now, seed_now; /* the run that is under way */
    char *described;           /* the setup that all share, as JSON */
};

/* Runs a race that is part of a larger command, in a folder: begins it there, or goes on with what
 * is there. argv is that of `paceline race`, without a folder. Prints no results. *closes is
 * whether this process is to say what came out. Returns an exit status. */
int cli_race_part(const char *folder, int argc, char **argv, bool *closes);

/* Adds an entrant whose results are unknown. CLI_USAGE if there are too many or it is there. */
int cli_race_add(struct race *r, const char *name);
bool cli_race_has(const struct race *r, const char *name);

void cli_race_free(struct race *r); /* entrants and setup */

/* The setup of one run: the race's, with the entrant's method, options and tuned rate. The caller
 * frees it, also after a failure. */
int cli_race_setup(const struct race *r, const struct race_entrant *e, pl_setup **out);

/* Clears the options that name files and servers, for a run beside the race. */
void cli_race_alone(pl_setup *one);

bool cli_race_has_rate(const struct race_entrant *e); /* in its name, as @lr=… */

/* Finds the entrant's best learning rate by simulated runs, at least this many. */
#define RACE_TUNE_LEAST 5
int cli_race_tune(struct race *r, int i);

/* Something to do: a run of an entrant, or finding its learning rate. */
struct race_task {
    int entrant, seed;
};
#define RACE_TUNING (-1) /* the seed of a task that finds a rate */

/* --- several processes -------------------------------------------------------------------- */

void cli_race_share(struct race *r); /* finds out which share of the runs is this process's */
bool cli_race_mine(const struct race *r, struct race_task task);
void cli_race_lock(const struct race *r, FILE *results);
void cli_race_unlock(const struct race *r, FILE *results);

/* --- side by side ------------------------------------------------------------------------ */

/* Carries a task out. *line is what cli_race_take enters; it stays NULL if there is none because
 * the task failed, after printing an error, or was interrupted. */
typedef int (*race_work)(struct race *r, struct race_task task, char **line);

/* Tunes entrants that need a rate, then runs all that have no result yet, several at once. A task
 * that fails ends no other; returns the exit status of the first that did. */
int cli_race_jobs(struct race *r, race_work work);

/* --- the folder -------------------------------------------------------------------------- */

/* Creates the folder: the given one, or the first free of race, race-2, … */
int cli_race_create(struct race *r, const char *named);

/* Whether there is a race in the folder, and whether all its runs have results. */
bool cli_race_is_in(const char *folder);
bool cli_race_is_complete(const char *folder);

/* Removes the folder if the race failed before its first result. */
void cli_race_forget(const struct race *r);

/* Reads the folder of an earlier race: options into the setup, entrants, results, curves. */
int cli_race_load(struct race *r, const char *folder);

/* Takes the tuned rates of the race in another folder, for entrants of the same name. Refuses one
 * whose options differ in what a rate depends on. */
int cli_race_rates(struct race *r, const char *folder);

/* Refuses options that differ from those of the race that was loaded. */
int cli_race_same(const struct race *r);

/* Writes what the race is, for cli_race_load: once when it begins, and when a rate is tuned. */
int cli_race_save(struct race *r);

/* Opens results.jsonl of the folder for more results. */
int cli_race_open(struct race *r);

/* The evaluation that met the target; NULL: none did. */
const struct pl_point *cli_race_met(const struct race *r, const pl_run *run);

/* The result of a run, or the rates that were tried, as a line of JSON; the caller frees it. NULL:
 * out of memory. */
char *cli_race_result_line(const struct race *r, struct race_task task, pl_run *run);
char *cli_race_rate_line(const struct race *r, int i);

/* Enters such a line, and leaves it in the folder. */
int cli_race_take(struct race *r, struct race_task task, const char *line);

/* The file for the curve of one run. */
void cli_race_curve(const struct race *r, int i, int seed, char *path, size_t max);

/* What the race is (docs/runs.md), for people and other programs. `why` is NULL at the start, and a
 * word of docs/runs.md at the end. */
void cli_race_describe(const struct race *r, const char *why);
void cli_race_run_begins(void *race, const char *header, const char *json); /* for pl_setup_start */
void cli_race_run_ended(const struct race *r, const pl_run *run);

/* --- what it shows ----------------------------------------------------------------------- */

enum race_bound { RACE_EXACT, RACE_AT_LEAST, RACE_AT_MOST };

struct race_mean {
    double mean, half; /* half: of the 95 % interval; NAN with one value, and of a ratio */
    double low, high;  /* the 95 % interval; of a bound, the end that holds; NAN with one value */
    double within;     /* it is not known better than this; 0: it is exact */
    int n;             /* known values; 0: there is no mean */
    enum race_bound bound;
};
struct race_mean cli_race_mean(const double *x, int n);
double cli_race_t95(int degrees); /* two-sided 95 % quantile of Student's t */

/* The geometric mean of ratios, with the interval of their logarithms: twice and half as fast are
 * equally far from 1, and a over b is 1 by b over a. */
struct race_mean cli_race_mean_ratio(const double *x, int n);
double cli_race_shown(struct race_mean m); /* the mean, or the end of its interval that holds */

double cli_race_within(const struct race *r); /* the resolution of times to the target; 0: exact */

/* Appends a number as cli_append does with the format; a bound is rounded to the side on which it
 * holds. Numbers are taken as known to 12 digits: 0.3 stays 0.3. */
void cli_race_append(char *out, size_t max, const char *format, double x, enum race_bound bound);

/* Appends or prints a number with `digits` digits, or fewer: no more decimals than `within`
 * allows. */
void cli_race_digits(char *out, size_t max, int digits, double x, double within,
                     enum race_bound bound);
void cli_race_put(FILE *f, int digits, double x, double within, enum race_bound bound);
const char *cli_race_sign(enum race_bound bound); /* before a bound: "≥ " or "≤ " */

int cli_race_missing(const struct race *r); /* runs without a result */

/* How many of the entrant's runs are done, reached the target, diverged. */
int cli_race_done(const struct race *r, const struct race_entrant *e);
int cli_race_reached(const struct race *r, const struct race_entrant *e);
int cli_race_diverged(const struct race *r, const struct race_entrant *e);

/* Seconds to the target, and how many times as fast as another entrant: the geometric mean of the
 * ratios by seed, with the interval of their logarithms. */
struct race_mean cli_race_time(const struct race *r, const struct race_entrant *e);
struct race_mean cli_race_factor(const struct race *r, const struct race_entrant *e,
                                 const struct race_entrant *base);

/* The factor against the baseline, as the table and the page show it: none if all that is known is
 * a bound that says nothing. */
struct race_mean cli_race_factor_shown(const struct race *r, const struct race_entrant *e);

/* The entrants in the order of the leaderboard; returns how many have a result. */
int cli_race_order(const struct race *r, const struct race_entrant *order[RACE_ENTRANTS]);

/* The entrant that factors are against: the best that is synchronous. NULL if none raced. */
const struct race_entrant *cli_race_baseline(const struct race *r);

/* What the race has shown, a sentence per line; the caller frees it. NULL if there is no result. */
char *cli_race_verdict(const struct race *r);

/* Whether there is a model to evaluate; timing can be simulated alone. */
bool cli_race_scores(pl_setup *setup);

/* What is raced, as in "simulated race: data digits, model softmax, …"; the caller frees it. */
char *cli_race_workload(const struct race *r);

/* Draws plot.svg in the folder; *drawn is false if no run has a curve. */
int cli_race_plot(const struct race *r, bool *drawn);

void cli_race_board(const struct race *r);
void cli_race_prediction(const struct race *r); /* real races only */
int cli_race_print_json(const struct race *r);

/* How many of the runs that have a result reached the target. */
enum race_arrived { RACE_NONE, RACE_SOME, RACE_ALL };
enum race_arrived cli_race_arrived(const struct race *r);

/* What the table's caption, the JSON object and the page say about the ranking. */
const char *cli_race_sorting(const struct race *r);

/* Says where the learning rates come from; returns whether they make a comparison fair. */
bool cli_race_rates_are(const struct race *r, const char **how);

#endif
