/* What the commands share. The command line uses the library only through paceline.h. */
#ifndef PL_CLI_CLI_H
#define PL_CLI_CLI_H

#include <paceline.h>
#include <stdbool.h>
#include <stdio.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* One file per command; each returns an exit status. argv[0] is the command's name. */
int cli_train(int argc, char **argv);
int cli_simulate(int argc, char **argv);
int cli_launch(int argc, char **argv);
int cli_race(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_predict(int argc, char **argv);
int cli_serve(int argc, char **argv);
int cli_work(int argc, char **argv);
int cli_keys(int argc, char **argv);
int cli_report_page(int argc, char **argv);
int cli_reproduce(int argc, char **argv);

/* The commands are a table in main.c, in the order of the help; it ends with a NULL name. */
struct cli_command {
    const char *name, *brief;
    int (*run)(int argc, char **argv);
};

void cli_man(FILE *out, const struct cli_command *commands); /* the manual, as roff */

/* Prints the completion script of a shell, "bash" or "zsh"; an exit status. */
int cli_completion(int argc, char **argv, const struct cli_command *commands);

/* Prints a message from the library; the callback for pl_setup_log. `ctx` is the name of the run,
 * to print first, or NULL. */
void cli_say(void *ctx, int level, const char *sentence);

/* Prints text on standard error that may come from files or other programs: control characters,
 * which a terminal would carry out, are shown as ^[ or '?'. */
void cli_print(const char *text);
void cli_print_to(FILE *to, const char *text);

/* Prints "paceline: MESSAGE" on standard error and returns `status` as an exit status. */
int cli_fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes the signs that this program prints (±, ×, µ, …) as ASCII, in place, if the locale in the
 * environment is of another character set than UTF-8. Returns the text. */
char *cli_signs(char *text);

/* Decimals that a number has that is known to ± within, which is above 0. */
int cli_decimals(double within);

/* Appends to the string in out[max] with snprintf; truncates, never overflows. */
void cli_append(char *out, size_t max, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Appends n characters that are a word of a command, with quotes if a shell needs them. cli_word
 * writes a whole word so, and returns `out`. */
void cli_append_word(char *out, size_t max, const char *word, size_t n);
const char *cli_word(char *out, size_t max, const char *word);

/* Prints the text of a line, without its end, as cli_print does. On a terminal for which it is too
 * long it is broken between words, and goes on after an indent; a file or a pipe gets one line.
 * cli_put_lines prints lines with their ends. */
void cli_put(FILE *to, int indent, const char *text);
void cli_put_lines(FILE *to, int indent, const char *text);
#define CLI_HEADER_INDENT 12 /* of the header of a run, where texts begin */

/* --- arguments --------------------------------------------------------------------------- */

/* A flag of a single command. Exactly one of the two targets is set. */
struct cli_flag {
    const char *name, *value, *help; /* value: its placeholder in --help; NULL for a switch */
    bool *on;
    const char **text;
};

struct cli_args {
    const char *command, *brief, *usage;
    unsigned options;            /* it accepts the library options of these commands, */
    unsigned own;                /* and this is its own bit, if it has one (enum pl_command) */
    const struct cli_flag *flag; /* ends with a NULL name; NULL: none */
    const char *notes;           /* printed at the end of --help: examples */
    const char *const *preset;   /* pairs of options and values that are set unless given; NULL */
    int n_words;
    char **word;              /* positional arguments, if the command takes them */
    const char *one_word;     /* it takes one word; if there are more or less, this is printed */
    bool takes_words, helped; /* helped: --help was given and printed */
    bool restores;            /* options are those of a saved run unless given */
    bool changes;             /* an option other than the command's own was given */
};

/* Parses argv and sets the library's options in `setup`. Returns CLI_OK, or CLI_USAGE after
 * printing an error. */
int cli_parse(struct cli_args *args, int argc, char **argv, pl_setup *setup);

/* All that commands have in common: makes a setup, parses, calls `run` unless help was wanted, and
 * frees the setup. Returns the exit status. */
typedef int cli_run(const struct cli_args *args, pl_setup *setup, void *ctx);
int cli_with_setup(struct cli_args *args, int argc, char **argv, cli_run *run, void *ctx);

/* Prints what went wrong with the setup, if `rc` is not PL_OK. Returns the exit status. */
int cli_failed(int rc, const pl_setup *setup);

/* Shows `each` the arguments that a command takes, without running it. */
void cli_describe(const struct cli_command *command,
                  void (*each)(void *ctx, const struct cli_args *args), void *ctx);

/* Prints text with line breaks between words, for 79 columns. Further lines are indented; the first
 * one begins at column `at`. */
void cli_wrap(int at, int indent, const char *text);
void cli_wrap_command(int at, int indent, const char *text); /* with a \ before a line break */

/* Scores the similarity of the n characters at `a` to the name `b` by the letters to change, or as
 * its beginning; 0 means not similar. */
int cli_likeness(const char *a, size_t n, const char *b);

/* Whether to print an option's default after its help, which may tell it already. */
bool cli_shows_default(const struct pl_item_option *option);

/* Whether there is nothing to add to an option's help: its type says what is accepted, and no
 * default is shown. */
bool cli_says_nothing(const struct pl_item_option *option);

/* The value of an option that is a number, and whether the run has a target. */
double cli_number(pl_setup *setup, const char *key);
bool cli_has_target(pl_setup *setup);

/* --- results ----------------------------------------------------------------------------- */

/* Prints the results of a run and returns the exit status. */
int cli_report(pl_run *run, bool json, pl_setup *setup);

/* Parses, runs and reports: everything a command with one run does. */
int cli_one_run(struct cli_args *args, int argc, char **argv,
                int (*run)(pl_setup *setup, pl_run **out));

/* Prints the header of a run on standard error; the callback for pl_setup_start. `ctx` is a struct
 * cli_progress, which gets the limits of the run, or NULL. */
void cli_start(void *ctx, const char *header, const char *json);

/* --- watching ---------------------------------------------------------------------------- */

/* On a terminal, one line that is refreshed while a run goes on. Otherwise, and on terminals that
 * cannot move the cursor (TERM=dumb), a line per evaluation, but not more than one per per cent of
 * the run and one per minute; or a line per tenth of a run in a race, and at its end. Also ends the
 * run on Ctrl-C and SIGTERM. */
enum cli_progress_how {
    CLI_PROGRESS_ALL,
    CLI_PROGRESS_PER_RUN,
    CLI_PROGRESS_TERMINAL, /* only the refreshed line */
    CLI_PROGRESS_QUIET
};
struct cli_progress {
    char name[64];                /* printed first */
    double time, updates, epochs; /* the limits of the run; 0 if unknown */
    enum cli_progress_how how;    /* what is printed without a terminal; QUIET: nothing at all */
    bool learns;                  /* the run has a model, which is evaluated */
    bool real;                    /* its time is that of the clock */
    bool replays;                 /* exactly: workers join when its events say so */
    bool refreshes;               /* a line that is refreshed */
    struct pl_point last;         /* the last evaluation */
    bool scored;                  /* there was one */
    bool ended;                   /* the run has */
    double next;                  /* the clock at the next refresh */
    double wait;                  /* and when a file gets a line before the first evaluation */
    double begun, share_begun;    /* the clock and the share of the run when it was first seen */
    double at, samples;           /* the run's time and samples at the last line; NAN: none */
    double share;                 /* of the run at the last line of a file */
    double done;                  /* runs, for cli_progress_many, at the last line of a file */
};
void cli_progress_begin(struct cli_progress *p, const char *name, enum cli_progress_how how,
                        pl_setup *setup);
/* The limits of the run as it begins: those of `json`, which describes it (docs/runs.md). A run
 * that was resumed, or taken over, has those of its checkpoint. */
void cli_progress_limits(struct cli_progress *p, const char *json);
bool cli_can_erase(void);      /* standard error is a terminal that can erase what it shows */
void cli_progress_erase(void); /* makes room for a message */
/* Erases the line below the cursor and everything after it. The cursor is always left at the
 * beginning of the line: if the window becomes narrower, a terminal that breaks the line into two
 * keeps the cursor at its first character, and both are erased. */
#define CLI_ERASE "\r\033[J"
/* From now to its end, the run answers the first signal with a line at once. */
void cli_progress_tells(const struct cli_progress *p);
void cli_progress_point(void *ctx, const struct pl_point *p);
int cli_progress_tick(void *ctx, const struct pl_point *p);
void cli_progress_end(struct cli_progress *p);

/* For runs of other processes that share one line. A process that has called cli_progress_into
 * shows no line, and writes to the file: the share of its run that is done, a number per line; and
 * if it carries out several runs, by cli_progress_tell, "runs", how many have ended, and how many
 * there will be at least. */
void cli_progress_into(int fd);
void cli_progress_tell(int ended, int least);

/* The process with the line shows how many runs of all are done, and in words what is under way;
 * in a file, a line per per cent. Only if their number is `known` there is a percentage, because it
 * would go down when there are more; before that, a line of a file per tenth. */
struct cli_progress_runs {
    int ended, least;
    double under_way; /* the shares of the others, added up */
    bool known;       /* there will not be more than `least` */
    bool steady;      /* what has been done tells how long the rest takes */
};
void cli_progress_many(struct cli_progress *p, const struct cli_progress_runs *runs,
                       const char *under_way);

/* Ctrl-C, SIGTERM and SIGHUP end what goes on in good order, and a second one of them at once. */
void cli_catch_signals(void);
bool cli_interrupted(void);

/* For the handler of a signal: how many count so far, with this one. One that was sent twice counts
 * once, and so does SIGHUP after another. */
int cli_signal(int number);
double cli_now(void); /* seconds of a clock that only goes forward */

/* Flushes standard output. Returns CLI_FAILED after printing an error if that fails. */
int cli_finish(int status);

#endif
