/* What reproduce.c (the command), reproduce_program.c (settings that other programs run),
 * reproduce_verdict.c (what results show) and reproduce_page.c (what is written about it) share. */
#ifndef PL_CLI_REPRODUCE_H
#define PL_CLI_REPRODUCE_H

#include <jansson.h>

#include "claims.h"
#include "cli.h"
#include "race.h"

#define REPRODUCE_PATH 512
#define REPRODUCE_COMMAND 4096 /* bytes of the command of a setting */

struct reproduce {
    struct claims claims;
    enum claim_form form;
    const char *out;  /* folder of all results */
    const char *jobs; /* value of --jobs, or NULL */
    const char *file; /* of the claims; NULL: those of the program */
    bool check, json, quiet;
    bool closes;                  /* this process says what came out, if all is there */
    bool named;                   /* the claims were given by name */
    bool wanted[CLAIMS_MOST];     /* claims */
    json_t *results[CLAIMS_MOST]; /* of settings, an array of lines; NULL: not all are there */
    double seconds[CLAIMS_MOST];  /* that settings took; NAN: not all of one was run now */
    char *missing[CLAIMS_MOST];   /* what a setting needs that is not here; NULL: it can run */
};

/* What a claim needs that is not here; NULL: it can run. */
const char *cli_claim_missing(const struct reproduce *p, const struct claim *claim);

/* Runs the program of a setting, whose words and their end are given, in a folder, if it is this
 * process's share. *missing is what the program said is missing, which the caller frees, or NULL.
 * Returns an exit status. */
int cli_program_part(struct reproduce *p, const struct claim_setting *s, const char *folder,
                     char **word, int n, char **missing);
bool cli_program_is_complete(const char *folder);
/* What the program, which another process may have run, said is missing; or NULL. The caller frees
 * it. */
char *cli_program_missing(const char *folder);

enum verdict { VERDICT_SHOWN, VERDICT_EDGE, VERDICT_OPEN, VERDICT_NOT, VERDICT_NONE };

/* What the results show of a requirement. */
struct shown {
    enum verdict verdict; /* EDGE: a better rate, which was not tried, could change it; OPEN: too
                           * few seeds to tell; NONE: results are missing */
    struct race_mean ours;
    char run[256], other[256]; /* entrants that were compared */
};

struct shown cli_shown(const struct reproduce *p, const struct claim_required *q);

/* All requirements together; *seeds is the smallest number of runs. */
enum verdict cli_claim_verdict(const struct reproduce *p, const struct claim *claim, int *seeds);
bool cli_claim_fails(const struct reproduce *p,
                     const struct claim *claim); /* expected, not shown */

/* "shown", "not shown", "cannot be told with 3 seeds" or "no results". */
void cli_verdict_words(enum verdict verdict, int seeds, char *out, size_t max);

/* The command of a setting, with quotes for a shell. */
void cli_setting_command(const struct reproduce *p, const struct claim_setting *s, char *out,
                         size_t max);

/* The numbers of a requirement, as "0.634 ± 0.002". */
void cli_shown_words(struct race_mean m, char *out, size_t max);

/* Prints the verdicts on the claims that are wanted. */
void cli_reproduce_table(const struct reproduce *p);

/* What all claims with results show, as JSON; the caller frees it. */
json_t *cli_reproduce_outcomes(const struct reproduce *p);

/* Fails if FORM.json or FORM.html is there and was not written by this command. */
int cli_reproduce_may_write(const struct reproduce *p);

/* Writes FORM.json and FORM.html. */
int cli_reproduce_write(const struct reproduce *p);

#endif
