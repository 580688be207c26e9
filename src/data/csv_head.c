/* The first line of a CSV file, and what each column is. See csv.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hint.h"
#include "data/csv.h"

#define CSV_LIST 400  /* bytes of a list of names in a message */
#define CSV_LOOK 1000 /* names that are compared with each other */

/* What a first column without a name is called, as pandas calls it. It is that of an index. */
static char csv_unnamed[] = "Unnamed: 0";

static bool csv_is_index(const char *name) {
    return strcmp(name, csv_unnamed) == 0;
}

/* What a line of names could be: how many fields are numbers, whether those are 0, 1, 2, … in
 * their places, as pandas names columns, and whether no two are equal. An index is left out. */
struct csv_guessed {
    uint64_t n, n_numbers;
    bool in_order, distinct;
};

static int csv_look(const struct csv_fields *f, struct csv_guessed *out, struct pl_why *why) {
    struct pl_names seen = {0};
    int rc = PL_OK;
    *out = (struct csv_guessed){.in_order = true, .distinct = true};
    for (uint64_t i = csv_is_index(f->field[0]); !rc && i < f->n; i++) {
        uint32_t at;
        double value;
        bool number = csv_real(f->field[i], &value);
        out->n_numbers += number;
        out->in_order &= !number || value == (double)out->n;
        rc = pl_names_add(&seen, f->field[i], PL_DATA_DIM_MAX, &at, why);
        out->distinct &= !rc && at == out->n++ && *f->field[i];
    }
    pl_names_free(&seen);
    return rc;
}

/* The field of the target, if `f` is a line of names (names) or of values; f->n if there is none.
 */
static uint64_t csv_target(const char *target, const struct csv_fields *f, bool names) {
    if (!*target) return f->n - 1;
    for (uint64_t i = 0; i < f->n; i++) {
        char number[32];
        snprintf(number, sizeof number, "%llu", (unsigned long long)i + 1);
        if (strcmp(names ? f->field[i] : number, target) == 0) return i;
    }
    return f->n;
}

/* Whether the fields are whole numbers, each above the one before; by_one: by one. */
static bool csv_rises(const struct csv_fields *f, uint64_t from, bool by_one) {
    double last = -1, value;
    for (uint64_t i = from; i < f->n; i++, last = value) {
        if (f->field[i][strspn(f->field[i], "0123456789")] || !csv_real(f->field[i], &value))
            return false;
        if (i > from && (by_one ? value != last + 1 : value <= last)) return false;
    }
    return f->n > from;
}

/* Whether the first line holds names, for header=auto: if none of its fields is a number; if one of
 * them is the target's name; if its fields differ and its numbers are those of their columns, or
 * all count up by one, or the target is a number in one of the two lines only. */
static int csv_guess_header(struct csv *c, const struct csv_fields *a, const struct csv_fields *b,
                            bool *names, struct pl_why *why) {
    const char *target = c->conf->target;
    struct csv_guessed g;
    double value;
    int rc = csv_look(a, &g, why);
    uint64_t at = csv_target(target, a, true);
    *names = false;
    if (rc) return rc;
    if (g.n_numbers == 0) {
        *names = true;
    } else if (*target && at < a->n && !csv_real(target, &value)) {
        *names = true;
    } else if (g.distinct) {
        uint64_t from = csv_is_index(a->field[0]);
        bool all = g.n_numbers == g.n, fraction = false;
        if (at == a->n) at = csv_target(target, a, false);
        *names = (g.in_order && !all) ||
                 (at < a->n && at < b->n &&
                  csv_real(a->field[at], &value) != csv_real(b->field[at], &value));
        for (uint64_t i = 0; i < b->n; i++)
            fraction |= !csv_real(b->field[i], &value) || value != floor(value);
        /* 2019, 2020, 2021 could be a row: they are names if there are many of them, or if a value
         * below is not a whole number */
        if (csv_rises(a, from, true) && !csv_rises(b, from, true))
            *names |= g.n > 3 || (fraction && (g.n > 2 || g.in_order));
        c->may_name = all && csv_rises(a, from, false);
    }
    return PL_OK;
}

/* Appends names to text[CSV_LIST]: a, b, c, … */
static const char *csv_list(char text[CSV_LIST], const struct csv_fields *f) {
    text[0] = '\0';
    for (uint64_t i = 0; i < f->n; i++) {
        if (strlen(text) + 48 > CSV_LIST) {
            pl_append(text, CSV_LIST, ", …");
            break;
        }
        bool named = f->field[i][0] && f->field[i] != csv_unnamed;
        const char *name = named ? f->field[i] : "(unnamed)";
        pl_append(text, CSV_LIST, "%s%.30s", i ? ", " : "", name);
    }
    return text;
}

static int csv_no_column(const struct csv_text *t, const struct csv_fields *f, const char *name,
                         const char *why_needed, struct pl_why *why) {
    char list[CSV_LIST];
    const char *near =
        pl_nearest(name, (const char *const *)f->field, f->n < CSV_LOOK ? f->n : CSV_LOOK);
    return pl_fail(why, PL_EUSAGE, "%s has no column '%.60s'%s; %s%.60s%s columns are %s",
                   t->file.path, name, why_needed, near ? "did you mean '" : "", near ? near : "",
                   near ? "'? Its" : "its", csv_list(list, f));
}

/* What each field is: by its name, or by its number from 1 if there are no names. */
static int csv_roles(struct csv *c, const struct csv_text *t, bool names, struct pl_why *why) {
    const struct csv_conf *conf = c->conf;
    const struct csv_fields *f = &c->names;
    uint64_t target = csv_target(conf->target, f, names), n_columns = 0;
    if (target == f->n && names) return csv_no_column(t, f, conf->target, " to predict", why);
    if (target == f->n)
        return pl_fail(why, PL_EUSAGE,
                       "%s has no column '%.60s'; its first line has no names (header=yes says "
                       "otherwise): give the column's number, from 1 to %llu",
                       t->file.path, conf->target, (unsigned long long)f->n);
    for (uint64_t i = target + 1; names && *conf->target && i < f->n; i++)
        if (strcmp(f->field[i], conf->target) == 0)
            return pl_fail(why, PL_EUSAGE,
                           "%s has two columns called '%.60s'; rename one of them, so that it is "
                           "clear which to predict",
                           t->file.path, conf->target);
    for (uint64_t i = 0; i < c->n_fields; i++) {
        char number[32];
        snprintf(number, sizeof number, "%llu", (unsigned long long)i + 1);
        const char *name = names ? f->field[i] : number;
        if (i == target)
            c->role[i] = CSV_TARGET;
        else if (csv_in_list(conf->ignore, name))
            c->role[i] = CSV_IGNORED;
        else if (names && i == 0 && csv_is_index(name) && !csv_in_list(conf->category, name))
            c->role[i] = CSV_INDEX;
        c->has_index |= c->role[i] == CSV_INDEX;
        n_columns += c->role[i] == 0;
    }
    if (n_columns == 0)
        return csv_bad(t, why,
                       c->has_index ? "there is no column left to learn from: the first one was "
                                      "taken for an index, because it has no name; name it"
                                    : "there is no column left to learn from");
    c->index = -INFINITY;
    int rc = pl_schema_columns(c->schema, n_columns, why);
    c->schema->n_fields = c->n_fields;
    c->schema->target = target;
    for (uint64_t i = 0, k = 0; !rc && i < c->n_fields; i++) {
        if (c->role[i] < 0) continue;
        char number[32];
        snprintf(number, sizeof number, "%llu", (unsigned long long)i + 1);
        struct pl_schema_column *column = &c->schema->column[k];
        column->field = i;
        c->role[i] = (int64_t)k++;
        if (names) column->name = strdup(f->field[i]);
        if (names && !column->name) rc = pl_fail(why, PL_ENOMEM, "out of memory");
        if (!rc && csv_in_list(conf->category, names ? f->field[i] : number))
            rc = pl_schema_texts(column, why);
    }
    return rc;
}

/* The same if the schema is known: columns by their names, in any order and among others; or in
 * their places, with or without the target. */
static int csv_known_roles(struct csv *c, const struct csv_text *t, bool names,
                           struct pl_why *why) {
    const struct pl_schema *s = c->schema;
    const struct csv_fields *f = &c->names;
    struct pl_names found = {0};
    uint32_t at;
    int rc = PL_OK;
    for (uint64_t i = 0; i < f->n; i++) {
        c->role[i] = CSV_IGNORED;
        if (!rc && names) rc = pl_names_add(&found, f->field[i], PL_DATA_DIM_MAX, &at, why);
    }
    bool whole = f->n == s->n_fields, without = f->n + 1 == s->n_fields;
    for (uint64_t k = 0; !rc && k < s->n_columns; k++) {
        const struct pl_schema_column *column = &s->column[k];
        uint64_t i = column->field - (without && column->field > s->target);
        bool there = (whole || without) && i < f->n;
        if (names && column->name && !(there && strcmp(f->field[i], column->name) == 0)) {
            i = pl_names_find(&found, column->name);
            if (i >= f->n)
                rc = csv_no_column(t, f, column->name, ", which the model was trained on", why);
        } else if (!there) {
            rc = pl_fail(why, PL_EDATA,
                         "%s has lines of %llu fields, but the model was trained on lines of %llu; "
                         "%s",
                         t->file.path, (unsigned long long)f->n, (unsigned long long)s->n_fields,
                         column->name ? "give the columns their names in the first line"
                                      : "only the target may be left out");
        }
        if (!rc) c->role[i] = (int64_t)k;
    }
    pl_names_free(&found);
    return rc;
}

static bool csv_same(const struct csv_fields *a, const struct csv_fields *b) {
    for (uint64_t i = 0; i < a->n && i < b->n; i++)
        if (strcmp(a->field[i], b->field[i]) != 0) return false;
    return a->n == b->n;
}

/* Whether the first line holds names. */
static int csv_has_names(struct csv *c, const struct csv_fields *a, const struct csv_fields *b,
                         bool *names, struct pl_why *why) {
    *names = c->conf->header == CSV_HEADER_YES || c->again;
    if (*names || c->conf->header != CSV_HEADER_AUTO) return PL_OK;
    for (uint64_t k = 0; c->known && k < c->schema->n_columns && k < CSV_LOOK; k++)
        for (uint64_t i = 0; i < a->n && i < CSV_LOOK; i++)
            if (c->schema->column[k].name && !strcmp(c->schema->column[k].name, a->field[i])) {
                *names = true;
                return PL_OK;
            }
    return csv_guess_header(c, a, b, names, why);
}

int csv_head(struct csv *c, const struct csv_text *t, const char *first, const char *second,
             bool *names, struct pl_why *why) {
    static const char sep[] = {'\0', ',', ';', '\t', ' '};
    struct csv_fields a = {0}, b = {0};
    if (!c->sep) c->sep = c->conf->sep == CSV_SEP_AUTO ? csv_guess(first) : sep[c->conf->sep];
    int rc = csv_cut(t, c->sep, first, &a, why);
    if (!rc && !*a.field[0]) a.field[0] = csv_unnamed;
    /* the second line only helps to guess; if it is damaged, csv_row says so */
    if (!rc && second) (void)csv_cut(t, c->sep, second, &b, NULL);
    if (!rc && c->role && c->names.n > 0 && csv_same(&a, &c->names))
        *names = c->has_names;
    else if (!rc)
        rc = csv_has_names(c, &a, &b, names, why);
    if (!rc && c->role) { /* the second file */
        if (*names && c->has_names && !csv_same(&a, &c->names))
            rc = csv_bad(t, why, "the columns have other names than those of the first file");
    } else if (!rc) {
        c->names = a;
        a = (struct csv_fields){0};
        c->has_names = *names;
        c->n_fields = c->names.n;
        c->role = calloc((size_t)c->n_fields + 1, sizeof *c->role);
        if (!c->role) rc = pl_fail(why, PL_ENOMEM, "out of memory");
        if (!rc) rc = c->known ? csv_known_roles(c, t, *names, why) : csv_roles(c, t, *names, why);
    }
    csv_fields_free(&a);
    csv_fields_free(&b);
    return rc;
}
