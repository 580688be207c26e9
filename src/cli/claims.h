/* Claims of papers, as data. A setting is a race, or a command of another program, with a quick and
 * a full form; a claim says what must hold in the results of settings. src/cli/claims.txt has those
 * of the papers that the library implements, and explains the format. */
#ifndef PL_CLI_CLAIMS_H
#define PL_CLI_CLAIMS_H

#include <stdbool.h>

#define CLAIMS_MOST 64     /* settings, and claims */
#define CLAIMS_REQUIRED 24 /* requirements of one claim */

enum claim_form { CLAIM_QUICK, CLAIM_FULL, CLAIM_FORMS };
extern const char *const cli_claim_forms[CLAIM_FORMS]; /* their names */

struct claim_setting {
    const char *name;
    const char *race;              /* words of its command after "paceline"; or, */
    const char *program;           /* if this is not NULL, all words of its command */
    const char *form[CLAIM_FORMS]; /* words to add; NULL: it has no such form */
};

/* A figure of a run, alone, divided by that of another run, or minus that, lies in a range. Where a
 * run is a pattern, the best of the entrants that match it counts. */
enum claim_how { CLAIM_ALONE, CLAIM_OVER, CLAIM_MINUS };
struct claim_required {
    const char *text; /* as written */
    const char *figure, *run, *other;
    enum claim_how how;
    double least, most;
};

struct claim {
    const char *name, *says, *paper, *reports, *note; /* note: NULL if there is none */
    bool expected[CLAIM_FORMS];                       /* to be shown */
    struct claim_required required[CLAIMS_REQUIRED];
    int n_required;
};

struct claims {
    char *text; /* that all strings point into */
    struct claim_setting setting[CLAIMS_MOST];
    struct claim claim[CLAIMS_MOST];
    int n_settings, n_claims;
};

/* Reads the file; NULL: the claims that are part of the program. Returns an exit status. */
int cli_claims_read(struct claims *c, const char *path);
void cli_claims_free(struct claims *c);

const struct claim *cli_claims_find(const struct claims *c, const char *name);

/* The setting before the '/' of a run; NULL if there is none of that name. */
const struct claim_setting *cli_claims_setting(const struct claims *c, const char *run);

bool cli_claim_uses(const struct claims *c, const struct claim *claim,
                    const struct claim_setting *setting);

#endif
