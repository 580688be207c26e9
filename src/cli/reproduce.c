/* paceline reproduce: runs the settings of claims, which are races or commands of other programs,
 * and says what their results show. A setting that several claims use is run once; its folder is
 * OUT/FORM/SETTING, and what is there is not run again. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reproduce.h"

#define REPRODUCE_WORDS 256 /* of the command of a race */

static void reproduce_folder(const struct reproduce *p, const struct claim_setting *s, char *path,
                             size_t max) {
    snprintf(path, max, "%.300s/%s/%.100s", p->out, cli_claim_forms[p->form], s->name);
}

/* --- the list ---------------------------------------------------------------------------- */

/* A setting of the claim that another program runs; NULL: there is none. */
static const struct claim_setting *reproduce_program(const struct reproduce *p,
                                                     const struct claim *c) {
    for (int i = 0; i < p->claims.n_settings; i++)
        if (p->claims.setting[i].program && cli_claim_uses(&p->claims, c, &p->claims.setting[i]))
            return &p->claims.setting[i];
    return NULL;
}

static bool reproduce_has_form(const struct reproduce *p, const struct claim *c,
                               enum claim_form form) {
    for (int i = 0; i < p->claims.n_settings; i++)
        if (!p->claims.setting[i].form[form] &&
            cli_claim_uses(&p->claims, c, &p->claims.setting[i]))
            return false;
    return true;
}

static int reproduce_list(const struct reproduce *p) {
    for (int i = 0; i < p->claims.n_claims; i++) {
        const struct claim *c = &p->claims.claim[i];
        const struct claim_setting *s = reproduce_program(p, c);
        bool quick = reproduce_has_form(p, c, CLAIM_QUICK),
             full = reproduce_has_form(p, c, CLAIM_FULL);
        printf("%s\n    ", c->name);
        cli_wrap(4, 4, c->says);
        fputs("    ", stdout);
        cli_wrap(4, 4, c->paper);
        if (s) printf("    runs %.*s\n", (int)strcspn(s->program, " "), s->program);
        if (!quick || !full)
            printf("    has no %s form: give --%s\n", quick ? "full" : "quick",
                   quick ? "quick" : "full");
    }
    printf("\n%d claims. Run one with 'paceline reproduce NAME', or all with 'paceline reproduce "
           "--quick'.\n",
           p->claims.n_claims);
    return CLI_OK;
}

/* --- settings ---------------------------------------------------------------------------- */

/* Splits text at spaces into further words; returns how many there are then. */
static int reproduce_split(char *text, char **word, int n) {
    for (char *one; n < REPRODUCE_WORDS - 1 && (one = strsep(&text, " "));)
        if (*one) word[n++] = one;
    return n;
}

/* Runs what has no result yet of a setting that has this form. */
static int reproduce_run(struct reproduce *p, const struct claim_setting *s) {
    char folder[REPRODUCE_PATH], text[REPRODUCE_COMMAND], *word[REPRODUCE_WORDS + 2];
    reproduce_folder(p, s, folder, sizeof folder);
    snprintf(text, sizeof text, "%s %s%s%s%s", s->program ? s->program : s->race, s->form[p->form],
             p->jobs ? " --jobs " : "", p->jobs ? p->jobs : "", p->quiet ? " --quiet" : "");
    int n = reproduce_split(text, word, 0), i = (int)(s - p->claims.setting);
    word[n] = NULL;
    if (s->race && strcmp(word[0], "race") != 0)
        return cli_fail(CLI_FAILED, "setting %s is not a race: '%.100s'", s->name, s->race);
    char command[REPRODUCE_COMMAND];
    cli_setting_command(p, s, command, sizeof command);
    if (!p->quiet) fprintf(stderr, "setting %s: %s\n", s->name, command);
    bool closes = false, whole = access(folder, F_OK) != 0;
    double begun = cli_now();
    int status = s->program ? cli_program_part(p, s, folder, word, n, &p->missing[i])
                            : cli_race_part(folder, n, word, &closes);
    if (whole && status == CLI_OK) p->seconds[i] = cli_now() - begun;
    p->closes = p->closes || closes;
    return status == CLI_USAGE
               ? cli_fail(CLI_FAILED, "setting %s: remove '%s' to run it again", s->name, folder)
               : status;
}

/* The results of a setting; NULL if some are missing. */
static json_t *reproduce_results(const struct reproduce *p, const struct claim_setting *s) {
    char path[REPRODUCE_PATH + 32], folder[REPRODUCE_PATH], *line = NULL;
    size_t room = 0;
    reproduce_folder(p, s, folder, sizeof folder);
    if (!(s->program ? cli_program_is_complete : cli_race_is_complete)(folder)) return NULL;
    json_t *all = json_array();
    snprintf(path, sizeof path, "%s/results.jsonl", folder);
    FILE *f = fopen(path, "r");
    while (f && getline(&line, &room, f) > 0) {
        json_t *one = json_loads(line, 0, NULL);
        if (json_is_string(json_object_get(one, "entrant"))) json_array_append(all, one);
        json_decref(one);
    }
    free(line);
    if (f) fclose(f);
    return all;
}

/* Whether a claim that is wanted uses the setting. */
static bool reproduce_needs(const struct reproduce *p, const struct claim_setting *s) {
    for (int i = 0; i < p->claims.n_claims; i++)
        if (p->wanted[i] && cli_claim_uses(&p->claims, &p->claims.claim[i], s)) return true;
    return false;
}

/* Makes OUT and OUT/FORM. */
static int reproduce_folders(const struct reproduce *p) {
    char path[REPRODUCE_PATH];
    if (strlen(p->out) > 300) return cli_fail(CLI_USAGE, "--out %.40s… is too long", p->out);
    snprintf(path, sizeof path, "%s/%s", p->out, cli_claim_forms[p->form]);
    if ((mkdir(p->out, 0777) == 0 || errno == EEXIST) &&
        (mkdir(path, 0777) == 0 || errno == EEXIST))
        return CLI_OK;
    return cli_fail(CLI_FAILED, "'%s' cannot be created: %s", path, strerror(errno));
}

/* Reads what came out of a setting, at the end, because other processes that share the settings may
 * have run it meanwhile. */
static int reproduce_look(struct reproduce *p, int i) {
    const struct claim_setting *s = &p->claims.setting[i];
    char folder[REPRODUCE_PATH];
    reproduce_folder(p, s, folder, sizeof folder);
    p->results[i] = reproduce_results(p, s);
    if (!p->results[i] && !p->missing[i] && s->program) p->missing[i] = cli_program_missing(folder);
    if (!p->named || !p->missing[i]) return CLI_OK;
    return cli_fail(CLI_FAILED, "setting %s cannot be run here: %s", s->name, p->missing[i]);
}

static int reproduce_settings(struct reproduce *p) {
    bool done[CLAIMS_MOST] = {false};
    int status = reproduce_folders(p), failed = CLI_OK;
    for (int i = 0; i < p->claims.n_settings; i++) p->seconds[i] = (double)NAN;
    for (int i = 0; status == CLI_OK && i < p->claims.n_settings; i++) {
        const struct claim_setting *s = &p->claims.setting[i];
        if (!reproduce_needs(p, s) || p->missing[i]) continue;
        int rc = reproduce_run(p, s);
        if (cli_interrupted())
            return cli_fail(CLI_INTERRUPTED, "interrupted; the same command goes on");
        done[i] = rc == CLI_OK;
        if (rc != CLI_OK) failed = rc;
    }
    for (int i = 0; i < p->claims.n_settings; i++)
        if (done[i] && reproduce_look(p, i) != CLI_OK) failed = CLI_FAILED;
    return status == CLI_OK ? failed : status;
}

/* Whether every setting that is needed, and can be run here, has all its results. */
static bool reproduce_is_complete(const struct reproduce *p) {
    for (int i = 0; i < p->claims.n_settings; i++)
        if (!p->results[i] && !p->missing[i] && reproduce_needs(p, &p->claims.setting[i]))
            return false;
    return true;
}

const char *cli_claim_missing(const struct reproduce *p, const struct claim *claim) {
    for (int i = 0; i < p->claims.n_settings; i++)
        if (p->missing[i] && cli_claim_uses(&p->claims, claim, &p->claims.setting[i]))
            return p->missing[i];
    return NULL;
}

/* --- the command ------------------------------------------------------------------------- */

/* Where to look: races have curves. */
static void reproduce_hint(const struct reproduce *p) {
    const char *form = cli_claim_forms[p->form];
    printf("\npage: %s/%s.html", p->out, form);
    for (int i = 0; i < p->claims.n_settings; i++) {
        const struct claim_setting *s = &p->claims.setting[i];
        if (!p->results[i] || !s->race) continue;
        char folder[1000], word[4 * sizeof folder];
        snprintf(folder, sizeof folder, "%s/%s/%s", p->out, form, s->name);
        printf("   curves: paceline report %s", cli_word(word, sizeof word, folder));
        break;
    }
    putchar('\n');
}

/* Says what came out; the exit status. */
static int reproduce_conclude(const struct reproduce *p) {
    int n_failed = 0, status = cli_reproduce_write(p);
    for (int i = 0; i < p->claims.n_claims; i++)
        n_failed += p->wanted[i] && cli_claim_fails(p, &p->claims.claim[i]);
    if (p->json) {
        json_t *all = cli_reproduce_outcomes(p);
        if (!all || json_dumpf(all, stdout, JSON_COMPACT) != 0) status = CLI_FAILED;
        putchar('\n');
        json_decref(all);
    } else {
        cli_reproduce_table(p);
        reproduce_hint(p);
    }
    if (status == CLI_OK && p->check && n_failed > 0)
        return cli_fail(CLI_FAILED, "%d claim%s expected to be shown %s not", n_failed,
                        n_failed == 1 ? " that is" : "s that are", n_failed == 1 ? "is" : "are");
    return status;
}

static int reproduce_unknown(const struct reproduce *p, const char *name) {
    int best = 0;
    const char *near = NULL;
    for (int i = 0; i < p->claims.n_claims; i++) {
        int like = cli_likeness(name, strlen(name), p->claims.claim[i].name);
        if (like > best) near = p->claims.claim[i].name;
        if (like > best) best = like;
    }
    if (near)
        return cli_fail(CLI_USAGE, "there is no claim '%.60s'; did you mean '%s'?", name, near);
    return cli_fail(CLI_USAGE, "there is no claim '%.60s'; 'paceline reproduce' lists them", name);
}

static int reproduce_choose(struct reproduce *p, const struct cli_args *args) {
    for (int i = 0; i < args->n_words; i++) {
        const struct claim *c = cli_claims_find(&p->claims, args->word[i]);
        if (!c) return reproduce_unknown(p, args->word[i]);
        p->wanted[c - p->claims.claim] = true;
    }
    p->named = args->n_words > 0;
    for (int i = 0; !p->named && i < p->claims.n_claims; i++) p->wanted[i] = true;
    return CLI_OK;
}

/* Leaves out the settings that do not have the form. */
static int reproduce_forms(struct reproduce *p, bool listed) {
    const char *form = cli_claim_forms[p->form];
    for (int i = 0; p->named && i < p->claims.n_claims; i++)
        if (p->wanted[i] && !reproduce_has_form(p, &p->claims.claim[i], p->form))
            return cli_fail(CLI_USAGE, "claim %s has no %s form; type 'paceline reproduce %s --%s'",
                            p->claims.claim[i].name, form, p->claims.claim[i].name,
                            cli_claim_forms[!p->form]);
    for (int i = 0; !listed && i < p->claims.n_settings; i++) {
        const struct claim_setting *s = &p->claims.setting[i];
        if (s->form[p->form] || !reproduce_needs(p, s)) continue;
        if (asprintf(&p->missing[i], "it has no %s form", form) < 0)
            return cli_fail(CLI_FAILED, "out of memory");
    }
    return CLI_OK;
}

static const char reproduce_notes[] =
    "Without a name and without --quick, --full or --check, the claims are listed. Each is data:\n"
    "races, or commands of other programs, and what must hold in their results. A claim is\n"
    "shown if the 95 % intervals of its numbers lie in the ranges that it requires. Results are\n"
    "kept, so a command that was interrupted goes on where it was, and a run that failed is run\n"
    "again. A claim whose program cannot run here, because a GPU or data are missing, is left\n"
    "out with a sentence; the paths of programs begin in the source folder. Examples:\n\n"
    "  paceline reproduce\n"
    "  paceline reproduce ksync-time --full\n"
    "  paceline reproduce gap-aware-resnet --full      (bench/deep.py, on a GPU)\n"
    "  paceline reproduce --quick --check\n";

static int reproduce_command(struct reproduce *p, int argc, char **argv, pl_setup *setup) {
    bool quick = false, full = false;
    const struct cli_flag flags[] = {
        {"quick", NULL, "the quick form, minutes on two cores (this is the default)", &quick, NULL},
        {"full", NULL, "the full form: more seeds and longer runs, an hour on two cores", &full,
         NULL},
        {"check", NULL, "exit with status 1 if a claim is not shown that is expected to be",
         &p->check, NULL},
        {"jobs", "N", "carry out N runs at once; results do not depend on it (one per core)", NULL,
         &p->jobs},
        {"out", "DIR", "folder of results and pages; -o for short (reproduce)", NULL, &p->out},
        {"claims", "FILE",
         "read claims from FILE instead, which may run programs (docs/reproduce.md)", NULL,
         &p->file},
        {"json", NULL, "print one JSON object and nothing else", &p->json, NULL},
        {"quiet", NULL, "print no progress, only verdicts", &p->quiet, NULL},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {.command = "reproduce",
                            .brief = "run the claims of papers and say which of them are shown",
                            .usage = "reproduce [CLAIM ...] [--quick | --full] [--NAME VALUE ...]",
                            .flag = flags,
                            .takes_words = true,
                            .notes = reproduce_notes};
    int status = cli_parse(&args, argc, argv, setup);
    if (status != CLI_OK || args.helped) return status;
    if (quick && full) return cli_fail(CLI_USAGE, "give one of --quick and --full");
    p->form = full ? CLAIM_FULL : CLAIM_QUICK;
    p->quiet = p->quiet || p->json;
    status = cli_claims_read(&p->claims, p->file);
    if (status == CLI_OK) status = reproduce_choose(p, &args);
    bool listed = !p->named && !quick && !full && !p->check;
    if (status == CLI_OK) status = reproduce_forms(p, listed);
    if (status != CLI_OK) return status;
    if (listed) return reproduce_list(p);
    status = cli_reproduce_may_write(p);
    if (status != CLI_OK) return status;
    int failed = reproduce_settings(p);
    if (cli_interrupted()) return failed;
    struct race shared = {0};
    cli_race_share(&shared);
    bool closes = p->closes || shared.share == 0; /* that may have had nothing to run */
    if (shared.shares > 1 && !(closes && reproduce_is_complete(p))) return failed;
    status = reproduce_conclude(p);
    return failed != CLI_OK ? failed : status;
}

int cli_reproduce(int argc, char **argv) {
    struct reproduce *p = calloc(1, sizeof *p);
    pl_setup *setup = NULL;
    if (!p || pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    p->out = "reproduce";
    int status = reproduce_command(p, argc, argv, setup);
    for (int i = 0; i < CLAIMS_MOST; i++) {
        json_decref(p->results[i]);
        free(p->missing[i]);
    }
    cli_claims_free(&p->claims);
    pl_setup_free(setup);
    free(p);
    return status;
}
