/* Lines and fields of a CSV file. See csv.h. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/grow.h"
#include "data/csv.h"

#define CSV_LINE_MAX ((size_t)1 << 26) /* bytes */

int csv_bad(const struct csv_text *t, struct pl_why *why, const char *what) {
    return pl_fail(why, PL_EDATA, "%s, line %llu: %s", t->file.path, (unsigned long long)t->line_no,
                   what);
}

static int csv_grow(struct csv_text *t, struct pl_why *why) {
    size_t room = t->room ? t->room + 1 : 4096;
    if (room > CSV_LINE_MAX) return csv_bad(t, why, "the line is longer than 64 MiB");
    if (PL_GROW(t->line, t->room, room)) return PL_OK;
    return pl_fail(why, PL_ENOMEM, "out of memory for a line of %zu bytes", room);
}

static int csv_next(struct csv_text *t, bool *more, struct pl_why *why) {
    t->length = 0;
    t->line_no++;
    for (*more = false;;) {
        if (t->at == t->n) {
            t->at = 0;
            int rc = pl_file_read(&t->file, t->window, CSV_WINDOW, &t->n, why);
            if (rc) return rc;
            if (t->n == 0) break;
        }
        char c = (char)t->window[t->at++];
        bool ended = c == '\n' && t->after_cr;
        t->after_cr = c == '\r';
        if (ended) continue;
        *more = true;
        if (c == '\n' || c == '\r') break;
        if (c == '\0') return csv_bad(t, why, "a zero byte; this is not text");
        int rc = t->length + 2 > t->room ? csv_grow(t, why) : PL_OK;
        if (rc) return rc;
        t->line[t->length++] = c;
    }
    if (!t->line) { /* the first line is empty, or there is none */
        int rc = *more ? csv_grow(t, why) : PL_OK;
        if (rc || !*more) return rc;
    }
    t->line[t->length] = '\0';
    if (t->line_no == 1 && strncmp(t->line, "\xef\xbb\xbf", 3) == 0) {
        t->length -= 3;
        memmove(t->line, t->line + 3, t->length + 1);
    }
    return PL_OK;
}

int csv_line(struct csv_text *t, bool *more, struct pl_why *why) {
    int rc;
    do rc = csv_next(t, more, why);
    while (!rc && *more && (t->line[0] == '#' || t->line[strspn(t->line, " \t")] == '\0'));
    return rc;
}

char csv_guess(const char *line) {
    static const char known[] = ",;\t ";
    size_t count[4] = {0}, best = 0;
    bool quoted = false, decimal = true;
    for (char before = '\0'; *line; before = *line++) {
        const char *at = strchr(known, *line);
        if (*line == '"') quoted = !quoted;
        if (!at || quoted) continue;
        count[at - known]++;
        if (at == known && !(isdigit((unsigned char)before) && isdigit((unsigned char)line[1])))
            decimal = false;
    }
    if (decimal && count[1] > 0) count[0] = 0;
    for (size_t i = 1; i < 3; i++)
        if (count[i] > count[best]) best = i;
    return count[best] == 0 && count[3] > 0 ? ' ' : known[best];
}

const char *csv_field(char sep, char **at, const char **bad) {
    char *from = *at, *to = from, *out = from;
    bool blank = sep == ' ';
    while (*to == ' ' || (*to == '\t' && sep != '\t')) to++;
    if (*to == '"') {
        for (to++; *to && (*to != '"' || to[1] == '"'); to++) {
            if (*to == '"') to++;
            *out++ = *to;
        }
        if (*to == '"')
            to++;
        else
            *bad = "a quoted field does not end on its line; line breaks inside fields are not "
                   "supported";
    } else {
        while (*to && *to != sep && !(blank && *to == '\t')) *out++ = *to++;
        while (out > from && isblank((unsigned char)out[-1])) out--;
    }
    while (*to && *to != sep && isblank((unsigned char)*to)) to++;
    if (*to && *to != sep && !(blank && to > from))
        *bad = "a quoted field does not end before the next separator";
    if (blank)
        while (*to && isblank((unsigned char)to[1])) to++;
    *at = *to && !(blank && !to[1]) ? to + 1 : NULL;
    *out = '\0';
    return from;
}

int csv_cut(const struct csv_text *t, char sep, const char *line, struct csv_fields *out,
            struct pl_why *why) {
    size_t room = 0;
    const char *bad = NULL;
    *out = (struct csv_fields){.text = strdup(line)};
    char *at = out->text;
    if (!at) return pl_fail(why, PL_ENOMEM, "out of memory");
    while (at && !bad) {
        const char *field = csv_field(sep, &at, &bad);
        if (!PL_GROW(out->field, room, out->n + 1)) return pl_fail(why, PL_ENOMEM, "out of memory");
        out->field[out->n++] = out->text + (field - out->text);
    }
    if (bad) return csv_bad(t, why, bad);
    return out->n <= PL_DATA_DIM_MAX ? PL_OK : csv_bad(t, why, "too many fields");
}

void csv_fields_free(struct csv_fields *f) {
    free(f->text);
    free(f->field);
    *f = (struct csv_fields){0};
}

bool csv_real(const char *text, double *value) {
    char *end;
    if (!isdigit((unsigned char)*text) && !strchr("+-.", *text)) return false; /* no nan, no inf */
    if (*text == '\0') return false;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

bool csv_number(const char *text, double *value) {
    bool yes = strcasecmp(text, "true") == 0;
    if (!yes && strcasecmp(text, "false") != 0) return csv_real(text, value);
    *value = yes;
    return true;
}

/* Skips what may stand before or after a number. */
static const char *csv_skip_signs(const char *at, const char **what) {
    static const char *const currency[] = {"$", "\xe2\x82\xac", "\xc2\xa3", "\xc2\xa5"};
    for (size_t n = 1; n > 0; at += n) {
        n = *at != '\0' && strchr(" +-%", *at) != NULL;
        if (*at == '%') *what = "a per cent sign";
        for (size_t i = 0; i < sizeof currency / sizeof *currency; i++)
            if (strncmp(at, currency[i], strlen(currency[i])) == 0) {
                n = strlen(currency[i]);
                *what = "a currency sign";
            }
    }
    return at;
}

/* Skips digits in groups of three, and after a comma or a point the decimals; NULL if the groups
 * are of other sizes, as in a date. */
static const char *csv_skip_digits(const char *at, const char **what) {
    static const char digits[] = "0123456789";
    size_t first = strspn(at, digits), n;
    bool decimals = false;
    char sep = '\0';
    for (at += first; *at && strchr(",.' ", *at) && (n = strspn(at + 1, digits)) > 0; at += n + 1) {
        if (decimals) return NULL;
        decimals = n != 3 || first == 0 || first > 3;
        if (decimals && (*at == sep || !strchr(",.", *at))) return NULL;
        if ((*at != '.' || sep == '.') && !*what) *what = "a decimal comma or thousands separator";
        sep = *at;
    }
    if (first == 0 && !sep) return NULL;
    if (tolower((unsigned char)*at) != 'e') return at;
    at += at[1] && strchr("+-", at[1]) ? 2 : 1;
    n = strspn(at, digits);
    return n > 0 ? at + n : NULL;
}

const char *csv_written(const char *text) {
    const char *what = NULL, *at = csv_skip_digits(csv_skip_signs(text, &what), &what);
    return at && *csv_skip_signs(at, &what) == '\0' ? what : NULL;
}

bool csv_missing(const char *text) {
    static const char *const word[] = {"", "na", "n/a", "nan", "null", "?"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (strcasecmp(text, word[i]) == 0) return true;
    return false;
}

bool csv_in_list(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; n > 0 && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && strncmp(at, name, n) == 0) return true;
    return false;
}
