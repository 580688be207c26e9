/* CSV: one row per line, fields separated by commas, semicolons, tabs or blanks; one column is the
 * target, all others are features, except those to be ignored.
 *
 * A field may be quoted ("a, b"; a quote inside is doubled), but ends on its line. Lines that begin
 * with '#' and blank lines are skipped. The first value of a column decides what it is: numbers,
 * or texts, which become one feature per category. The target of a classification may be any text;
 * classes are numbered in ascending order, as numbers if all are. Every line must have the same
 * number of fields. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv.h"

#define CSV_MANY 100 /* numbers that are not classes, if most of them occur once */

/* --- rows ---------------------------------------------------------------------------------- */

/* Says what is wrong with a value: its line, its field and what to type. */
static int csv_bad_value(const struct csv *c, const struct csv_text *t, uint64_t i,
                         const char *field, const char *what, const char *instead,
                         struct pl_why *why) {
    char name[64] = "", which[32];
    snprintf(which, sizeof which, "%llu", (unsigned long long)i + 1);
    if (c->has_names) snprintf(name, sizeof name, " ('%.40s')", c->names.field[i]);
    int rc = pl_fail(why, PL_EDATA, "%s, line %llu: field %s%s is %s%.40s%s%s%s", t->file.path,
                     (unsigned long long)t->line_no, which, name, *field ? "'" : "empty", field,
                     *field ? "'" : "", what, instead);
    bool named = !c->has_names || *c->names.field[i];
    /* a model that is known needs its columns */
    if (why && named && !c->known && c->role[i] != CSV_TARGET)
        pl_append(why->text, sizeof why->text, ", or leave the column out with ignore=%.40s",
                  c->has_names ? c->names.field[i] : which);
    return rc;
}

/* The same for a value that should be a number. */
static int csv_no_number(const struct csv *c, const struct csv_text *t, uint64_t i,
                         const char *field, const char *what, const char *instead,
                         struct pl_why *why) {
    char number[80];
    const char *written = csv_written(field);
    if (!written) return csv_bad_value(c, t, i, field, what, instead, why);
    snprintf(number, sizeof number, ", a number with %s", written);
    return csv_bad_value(c, t, i, field, number,
                         c->known || c->role[i] == CSV_TARGET
                             ? "; write numbers as 1234.5, with a point and nothing else"
                             : "; write numbers as 1234.5, with a point and nothing else, make the "
                               "column one of texts with category=NAME",
                         why);
}

/* An index counts up, from any number and with gaps, because rows may have been removed. */
static int csv_count(struct csv *c, const struct csv_text *t, const char *field,
                     struct pl_why *why) {
    double before = c->index;
    if (csv_real(field, &c->index) && c->index == floor(c->index) && c->index > before)
        return PL_OK;
    return csv_bad_value(c, t, 0, field,
                         ", but a first column without a name is taken for an index, which counts "
                         "up",
                         "; to learn from the column, name it in the first line", why);
}

/* A value of a column of texts: the number of its category. */
static int csv_category(struct csv *c, const struct csv_text *t, uint64_t i, const char *field,
                        float *x, struct pl_why *why) {
    struct pl_schema_column *column = &c->schema->column[c->role[i]];
    uint32_t number = pl_names_find(column->texts, csv_missing(field) ? "" : field);
    uint64_t max = c->known ? 0 : (uint64_t)c->conf->categories;
    int rc = PL_OK;
    if (number == PL_NO_NAME && column->texts->n < max)
        rc = pl_names_add(column->texts, csv_missing(field) ? "" : field, max, &number, why);
    *x = number == PL_NO_NAME ? -1 : (float)number; /* a text that is not known is no category */
    if (rc || c->known || number != PL_NO_NAME) return rc;
    char what[120];
    snprintf(what, sizeof what, ", and the column has more than %lld different texts",
             (long long)max);
    return csv_bad_value(c, t, i, field, what, "; allow more with categories=N", why);
}

/* The first value of a column decides what it has. Rows before it have none there. */
static int csv_decide(struct csv *c, const struct csv_text *t, uint64_t i, const char *field,
                      struct pl_columns *set, struct pl_why *why) {
    struct pl_schema_column *column = &c->schema->column[c->role[i]];
    double value;
    char *end;
    column->kind = PL_COLUMN_NUMBER;
    (void)strtod(field, &end);
    /* infinity and 1e999 are spelled like numbers, and refused as such */
    if (csv_number(field, &value) || *end == '\0') return PL_OK;
    if (c->conf->categories == 0 || csv_written(field))
        return csv_no_number(c, t, i, field, ", not a finite number",
                             "; leave out categories=0, replace its values", why);
    int rc = pl_schema_texts(column, why);
    for (uint64_t row = 0; !rc && row < set->n; row++)
        rc = csv_category(c, t, i, "", &set->x[row * set->dim + (uint64_t)c->role[i]], why);
    return rc;
}

static int csv_feature(struct csv *c, const struct csv_text *t, uint64_t i, const char *field,
                       struct pl_columns *set, float *x, struct pl_why *why) {
    struct pl_schema_column *column = &c->schema->column[c->role[i]];
    double value = NAN;
    bool missing = csv_missing(field);
    *x = NAN;
    if (missing && c->conf->missing == CSV_REFUSE)
        return csv_bad_value(c, t, i, field, "",
                             "; add missing=fill to replace missing numbers by the mean of their "
                             "column and make missing texts a category",
                             why);
    int rc = PL_OK;
    if (!missing && column->kind == PL_COLUMN_UNKNOWN) rc = csv_decide(c, t, i, field, set, why);
    if (rc) return rc;
    if (column->kind == PL_COLUMN_TEXTS) return csv_category(c, t, i, field, x, why);
    if (missing) return PL_OK;
    if (!csv_number(field, &value) || !isfinite((float)value))
        return c->known
                   ? csv_no_number(c, t, i, field,
                                   ", not a finite number as in the rows of the training",
                                   "; replace it, or empty the field and add missing=fill", why)
                   : csv_no_number(c, t, i, field,
                                   set->n ? ", not a finite number as in the lines above"
                                          : ", not a finite number",
                                   "; replace it, make the column one of texts with "
                                   "category=NAME",
                                   why);
    *x = (float)value;
    return PL_OK;
}

static int csv_no_target(const struct csv *c, const struct csv_text *t, uint64_t i,
                         struct pl_why *why) {
    const char *name = c->has_names ? c->names.field[i] : "";
    bool given = *c->conf->target, unnamed = c->has_names && !*name;
    char which[64] = "";
    if (*name) snprintf(which, sizeof which, ", '%.40s'", name);
    return pl_fail(why, PL_EDATA,
                   "%s, line %llu: the target is missing (field %llu%s%s%s), which missing=fill "
                   "does not replace; %s%s",
                   t->file.path, (unsigned long long)t->line_no, (unsigned long long)i + 1,
                   given ? "" : ", the last one", which, unnamed ? ", without a name" : "",
                   unnamed ? "if each line ends with a separator, remove it"
                           : "remove the line or write the target",
                   given ? "" : "; if another column is the target, add target=NAME");
}

static int csv_class(struct csv *c, const struct csv_text *t, const char *field, double *y,
                     struct pl_why *why) {
    uint32_t number;
    int rc = pl_names_add(&c->classes, field, PL_DATA_CLASSES_MAX, &number, why);
    if (!rc && number == PL_NO_NAME)
        rc = pl_fail(why, PL_EDATA,
                     "%s: more than %d different targets; to predict numbers, add task=regress",
                     t->file.path, PL_DATA_CLASSES_MAX);
    *y = number;
    return rc;
}

static int csv_row(struct csv *c, const struct csv_text *t, char *line, struct pl_columns *set,
                   struct pl_why *why) {
    bool regress = c->conf->ready.task == PL_TASK_REGRESS;
    const char *bad = NULL;
    char *at = line;
    int rc = pl_columns_room(set, why);
    if (rc) return pl_fail_in(why, rc, t->file.path);
    float *x = set->x + set->n * set->dim;
    uint64_t i = 0;
    for (; at && i < c->n_fields && !rc; i++) {
        const char *field = csv_field(c->sep, &at, &bad);
        if (bad) return csv_bad(t, why, bad);
        if (c->role[i] >= 0)
            rc = csv_feature(c, t, i, field, set, &x[c->role[i]], why);
        else if (c->role[i] == CSV_TARGET && (regress ? csv_missing(field) : !*field))
            rc = csv_no_target(c, t, i, why);
        else if (c->role[i] == CSV_INDEX)
            rc = csv_count(c, t, field, why);
        else if (c->role[i] == CSV_TARGET && !regress)
            rc = csv_class(c, t, field, &set->y[set->n], why);
        else if (c->role[i] == CSV_TARGET && !csv_number(field, &set->y[set->n]))
            rc = csv_no_number(c, t, i, field, ", not a finite number",
                               "; leave out task=regress to predict classes", why);
    }
    if (rc) return rc;
    if (at || i < c->n_fields)
        return pl_fail(why, PL_EDATA,
                       "%s, line %llu: %s than %llu fields, the number in the first line",
                       t->file.path, (unsigned long long)t->line_no, at ? "more" : "fewer",
                       (unsigned long long)c->n_fields);
    set->n++;
    return PL_OK;
}

/* Reads the first two lines, of which the first may hold names. */
static int csv_begin(struct csv *c, struct csv_text *t, struct pl_columns *set, bool *more,
                     struct pl_why *why) {
    bool names = false;
    int rc = csv_line(t, more, why);
    if (rc || !*more) return rc;
    char *first = strdup(t->line);
    uint64_t first_no = t->line_no;
    if (!first) return pl_fail(why, PL_ENOMEM, "out of memory");
    rc = csv_line(t, more, why);
    uint64_t second_no = t->line_no;
    t->line_no = first_no;
    if (!rc) rc = csv_head(c, t, first, *more ? t->line : NULL, &names, why);
    set->dim = c->schema->n_columns;
    if (!rc && !names) rc = csv_row(c, t, first, set, why);
    t->line_no = second_no;
    if (!rc && *more) rc = csv_row(c, t, t->line, set, why);
    free(first);
    return rc;
}

static int csv_read(struct csv *c, const char *path, struct pl_columns *set, struct pl_why *why) {
    struct csv_text *t = calloc(1, sizeof *t);
    if (!t) return pl_fail(why, PL_ENOMEM, "out of memory");
    bool more = true;
    int rc = pl_file_open(&t->file, path, why);
    if (!rc) rc = csv_begin(c, t, set, &more, why);
    while (!rc && more) {
        rc = csv_line(t, &more, why);
        if (!rc && more) rc = csv_row(c, t, t->line, set, why);
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

static int csv_many_classes(const struct csv *c, uint64_t n_classes, uint64_t n_rows,
                            struct pl_why *why) {
    char name[80] = "";
    bool given = *c->conf->target;
    if (c->has_names) snprintf(name, sizeof name, " '%.60s'", c->names.field[c->schema->target]);
    return pl_fail(why, PL_EDATA,
                   "the target%s%s has %llu different numbers in %llu rows, too many for classes; "
                   "to predict numbers, add task=regress%s",
                   name, given ? "" : " (the last column)", (unsigned long long)n_classes,
                   (unsigned long long)n_rows,
                   given ? "" : "; if another column is the target, add target=NAME");
}

/* Renumbers classes from order of appearance to ascending order. Names for the same number, as 1
 * and 1.0, are one class. Texts are noted in the schema; it gets those of numbers later. */
static int csv_ascend(const struct csv *c, struct pl_columns *set[2], struct pl_why *why) {
    const struct pl_names *s = &c->classes;
    struct csv_sorted *sorted = calloc((size_t)s->n + 1, sizeof *sorted);
    double *rank = calloc((size_t)s->n + 1, sizeof *rank);
    bool numbers = true;
    if (sorted && rank) {
        for (uint64_t i = 0; i < s->n; i++) {
            sorted[i] = (struct csv_sorted){.name = s->name[i], .at = i};
            numbers = csv_real(s->name[i], &sorted[i].number) && numbers;
        }
        qsort(sorted, (size_t)s->n, sizeof *sorted, numbers ? csv_by_number : csv_by_name);
        /* a number stays itself: a fraction is then seen to be no class */
        for (uint64_t i = 0; i < s->n; i++)
            rank[sorted[i].at] = numbers ? sorted[i].number : (double)i;
        for (int k = 0; k < 2; k++)
            for (uint64_t i = 0; i < set[k]->n; i++) set[k]->y[i] = rank[(uint64_t)set[k]->y[i]];
    }
    int rc = sorted && rank ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
    uint64_t n_rows = set[0]->n + set[1]->n;
    if (!rc && numbers && s->n > CSV_MANY && 2 * s->n > n_rows)
        rc = csv_many_classes(c, s->n, n_rows, why);
    for (uint64_t i = 0; !rc && !numbers && i < s->n; i++)
        rc = pl_schema_class(c->schema, sorted[i].name, why);
    free(sorted);
    free(rank);
    return rc;
}

/* Whether a first line that could hold names does, because no other row has its class, though the
 * other classes, two or more, have two rows and more on average. */
static bool csv_first_names(const struct csv *c, const struct pl_columns *set) {
    uint64_t n = 0;
    if (!c->may_name || c->has_names || c->conf->header != CSV_HEADER_AUTO) return false;
    for (uint64_t i = 0; i < set->n; i++) n += set->y[i] == set->y[0];
    return n == 1 && c->classes.n > 2 && set->n > 2 * (c->classes.n - 1);
}

static void csv_free(struct csv *c) {
    pl_names_free(&c->classes);
    csv_fields_free(&c->names);
    free(c->role);
}

/* Reads the training rows: twice if only all of them tell what the first line is. */
static int csv_read_first(struct csv *c, struct pl_data *data, struct pl_columns *set,
                          struct pl_why *why) {
    int rc = csv_read(c, c->conf->file, set, why);
    bool classifies = c->conf->ready.task == PL_TASK_CLASSIFY;
    if (rc || !classifies || !csv_first_names(c, set)) return rc;
    csv_free(c);
    pl_columns_free(set);
    pl_schema_free(data->schema);
    data->schema = calloc(1, sizeof *data->schema);
    *set = (struct pl_columns){0};
    *c = (struct csv){.conf = c->conf, .schema = data->schema, .again = true};
    return c->schema ? csv_read(c, c->conf->file, set, why)
                     : pl_fail(why, PL_ENOMEM, "out of memory");
}

/* What the run's header says about the table. */
static void csv_note(const struct csv *c, struct pl_data *data) {
    uint64_t n_texts = 0;
    for (uint64_t i = 0; i < c->schema->n_columns; i++)
        n_texts += c->schema->column[i].texts != NULL;
    pl_append(data->note, sizeof data->note, "%s in the first line",
              c->has_names ? "names" : "no names");
    if (c->has_index) pl_append(data->note, sizeof data->note, ", the index left out");
    if (n_texts)
        pl_append(data->note, sizeof data->note, ", %llu column%s of categories",
                  (unsigned long long)n_texts, n_texts == 1 ? "" : "s");
}

static int csv_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct csv_conf *c = conf;
    struct csv table = {.conf = c, .schema = data->schema};
    struct pl_columns train = {0}, test = {0}, *both[2] = {&train, &test};
    if (c->file[0] == '\0') return pl_fail(why, PL_EUSAGE, "csv needs a file: csv:FILE");
    int rc = csv_read_first(&table, data, &train, why);
    if (table.has_index) table.role[0] = CSV_IGNORED; /* whatever the test rows have there */
    if (!rc && c->test[0]) rc = csv_read(&table, c->test, &test, why);
    if (!rc && c->ready.task == PL_TASK_CLASSIFY) rc = csv_ascend(&table, both, why);
    if (!rc) rc = pl_columns_give(data, &train, &test, &c->ready, seed, c->file, why);
    if (!rc) csv_note(&table, data);
    csv_free(&table);
    pl_columns_free(&train);
    pl_columns_free(&test);
    return rc;
}

static int csv_open_as(const void *conf, struct pl_data *data, struct pl_why *why) {
    const struct csv_conf *c = conf;
    struct csv table = {.conf = c, .schema = data->schema, .known = true};
    struct pl_columns rows = {0};
    if (c->file[0] == '\0') return pl_fail(why, PL_EUSAGE, "csv needs a file: csv:FILE");
    if (data->schema->n_columns == 0 || data->schema->n_fields == 0)
        return pl_fail(why, PL_EUSAGE, "the model was not trained on a CSV file");
    int rc = csv_read(&table, c->file, &rows, why);
    data->test->n = (uint32_t)rows.n;
    data->test->real = rows.x;
    rows.x = NULL;
    if (!rc) rc = pl_columns_apply(data->schema, data->test, why);
    csv_free(&table);
    pl_columns_free(&rows);
    return rc;
}

static const struct pl_opt csv_opts[] = {
    PL_OPT_FILE(struct csv_conf, file, "", "file with one row per line, plain or .gz"),
    PL_OPT("target", TEXT, struct csv_conf, target, "", 0, 0, "NAME",
           "column to predict, by its name or its number from 1 (empty: the last one)", 0),
    PL_OPT("ignore", TEXT, struct csv_conf, ignore, "", 0, 0, "NAMES",
           "columns to leave out, by name or number, separated by commas", 0),
    PL_OPT("category", TEXT, struct csv_conf, category, "", 0, 0, "NAMES",
           "columns whose numbers are names of categories, for example postcodes", 0),
    PL_OPT_INT(struct csv_conf, categories, "100", 0, 1e6,
               "most categories of a column of texts, which become one feature each (0: refuse "
               "texts)"),
    PL_OPT_CHOICE(struct csv_conf, missing, "refuse", "refuse|fill",
                  "values that are missing (empty, NA, NaN, null, ?) are an error, or become the "
                  "mean of a column of numbers and a category of texts"),
    PL_OPT_CHOICE(struct csv_conf, header, "auto", "auto|yes|no",
                  "whether the first line holds the names of the columns"),
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
    .open_as = csv_open_as,
};
