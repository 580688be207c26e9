/* CSV: one row per line, fields separated by commas, semicolons, tabs or blanks; one column is the
 * target, all others are features, except those to be ignored.
 *
 * A field may be quoted ("a, b"; a quote inside is doubled), but ends on its line. The first line
 * holds names if none of its fields is a number. Lines that begin with '#' and blank lines are
 * skipped. Every other field must be there and be a finite number, except in the target of a
 * classification, which may be any text. Classes are numbered in ascending order, as numbers if all
 * are. Every line must have the same number of fields. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/columns.h"
#include "data/file.h"

#define CSV_WINDOW ((size_t)1 << 16)
#define CSV_LINE_MAX ((size_t)1 << 26) /* bytes */

struct csv_conf {
    char file[PL_TEXT_MAX], target[PL_TEXT_MAX], ignore[PL_TEXT_MAX], test[PL_TEXT_MAX];
    int sep;
    struct pl_columns_conf ready;
};
enum { CSV_AUTO, CSV_COMMA, CSV_SEMICOLON, CSV_TAB, CSV_BLANK };

/* Names of classes, numbered in order of appearance. */
struct csv_names {
    char **name;    /* [n] */
    uint32_t *slot; /* [2 room]: the number of a name plus 1, by its hash; 0: free */
    uint64_t n, room, salt;
};

enum csv_role { CSV_FEATURE, CSV_TARGET, CSV_IGNORED };

/* The table, over both files. */
struct csv {
    const struct csv_conf *conf;
    char sep;      /* a character; '\0': not known yet */
    uint8_t *role; /* [n_fields] */
    uint64_t n_fields;
    uint64_t names_hash; /* of the line of names; 0: there is none */
    struct csv_names classes;
};

/* One file while it is read. */
struct csv_text {
    struct pl_file file;
    uint8_t window[CSV_WINDOW];
    size_t at, n;
    char *line; /* [room], without its end */
    size_t length, room;
    uint64_t line_no;
    bool ended;
};

static int csv_bad(const struct csv_text *t, struct pl_why *why, const char *what) {
    return pl_fail(why, PL_EDATA, "%s, line %llu: %s", t->file.path, (unsigned long long)t->line_no,
                   what);
}

/* --- lines --------------------------------------------------------------------------------- */

static int csv_grow(struct csv_text *t, struct pl_why *why) {
    size_t room = t->room ? 2 * t->room : 4096;
    if (room > CSV_LINE_MAX) return csv_bad(t, why, "the line is longer than 64 MiB");
    char *line = realloc(t->line, room);
    if (!line) return pl_fail(why, PL_ENOMEM, "out of memory for a line of %zu bytes", room);
    t->line = line;
    t->room = room;
    return PL_OK;
}

/* Reads the next line, without its end and without a mark of UTF-8 before the first. */
static int csv_line(struct csv_text *t, bool *more, struct pl_why *why) {
    t->length = 0;
    t->line_no++;
    for (*more = false;;) {
        if (t->at == t->n) {
            t->at = 0;
            int rc = pl_file_read(&t->file, t->window, CSV_WINDOW, &t->n, why);
            if (rc) return rc;
            if (t->n == 0) break;
        }
        *more = true;
        char c = (char)t->window[t->at++];
        if (c == '\n') break;
        if (c == '\0') return csv_bad(t, why, "a zero byte; this is not text");
        int rc = t->length + 2 > t->room ? csv_grow(t, why) : PL_OK;
        if (rc) return rc;
        t->line[t->length++] = c;
    }
    if (!t->line) { /* the first line is empty, or there is none */
        int rc = *more ? csv_grow(t, why) : PL_OK;
        if (rc || !*more) return rc;
    }
    if (t->length > 0 && t->line[t->length - 1] == '\r') t->length--;
    t->line[t->length] = '\0';
    if (t->line_no == 1 && strncmp(t->line, "\xef\xbb\xbf", 3) == 0) {
        t->length -= 3;
        memmove(t->line, t->line + 3, t->length + 1);
    }
    return PL_OK;
}

/* The separator that occurs most often in the line, outside quotes. */
static char csv_guess(const char *line) {
    static const char known[] = ",;\t ";
    size_t count[4] = {0}, best = 0;
    bool quoted = false;
    for (; *line; line++) {
        const char *at = strchr(known, *line);
        if (*line == '"') quoted = !quoted;
        if (at && !quoted) count[at - known]++;
    }
    for (size_t i = 1; i < 3; i++)
        if (count[i] > count[best]) best = i;
    return count[best] == 0 && count[3] > 0 ? ' ' : known[best];
}

/* Cuts the next field off the line at *at: unquoted, without blanks around it, ended by a zero in
 * place. *at is NULL after the last. */
static const char *csv_field(const struct csv *c, char **at, bool *bad) {
    char *from = *at, *to = from, *out = from;
    bool blank = c->sep == ' ';
    while (*to == ' ' || (*to == '\t' && c->sep != '\t')) to++;
    if (*to == '"') {
        for (to++; *to && (*to != '"' || to[1] == '"'); to++) {
            if (*to == '"') to++;
            *out++ = *to;
        }
        *bad = *to != '"';
        if (!*bad) to++;
    } else {
        while (*to && *to != c->sep && !(blank && *to == '\t')) *out++ = *to++;
        while (out > from && isblank((unsigned char)out[-1])) out--;
    }
    while (*to && *to != c->sep && isblank((unsigned char)*to)) to++;
    if (*to && *to != c->sep && !(blank && to > from)) *bad = true;
    if (blank)
        while (*to && isblank((unsigned char)to[1])) to++;
    *at = *to && !(blank && !to[1]) ? to + 1 : NULL;
    *out = '\0';
    return from;
}

/* --- values -------------------------------------------------------------------------------- */

static bool csv_number(const char *text, double *value) {
    char *end;
    if (!isdigit((unsigned char)*text) && !strchr("+-.", *text)) return false; /* no nan, no inf */
    if (*text == '\0') return false;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

static uint64_t csv_hash(uint64_t h, const char *s) {
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return (h ^ 0xff) * 0x100000001b3u;
}

/* The slot of a name, or the free one where it belongs. The hash is salted, so that a hostile file
 * cannot aim at one slot; the salt does not affect the result. */
static uint32_t *csv_slot(const struct csv_names *s, const char *name) {
    uint64_t h = csv_hash(s->salt, name), at = (h ^ h >> 32) & (2 * s->room - 1);
    while (s->slot[at] && strcmp(s->name[s->slot[at] - 1], name) != 0)
        at = (at + 1) & (2 * s->room - 1);
    return &s->slot[at];
}

static int csv_more_names(struct csv_names *s, struct pl_why *why) {
    uint64_t room = s->room ? 2 * s->room : 16;
    char **name = realloc(s->name, (size_t)room * sizeof *name);
    if (name) s->name = name;
    uint32_t *slot = name ? calloc((size_t)(2 * room), sizeof *slot) : NULL;
    if (!slot) return pl_fail(why, PL_ENOMEM, "out of memory");
    free(s->slot);
    s->slot = slot;
    s->room = room;
    s->salt = (uint64_t)(uintptr_t)slot * 0xa0761d6478bd642fu;
    for (uint64_t i = 0; i < s->n; i++) *csv_slot(s, s->name[i]) = (uint32_t)(i + 1);
    return PL_OK;
}

/* The number of a class by its name. */
static int csv_class(struct csv_names *s, const char *name, double *y, struct pl_why *why) {
    int rc = s->n == s->room ? csv_more_names(s, why) : PL_OK;
    if (rc) return rc;
    uint32_t *slot = csv_slot(s, name);
    if (*slot == 0) {
        if (s->n == PL_DATA_CLASSES_MAX)
            return pl_fail(why, PL_EDATA,
                           "more than %d different targets; to predict numbers, add task=regress",
                           PL_DATA_CLASSES_MAX);
        s->name[s->n] = strdup(name);
        if (!s->name[s->n]) return pl_fail(why, PL_ENOMEM, "out of memory");
        *slot = (uint32_t)++s->n;
    }
    *y = (double)*slot - 1;
    return PL_OK;
}

/* Whether `list` ("id,name") has the name. */
static bool csv_in_list(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; n > 0 && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && strncmp(at, name, n) == 0) return true;
    return false;
}

/* --- the first line ------------------------------------------------------------------------ */

/* Counts the fields of a line, and those that are numbers. Works on a copy, because fields are cut
 * in place. */
static int csv_count(const struct csv *c, const struct csv_text *t, uint64_t *n,
                     uint64_t *n_numbers, uint64_t *hash, struct pl_why *why) {
    char *copy = strdup(t->line), *at = copy;
    bool bad = false;
    double value;
    if (!copy) return pl_fail(why, PL_ENOMEM, "out of memory");
    *n = *n_numbers = 0;
    *hash = 0xcbf29ce484222325u;
    while (at && !bad) {
        const char *field = csv_field(c, &at, &bad);
        *n_numbers += csv_number(field, &value);
        *hash = csv_hash(*hash, field);
        ++*n;
    }
    free(copy);
    if (bad) return csv_bad(t, why, "a quoted field does not end before the next separator");
    return *n <= PL_DATA_DIM_MAX ? PL_OK : csv_bad(t, why, "too many fields");
}

/* What each column is: by its name, or by its number from 1 if there are no names. */
static int csv_roles(struct csv *c, struct csv_text *t, bool names, struct pl_why *why) {
    const struct csv_conf *conf = c->conf;
    bool last = conf->target[0] == '\0', bad = false, found = last;
    char *at = t->line;
    c->role = calloc((size_t)c->n_fields + 1, 1);
    if (!c->role) return pl_fail(why, PL_ENOMEM, "out of memory");
    uint64_t n_features = 0;
    for (uint64_t i = 0; i < c->n_fields; i++) {
        char number[32];
        const char *name = number;
        snprintf(number, sizeof number, "%llu", (unsigned long long)i + 1);
        if (names) name = csv_field(c, &at, &bad);
        if (last ? i + 1 == c->n_fields : strcmp(name, conf->target) == 0) {
            c->role[i] = CSV_TARGET;
            found = true;
        } else if (csv_in_list(conf->ignore, name)) {
            c->role[i] = CSV_IGNORED;
        } else {
            n_features++;
        }
    }
    if (!found)
        return pl_fail(why, PL_EUSAGE, "%s has no column '%.60s'; %s", t->file.path, conf->target,
                       names ? "give a name of its first line as target=NAME"
                             : "it has no line of names: give the column's number, from 1");
    if (n_features == 0) return csv_bad(t, why, "there is no column left to learn from");
    return PL_OK;
}

/* Looks at the first line of a file. *names: it holds names, and no row. */
static int csv_first(struct csv *c, struct csv_text *t, bool *names, struct pl_why *why) {
    static const char sep[] = {'\0', ',', ';', '\t', ' '};
    uint64_t n = 0, n_numbers = 0, hash = 0;
    if (!c->sep) c->sep = c->conf->sep == CSV_AUTO ? csv_guess(t->line) : sep[c->conf->sep];
    int rc = csv_count(c, t, &n, &n_numbers, &hash, why);
    if (rc) return rc;
    *names = n_numbers == 0;
    if (c->role) { /* the second file */
        if (*names && c->names_hash && hash != c->names_hash)
            return csv_bad(t, why, "the columns have other names than those of the first file");
        return PL_OK;
    }
    c->n_fields = n;
    c->names_hash = *names ? hash : 0;
    return csv_roles(c, t, *names, why);
}

/* --- rows ---------------------------------------------------------------------------------- */

static int csv_row(struct csv *c, struct csv_text *t, struct pl_columns *set, struct pl_why *why) {
    bool bad = false, regress = c->conf->ready.task == PL_TASK_REGRESS;
    char *at = t->line;
    int rc = pl_columns_room(set, why);
    if (rc) return pl_fail_in(why, rc, t->file.path);
    float *x = set->x + set->n * set->dim;
    uint64_t i = 0;
    for (; at && i < c->n_fields; i++) {
        const char *field = csv_field(c, &at, &bad);
        double value = 0;
        if (bad) return csv_bad(t, why, "a quoted field does not end before the next separator");
        if (c->role[i] == CSV_IGNORED) continue;
        if (c->role[i] == CSV_TARGET && !regress) {
            if (!*field) return csv_bad(t, why, "the target is missing");
            rc = csv_class(&c->classes, field, &set->y[set->n], why);
            if (rc) return pl_fail_in(why, rc, t->file.path);
            continue;
        }
        if (!csv_number(field, &value) || !isfinite((float)value))
            return pl_fail(why, PL_EDATA,
                           "%s, line %llu: field %llu is %s%.40s%s, not a finite number%s",
                           t->file.path, (unsigned long long)t->line_no, (unsigned long long)i + 1,
                           *field ? "'" : "empty", field, *field ? "'" : "",
                           c->role[i] == CSV_TARGET
                               ? "; leave out task=regress to predict classes"
                               : "; leave the column out with ignore=NAME, or replace its values");
        if (c->role[i] == CSV_TARGET)
            set->y[set->n] = value;
        else
            *x++ = (float)value;
    }
    if (at || i < c->n_fields)
        return pl_fail(why, PL_EDATA,
                       "%s, line %llu: %s than %llu fields, the number in the first "
                       "line",
                       t->file.path, (unsigned long long)t->line_no, at ? "more" : "fewer",
                       (unsigned long long)c->n_fields);
    set->n++;
    return PL_OK;
}

static int csv_read(struct csv *c, const char *path, struct pl_columns *set, struct pl_why *why) {
    struct csv_text *t = calloc(1, sizeof *t);
    if (!t) return pl_fail(why, PL_ENOMEM, "out of memory");
    bool more = true, first = true;
    int rc = pl_file_open(&t->file, path, why);
    while (!rc) {
        rc = csv_line(t, &more, why);
        if (rc || !more) break;
        if (t->line[0] == '#' || t->line[strspn(t->line, " \t")] == '\0') continue;
        bool names = false;
        if (first) rc = csv_first(c, t, &names, why);
        first = false;
        if (!rc && set->dim == 0)
            for (uint64_t i = 0; i < c->n_fields; i++) set->dim += c->role[i] == CSV_FEATURE;
        if (!rc && !names) rc = csv_row(c, t, set, why);
    }
    if (!rc && set->n == 0) rc = pl_fail(why, PL_EDATA, "%s has no rows", path);
    pl_file_close(&t->file);
    free(t->line);
    free(t);
    return rc;
}

/* --- classes ------------------------------------------------------------------------------- */

struct csv_sorted {
    const char *name;
    double number;
    uint64_t at;
};

static int csv_by_number(const void *a, const void *b) {
    const struct csv_sorted *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static int csv_by_name(const void *a, const void *b) {
    return strcmp(((const struct csv_sorted *)a)->name, ((const struct csv_sorted *)b)->name);
}

/* Renumbers classes from order of appearance to ascending order. Names for the same number, as 1
 * and 1.0, are one class. */
static int csv_ascend(const struct csv_names *s, struct pl_columns *set[2], struct pl_why *why) {
    struct csv_sorted *sorted = calloc((size_t)s->n + 1, sizeof *sorted);
    double *rank = calloc((size_t)s->n + 1, sizeof *rank);
    bool numbers = true;
    if (sorted && rank) {
        for (uint64_t i = 0; i < s->n; i++) {
            sorted[i] = (struct csv_sorted){.name = s->name[i], .at = i};
            numbers = csv_number(s->name[i], &sorted[i].number) && numbers;
        }
        qsort(sorted, (size_t)s->n, sizeof *sorted, numbers ? csv_by_number : csv_by_name);
        /* a number stays itself: a fraction is then seen to be no class */
        for (uint64_t i = 0; i < s->n; i++)
            rank[sorted[i].at] = numbers ? sorted[i].number : (double)i;
        for (int k = 0; k < 2; k++)
            for (uint64_t i = 0; i < set[k]->n; i++) set[k]->y[i] = rank[(uint64_t)set[k]->y[i]];
    }
    free(sorted);
    free(rank);
    return sorted && rank ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
}

static int csv_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct csv_conf *c = conf;
    struct csv table = {.conf = c};
    struct pl_columns train = {0}, test = {0}, *both[2] = {&train, &test};
    if (c->file[0] == '\0') return pl_fail(why, PL_EUSAGE, "csv needs a file: csv:FILE");
    int rc = csv_read(&table, c->file, &train, why);
    if (!rc && c->test[0]) rc = csv_read(&table, c->test, &test, why);
    if (!rc && c->ready.task == PL_TASK_CLASSIFY) rc = csv_ascend(&table.classes, both, why);
    if (!rc) rc = pl_columns_give(data, &train, &test, &c->ready, seed, c->file, why);
    for (uint64_t i = 0; i < table.classes.n; i++) free(table.classes.name[i]);
    free(table.classes.name);
    free(table.classes.slot);
    free(table.role);
    pl_columns_free(&train);
    pl_columns_free(&test);
    return rc;
}

static const struct pl_opt csv_opts[] = {
    PL_OPT_FILE(struct csv_conf, file, "", "file with one row per line, plain or .gz"),
    PL_OPT("target", TEXT, struct csv_conf, target, "", 0, 0, "NAME",
           "column to predict, by its name or its number from 1 (empty: the last one)", 0),
    PL_OPT("ignore", TEXT, struct csv_conf, ignore, "", 0, 0, "NAMES",
           "columns to leave out, by name or number, separated by commas", 0),
    PL_OPT_FILE(struct csv_conf, test, "",
                "file of test rows with the same columns (empty: hold out a part)"),
    PL_OPT_CHOICE(struct csv_conf, sep, "auto", "auto|comma|semicolon|tab|blank",
                  "what separates fields"),
    PL_COLUMNS_OPTS(struct csv_conf),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_csv = {
    .id = {"csv", "a table of your own: one row per line, one column to predict", "", csv_opts,
           sizeof(struct csv_conf), 0},
    .open = csv_open,
};
