/* Reads claims; src/cli/claims.txt explains the format. */
#include "claims.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

extern const unsigned char pl_asset_claims[];
extern const unsigned pl_asset_claims_length;

const char *const cli_claim_forms[CLAIM_FORMS] = {"quick", "full"};

struct claims_reader {
    struct claims *c;
    const char *path;
    int line;
    char *value; /* of the last line, which the next may continue */
    struct claim_setting *setting;
    struct claim *claim; /* one of the two is open */
};

static int claims_bad(const struct claims_reader *r, const char *why, const char *what) {
    return cli_fail(CLI_FAILED, "%.300s, line %d: %s%s%.80s%s", r->path, r->line, why,
                    *what ? " '" : "", what, *what ? "'" : "");
}

/* --- requirements ------------------------------------------------------------------------ */

static bool claims_number(const char *word, double *x) {
    char *end = NULL;
    if (word) *x = strtod(word, &end);
    return word && end > word && !*end;
}

/* at least X | at most X | X to Y | X within P % */
static bool claims_range(char *rest, struct claim_required *q) {
    const char *word[4] = {NULL};
    double x, y;
    for (int i = 0; i < 4; i++) word[i] = strsep(&rest, " ");
    q->least = -(double)INFINITY;
    q->most = (double)INFINITY;
    if (rest || !word[1]) return false;
    if (strcmp(word[0], "at") == 0 && !word[3] && claims_number(word[2], &x)) {
        *(strcmp(word[1], "least") == 0 ? &q->least : &q->most) = x;
        return strcmp(word[1], "least") == 0 || strcmp(word[1], "most") == 0;
    }
    if (!claims_number(word[0], &x) || !claims_number(word[2], &y)) return false;
    bool within = strcmp(word[1], "within") == 0 && word[3] && strcmp(word[3], "%") == 0;
    q->least = within ? x - fabs(x) * y / 100 : x;
    q->most = within ? x + fabs(x) * y / 100 : y;
    return within || (strcmp(word[1], "to") == 0 && !word[3]);
}

/* FIGURE of RUN [over RUN | minus RUN] is RANGE */
static bool claims_required(char *text, struct claim_required *q) {
    q->figure = strsep(&text, " ");
    const char *of = strsep(&text, " ");
    q->run = strsep(&text, " ");
    const char *word = strsep(&text, " ");
    if (!word || strcmp(of, "of") != 0) return false;
    if (strcmp(word, "over") == 0) q->how = CLAIM_OVER;
    if (strcmp(word, "minus") == 0) q->how = CLAIM_MINUS;
    if (q->how != CLAIM_ALONE) {
        q->other = strsep(&text, " ");
        word = strsep(&text, " ");
    }
    return word && strcmp(word, "is") == 0 && text && claims_range(text, q);
}

/* --- lines ------------------------------------------------------------------------------- */

static int claims_block(struct claims_reader *r, const char *kind, const char *name) {
    struct claims *c = r->c;
    bool setting = strcmp(kind, "setting") == 0;
    if (!setting && strcmp(kind, "claim") != 0)
        return claims_bad(r, "neither 'setting' nor 'claim' but", kind);
    if (!name || !*name) return claims_bad(r, "no name after", kind);
    if ((setting ? c->n_settings : c->n_claims) == CLAIMS_MOST)
        return claims_bad(r, "there are too many before", name);
    r->setting = setting ? &c->setting[c->n_settings++] : NULL;
    r->claim = setting ? NULL : &c->claim[c->n_claims++];
    *(setting ? &r->setting->name : &r->claim->name) = name;
    r->value = NULL;
    return CLI_OK;
}

/* Where the value of a key goes; NULL if the open block has no such key. */
static const char **claims_field(const struct claims_reader *r, const char *key) {
    struct claim_setting *s = r->setting;
    struct claim *c = r->claim;
    for (int form = 0; s && form < CLAIM_FORMS; form++)
        if (strcmp(key, cli_claim_forms[form]) == 0) return &s->form[form];
    if (s && strcmp(key, "race") == 0) return &s->race;
    if (s) return strcmp(key, "program") == 0 ? &s->program : NULL;
    if (strcmp(key, "says") == 0) return &c->says;
    if (strcmp(key, "paper") == 0) return &c->paper;
    if (strcmp(key, "reports") == 0) return &c->reports;
    return strcmp(key, "note") == 0 ? &c->note : NULL;
}

static int claims_expected(const struct claims_reader *r, const char *value) {
    bool shown = strcmp(value, "shown") == 0, in_full = strcmp(value, "shown in full") == 0;
    r->claim->expected[CLAIM_QUICK] = shown;
    r->claim->expected[CLAIM_FULL] = shown || in_full;
    if (shown || in_full || strcmp(value, "not shown") == 0) return CLI_OK;
    return claims_bad(r, "'shown', 'shown in full' or 'not shown' is expected, not", value);
}

static int claims_key(struct claims_reader *r, const char *key, char *value) {
    if (!r->setting && !r->claim) return claims_bad(r, "this is in no setting or claim:", key);
    const char **field = claims_field(r, key);
    r->value = value;
    if (field && *field) return claims_bad(r, "given twice:", key);
    if (field) {
        *field = value;
        return CLI_OK;
    }
    if (r->claim && strcmp(key, "expected") == 0) return claims_expected(r, value);
    if (!r->claim || strcmp(key, "holds") != 0) return claims_bad(r, "unknown word", key);
    if (r->claim->n_required == CLAIMS_REQUIRED) return claims_bad(r, "too many requirements", "");
    r->claim->required[r->claim->n_required++].text = value;
    return CLI_OK;
}

/* Appends to the last value, which ends before this line. */
static int claims_continue(struct claims_reader *r, const char *more) {
    if (!r->value) return claims_bad(r, "this continues nothing:", more);
    size_t n = strlen(r->value);
    r->value[n] = ' ';
    memmove(r->value + n + 1, more, strlen(more) + 1);
    return CLI_OK;
}

static int claims_line(struct claims_reader *r, char *line) {
    size_t indent = strspn(line, " ");
    char *rest = line + indent;
    if (!*rest || *rest == '#') return CLI_OK;
    if (indent > 2) return claims_continue(r, rest);
    const char *key = strsep(&rest, " ");
    if (rest) rest += strspn(rest, " ");
    if (indent == 0) return claims_block(r, key, rest);
    return rest && *rest ? claims_key(r, key, rest) : claims_bad(r, "no value after", key);
}

/* --- the whole --------------------------------------------------------------------------- */

/* The first word that a claim must have and does not; NULL: it has all. */
static const char *claims_missing(const struct claim *claim) {
    if (!claim->says) return "says";
    if (!claim->paper) return "paper";
    if (!claim->reports) return "reports";
    return claim->n_required == 0 ? "holds" : NULL;
}

/* Parses the requirements in copies, which follow the text. */
static int claims_parse(struct claims *c, struct claim *claim, const char *path, char **room) {
    const char *missing = claims_missing(claim);
    if (missing)
        return cli_fail(
            CLI_FAILED,
            "%.300s: claim %s has no line '%s'; it needs says, paper, reports and holds", path,
            claim->name, missing);
    for (int i = 0; i < claim->n_required; i++) {
        struct claim_required *q = &claim->required[i];
        char *copy = *room;
        size_t n = strlen(q->text) + 1;
        memcpy(copy, q->text, n);
        *room += n;
        if (!claims_required(copy, q))
            return cli_fail(CLI_FAILED,
                            "%.300s: claim %s: '%.200s' is not FIGURE of SETTING/ENTRANT [over or "
                            "minus SETTING/ENTRANT] is RANGE",
                            path, claim->name, q->text);
        if (!cli_claims_setting(c, q->run) || (q->other && !cli_claims_setting(c, q->other)))
            return cli_fail(CLI_FAILED, "%.300s: claim %s: there is no setting of '%.200s'", path,
                            claim->name, q->text);
    }
    return CLI_OK;
}

static int claims_check(struct claims *c, const char *path, char *room) {
    int status = CLI_OK;
    for (int i = 0; status == CLI_OK && i < c->n_settings; i++) {
        const struct claim_setting *s = &c->setting[i];
        if (!s->race == !s->program || (!s->form[CLAIM_QUICK] && !s->form[CLAIM_FULL]))
            status =
                cli_fail(CLI_FAILED, "%.300s: setting %s needs race or program, and quick or full",
                         path, s->name);
    }
    for (int i = 0; status == CLI_OK && i < c->n_claims; i++)
        status = claims_parse(c, &c->claim[i], path, &room);
    return status;
}

static char *claims_load(const char *path, size_t *n) {
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    ssize_t got = f ? getdelim(&text, &room, '\0', f) : -1;
    bool bad = !f || ferror(f);
    if (bad) cli_fail(CLI_FAILED, "'%.300s' cannot be read: %s", path, strerror(errno));
    if (f) fclose(f);
    if (!bad && got <= 0) cli_fail(CLI_FAILED, "'%.300s' is empty", path);
    *n = got > 0 ? (size_t)got : 0;
    if (got > 0) return text;
    free(text);
    return NULL;
}

int cli_claims_read(struct claims *c, const char *path) {
    size_t n = pl_asset_claims_length;
    char *file = path ? claims_load(path, &n) : NULL;
    *c = (struct claims){0};
    if (path && !file) return CLI_FAILED;
    c->text = calloc(2, n + 1); /* and as much for copies of requirements */
    if (c->text) memcpy(c->text, path ? file : (const char *)pl_asset_claims, n);
    free(file);
    if (!c->text) return cli_fail(CLI_FAILED, "out of memory");
    struct claims_reader r = {.c = c, .path = path ? path : "claims.txt"};
    int status = CLI_OK;
    char *rest = c->text, *line;
    while (status == CLI_OK && (line = strsep(&rest, "\n"))) {
        r.line++;
        status = claims_line(&r, line);
    }
    return status == CLI_OK ? claims_check(c, r.path, c->text + n + 1) : status;
}

void cli_claims_free(struct claims *c) {
    free(c->text);
}

const struct claim *cli_claims_find(const struct claims *c, const char *name) {
    for (int i = 0; i < c->n_claims; i++)
        if (strcmp(c->claim[i].name, name) == 0) return &c->claim[i];
    return NULL;
}

const struct claim_setting *cli_claims_setting(const struct claims *c, const char *run) {
    size_t n = strcspn(run, "/");
    for (int i = 0; run[n] && i < c->n_settings; i++)
        if (strlen(c->setting[i].name) == n && strncmp(c->setting[i].name, run, n) == 0)
            return &c->setting[i];
    return NULL;
}

bool cli_claim_uses(const struct claims *c, const struct claim *claim,
                    const struct claim_setting *setting) {
    for (int i = 0; i < claim->n_required; i++) {
        const struct claim_required *q = &claim->required[i];
        if (cli_claims_setting(c, q->run) == setting) return true;
        if (q->other && cli_claims_setting(c, q->other) == setting) return true;
    }
    return false;
}
