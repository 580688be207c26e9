/* A schema as text, which travels with weights, and back. The reader trusts nothing.
 *
 *     paceline-data 1
 *     shape 1 1 5                     channels, height, width
 *     classes 3                       or: numbers MEAN SCALE, or: ratings MEAN USERS ITEMS
 *     class NAME                      for each, if classes have names
 *     fields 4 3                      of a line, and the target's field
 *     number FIELD SHIFT BY FILL [=NAME]      a column
 *     texts FIELD [=NAME]             a column, followed by its categories:
 *     text NAME
 *     user ID                         for each, in the model's order
 *     item ID
 *
 * Bytes of names that are not printable ASCII, and '%', are %XX. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "data/rows.h"
#include "data/schema.h"

#define SCHEMA_FIRST "paceline-data 1\n"

/* --- writing --------------------------------------------------------------------------------- */

static void schema_name(FILE *to, const char *name) {
    for (; *name; name++)
        fprintf(to,
                isgraph((unsigned char)*name) && *name != '%' && (*name & 0x80) == 0 ? "%c"
                                                                                     : "%%%02x",
                (unsigned char)*name);
}

static void schema_named(FILE *to, const char *key, const char *name) {
    fprintf(to, "%s ", key);
    schema_name(to, name);
    fputc('\n', to);
}

static void schema_columns(FILE *to, const struct pl_schema *s) {
    if (s->n_fields)
        fprintf(to, "fields %llu %llu\n", (unsigned long long)s->n_fields,
                (unsigned long long)s->target);
    for (uint64_t i = 0; i < s->n_columns; i++) {
        const struct pl_schema_column *c = &s->column[i];
        fprintf(to, c->texts ? "texts %llu" : "number %llu", (unsigned long long)c->field);
        if (!c->texts) fprintf(to, " %.17g %.17g %.17g", c->shift, c->by, c->fill);
        if (c->name) fputs(" =", to);
        if (c->name) schema_name(to, c->name);
        fputc('\n', to);
        for (uint64_t k = 0; c->texts && k < c->texts->n; k++)
            schema_named(to, "text", c->texts->name[k]);
    }
}

static void schema_ids(FILE *to, const char *key, const uint64_t *id, uint64_t n) {
    for (uint64_t i = 0; id && i < n; i++) fprintf(to, "%s %llu\n", key, (unsigned long long)id[i]);
}

/* Bytes that the text has at least; a set with too many columns or ids is not worth writing. */
static bool schema_fits(const struct pl_schema *s) {
    return (s->n_columns + s->n_users + s->n_items) * 7 < PL_SCHEMA_MAX;
}

int pl_data_schema(const struct pl_data *data, char **out, struct pl_why *why) {
    const struct pl_schema *s = data->schema;
    size_t n = 0;
    *out = NULL;
    if (!s || !schema_fits(s)) return PL_OK;
    FILE *to = open_memstream(out, &n);
    if (!to) return pl_fail(why, PL_ENOMEM, "out of memory");
    fprintf(to, SCHEMA_FIRST "shape %u %u %u\n", data->shape[0], data->shape[1], data->shape[2]);
    if (data->ratings)
        fprintf(to, "ratings %.17g %u %u\n", data->ratings->mean, data->ratings->n_users,
                data->ratings->n_items);
    else if (data->has_targets)
        fprintf(to, "numbers %.17g %.17g\n", s->target_mean, data->target_scale);
    else
        fprintf(to, "classes %u\n", data->n_classes);
    for (uint64_t i = 0; i < s->n_classes; i++) schema_named(to, "class", s->class[i]);
    schema_columns(to, s);
    schema_ids(to, "user", s->user, s->n_users);
    schema_ids(to, "item", s->item, s->n_items);
    bool failed = ferror(to);
    failed |= fclose(to) != 0;
    if (failed || n > PL_SCHEMA_MAX) {
        free(*out);
        *out = NULL;
    }
    return failed ? pl_fail(why, PL_ENOMEM, "out of memory") : PL_OK;
}

/* --- reading --------------------------------------------------------------------------------- */

struct schema_reader {
    struct pl_data *data;
    char *at; /* the rest of the line */
    struct pl_why *why;
    bool bad;
};

static uint64_t schema_whole(struct schema_reader *r, uint64_t max) {
    char *end;
    errno = 0;
    unsigned long long value = isdigit((unsigned char)*r->at) ? strtoull(r->at, &end, 10) : 0;
    if (!isdigit((unsigned char)*r->at) || errno || value > max || (*end && *end != ' ')) {
        r->bad = true;
        return 0;
    }
    r->at = *end ? end + 1 : end;
    return value;
}

static double schema_real(struct schema_reader *r) {
    char *end;
    double value = strtod(r->at, &end);
    if (end == r->at || !isfinite(value) || (*end && *end != ' ')) r->bad = true;
    if (!r->bad) r->at = *end ? end + 1 : end;
    return r->bad ? 0 : value;
}

/* The rest of the line as a name, in place. */
static char *schema_text(struct schema_reader *r) {
    char *name = r->at, *out = name;
    for (const char *at = name; *at && !r->bad; at++) {
        unsigned value = (unsigned char)*at;
        if (*at == '%') {
            r->bad = !isxdigit((unsigned char)at[1]) || !isxdigit((unsigned char)at[2]);
            if (r->bad || sscanf(at + 1, "%2x", &value) != 1 || value == 0) r->bad = true;
            at += 2;
        }
        if (!r->bad) *out++ = (char)value;
    }
    *out = '\0';
    r->at = out;
    return name;
}

static int schema_column(struct schema_reader *r, bool texts) {
    struct pl_schema *s = r->data->schema;
    int rc = pl_schema_columns(s, 1, r->why);
    if (rc) return rc;
    struct pl_schema_column *c = &s->column[s->n_columns - 1];
    c->kind = PL_COLUMN_NUMBER;
    c->field = schema_whole(r, PL_DATA_DIM_MAX);
    if (texts) rc = pl_schema_texts(c, r->why);
    if (!texts) {
        c->shift = schema_real(r);
        c->by = schema_real(r);
        c->fill = schema_real(r);
    }
    if (rc || r->bad || *r->at != '=') return rc;
    r->at++;
    c->name = strdup(schema_text(r));
    return c->name ? PL_OK : pl_fail(r->why, PL_ENOMEM, "out of memory");
}

static int schema_category(struct schema_reader *r) {
    struct pl_schema *s = r->data->schema;
    uint32_t number;
    r->bad = s->n_columns == 0 || !s->column[s->n_columns - 1].texts;
    if (r->bad) return PL_OK;
    struct pl_names *texts = s->column[s->n_columns - 1].texts;
    uint64_t before = texts->n;
    int rc = pl_names_add(texts, schema_text(r), PL_DATA_DIM_MAX, &number, r->why);
    r->bad |= !rc && texts->n == before; /* the same twice */
    return rc;
}

static int schema_id(struct schema_reader *r, uint64_t **id, uint64_t *n) {
    if (*n == PL_RATINGS_IDS_MAX) r->bad = true;
    if (!r->bad && (*n & (*n - 1)) == 0) { /* a power of 2, or 0 */
        if (!PL_RESIZE(*id, *n ? 2 * *n : 1)) return pl_fail(r->why, PL_ENOMEM, "out of memory");
    }
    uint64_t value = schema_whole(r, UINT64_MAX);
    if (!r->bad) (*id)[(*n)++] = value;
    return PL_OK;
}

static int schema_ratings(struct schema_reader *r) {
    struct pl_ratings *ratings = r->data->ratings;
    r->bad |= ratings != NULL;
    if (r->bad) return PL_OK;
    ratings = r->data->ratings = calloc(1, sizeof *ratings);
    if (!ratings) return pl_fail(r->why, PL_ENOMEM, "out of memory");
    ratings->mean = schema_real(r);
    ratings->n_users = (uint32_t)schema_whole(r, PL_RATINGS_IDS_MAX);
    ratings->n_items = (uint32_t)schema_whole(r, PL_RATINGS_IDS_MAX);
    return PL_OK;
}

static int schema_line(struct schema_reader *r, const char *key) {
    struct pl_data *d = r->data;
    struct pl_schema *s = d->schema;
    if (strcmp(key, "number") == 0) return schema_column(r, false);
    if (strcmp(key, "texts") == 0) return schema_column(r, true);
    if (strcmp(key, "text") == 0) return schema_category(r);
    if (strcmp(key, "user") == 0) return schema_id(r, &s->user, &s->n_users);
    if (strcmp(key, "item") == 0) return schema_id(r, &s->item, &s->n_items);
    if (strcmp(key, "class") == 0) return pl_schema_class(s, schema_text(r), r->why);
    if (strcmp(key, "ratings") == 0) return schema_ratings(r);
    if (strcmp(key, "shape") == 0) {
        for (int i = 0; i < 3; i++) d->shape[i] = (uint32_t)schema_whole(r, PL_DATA_DIM_MAX);
    } else if (strcmp(key, "classes") == 0) {
        d->n_classes = (uint32_t)schema_whole(r, PL_DATA_CLASSES_MAX);
    } else if (strcmp(key, "numbers") == 0) {
        d->has_targets = true;
        s->target_mean = schema_real(r);
        d->target_scale = schema_real(r);
    } else if (strcmp(key, "fields") == 0) {
        s->n_fields = schema_whole(r, PL_DATA_DIM_MAX);
        s->target = schema_whole(r, PL_DATA_DIM_MAX);
    } else {
        r->bad = true;
    }
    return PL_OK;
}

/* Whether the parts go together: sizes of rows, classes and ids. */
static bool schema_fits_together(const struct pl_data *d) {
    const struct pl_schema *s = d->schema;
    const struct pl_ratings *ratings = d->ratings;
    uint64_t dim = (uint64_t)d->shape[0] * d->shape[1]; /* each at most 2^26 */
    dim = dim <= PL_DATA_DIM_MAX ? dim * d->shape[2] : 0;
    int kinds = (d->n_classes > 0) + d->has_targets + (ratings != NULL);
    if (dim == 0 || dim > PL_DATA_DIM_MAX || kinds != 1) return false;
    if (s->n_classes > 0 && s->n_classes != d->n_classes) return false;
    if (s->n_columns > 0 && pl_schema_width(s) != dim) return false;
    for (uint64_t i = 0; i < s->n_columns; i++)
        if (s->n_fields > 0 && s->column[i].field >= s->n_fields) return false;
    if (!ratings) return s->n_users == 0 && s->n_items == 0;
    return dim == 3 && ratings->n_users > 0 && ratings->n_items > 0 &&
           (s->n_users == ratings->n_users || s->n_users == 0) &&
           (s->n_items == ratings->n_items || s->n_items == 0);
}

int pl_schema_parse(const char *text, struct pl_data *data, struct pl_why *why) {
    size_t n = strlen(SCHEMA_FIRST);
    struct schema_reader r = {.data = data, .why = why};
    r.bad = strlen(text) > PL_SCHEMA_MAX || strncmp(text, SCHEMA_FIRST, n) != 0;
    char *copy = r.bad ? NULL : strdup(text + n), *next = copy;
    int rc = copy || r.bad ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
    while (!rc && !r.bad && next && *next) {
        char *line = next, *end = strchr(line, '\n');
        next = end ? end + 1 : NULL;
        if (end) *end = '\0';
        r.at = strchr(line, ' ');
        r.bad = !end || !r.at;
        if (r.bad) break;
        *r.at++ = '\0';
        rc = schema_line(&r, line);
        r.bad |= !rc && *r.at;
    }
    free(copy);
    if (!rc && (r.bad || !schema_fits_together(data)))
        rc = pl_fail(why, PL_EDATA, "the description of its data is damaged");
    return rc;
}
