/* What the commands share. The command line knows the library only through paceline.h. */
#ifndef PL_CLI_CLI_H
#define PL_CLI_CLI_H

#include <paceline.h>
#include <stdbool.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* One file per command; each returns an exit status. argv[0] is the command's name. */
int cli_train(int argc, char **argv);
int cli_simulate(int argc, char **argv);
int cli_race(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_eval(int argc, char **argv);

void cli_man(FILE *out); /* the manual, as roff */

/* A warning of the library, as pl_setup_log hands it on. */
void cli_say(void *ctx, int warning, const char *sentence);

/* "paceline: sentence" on standard error; returns `status` as an exit status. */
int cli_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* snprintf at the end of a string that lives in out[max]; cuts, never overflows. */
void cli_append(char *out, size_t max, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* --- arguments --------------------------------------------------------------------------- */

/* A flag of one command alone. Exactly one of the two targets is set. */
struct cli_flag {
    const char *name, *value, *help; /* value: what stands for it in help; NULL for a switch */
    bool *on;
    const char **text;
};

struct cli_args {
    const char *command, *brief, *usage;
    const char *options; /* which of the library's options it takes: "simulate", "race" … */
    const struct cli_flag *flag; /* ends with a NULL name */
    const char *notes;           /* at the end of --help: examples */
    int n_words;
    char **word;              /* what is not a flag, if the command takes words */
    bool takes_words, helped; /* helped: --help was asked for and answered */
    bool changes;             /* an option was given that is not the command's own */
};

/* Takes flags off argv and puts the library's into `setup`. CLI_OK, or CLI_USAGE after having said
 * why. */
int cli_parse(struct cli_args *args, int argc, char **argv, pl_setup *setup);

/* How much the n letters at `a` look like the name `b`: 0 not at all. Letters in common, and a
 * common beginning, are enough to say what was meant. */
int cli_likeness(const char *a, size_t n, const char *b);

/* Whether `command` ("simulate", "plan") takes the library's option. */
bool cli_takes(const struct pl_item *option, const char *command);

/* Whether to print an option's default after its help, which may tell it already. */
bool cli_shows_default(const struct pl_item_option *option);

/* Whether there is nothing to add to an option's help: any text is accepted, and no default shown.
 */
bool cli_says_nothing(const struct pl_item_option *option);

/* What stands for the value of a number in help: " N", " X" or "". */
const char *cli_placeholder(const struct pl_item_option *option);

/* The value of an option that is a number, and whether the run has a target. */
double cli_number(pl_setup *setup, const char *key);
bool cli_has_target(pl_setup *setup);

/* --- results ----------------------------------------------------------------------------- */

/* Prints what came of a run; returns the exit status. */
int cli_report(pl_run *run, bool json, bool target);

/* Parses, runs and reports: all that a command with one run does. */
int cli_one_run(struct cli_args *args, int argc, char **argv,
                int (*run)(pl_setup *setup, pl_run **out));

/* --- watching ---------------------------------------------------------------------------- */

/* One line on a terminal, renewed while a run goes on; silent elsewhere. Also ends the run on
 * Ctrl-C and SIGTERM. */
struct cli_progress {
    char name[64];        /* in front */
    double time, updates; /* where the run ends; 0 if unknown */
    bool shown;
    double next, loss, accuracy;
    double at, samples; /* the run's time and samples when the line was last renewed */
};
void cli_progress_begin(struct cli_progress *p, const char *name, pl_setup *setup);
void cli_progress_point(void *ctx, const struct pl_point *p);
int cli_progress_tick(void *ctx, const struct pl_point *p);
void cli_progress_end(struct cli_progress *p);
void cli_catch_signals(void);
bool cli_interrupted(void);

/* Flushes standard output; CLI_FAILED with a sentence where it did not get there. */
int cli_finish(int status);

#endif
