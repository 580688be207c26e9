/* LIBSVM's sparse text: one row per line, "label index:value index:value …".
 *
 * Labels are whole numbers of any sign. The distinct labels of both halves, in sorted order, become
 * classes 0, 1, …. Indices start at 1 and ascend strictly, as LIBSVM's own reader demands. A file
 * that counts from 0 is rejected, because a guess would depend on whether a row happens to use
 * feature 0. '#' begins a comment. The text is read through a small window and stored as compressed
 * rows. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "data/file.h"
#include "data/rows.h"
#include "data/schema.h"

#define LIBSVM_WINDOW ((size_t)1 << 16)
#define LIBSVM_TOKEN_MAX 64
#define LIBSVM_LABEL_MAX 0x1p53 /* magnitude that strtod reads exactly */

struct libsvm_conf {
    char file[PL_TEXT_MAX], test[PL_TEXT_MAX];
    double share;
};

/* Rows collected so far; the arrays grow by doubling. */
struct libsvm_set {
    uint64_t n, n_entries, row_room, entry_room;
    int64_t *label;   /* [n] */
    uint64_t *start;  /* [n + 1] */
    uint32_t *column; /* [n_entries] */
    float *value;     /* [n_entries] */
    uint64_t dim;
};

struct libsvm_text {
    struct pl_file file;
    uint8_t window[LIBSVM_WINDOW];
    size_t at, n;
    uint64_t line;
    int rc; /* status of the read that failed */
};

enum { LIBSVM_END = -1, LIBSVM_FAILED = -2 };

/* Returns the next character without consuming it, LIBSVM_END, or LIBSVM_FAILED with `why`. */
static int libsvm_peek(struct libsvm_text *t, struct pl_why *why) {
    if (t->at == t->n) {
        t->at = 0;
        t->n = 0;
        t->rc = pl_file_read(&t->file, t->window, LIBSVM_WINDOW, &t->n, why);
        if (t->rc) return LIBSVM_FAILED;
        if (t->n == 0) return LIBSVM_END;
    }
    return t->window[t->at];
}

/* Reads the next word of this line into token, or "" at the end of the line. */
static int libsvm_token(struct libsvm_text *t, char *token, struct pl_why *why) {
    size_t n = 0;
    bool comment = false;
    for (;;) {
        int c = libsvm_peek(t, why);
        if (c == LIBSVM_FAILED) return t->rc;
        if (c == LIBSVM_END || c == '\n') break;
        if (c == '#') {
            if (n > 0) break;
            comment = true;
        }
        bool blank = c == ' ' || c == '\t' || c == '\r';
        if (blank && n > 0) break;
        t->at++;
        if (blank || comment) continue;
        if (n == LIBSVM_TOKEN_MAX - 1 || c == 0)
            return pl_fail(why, PL_EDATA, "%s, line %llu: this is not LIBSVM text", t->file.path,
                           (unsigned long long)t->line);
        token[n++] = (char)c;
    }
    token[n] = '\0';
    return PL_OK;
}

static bool libsvm_grow(struct libsvm_set *s) {
    bool fits = true;
    if (s->n + 1 >= s->row_room) {
        s->row_room = s->row_room ? s->row_room * 2 : 1024;
        fits = s->row_room <= PL_DATA_BYTES_MAX / sizeof *s->start &&
               PL_RESIZE(s->label, s->row_room) && PL_RESIZE(s->start, s->row_room);
    }
    if (fits && s->n_entries >= s->entry_room) {
        s->entry_room = s->entry_room ? s->entry_room * 2 : 16384;
        fits = s->entry_room <= PL_DATA_BYTES_MAX / sizeof *s->value &&
               PL_RESIZE(s->column, s->entry_room) && PL_RESIZE(s->value, s->entry_room);
    }
    return fits;
}

static int libsvm_room(struct libsvm_set *s, struct pl_why *why) {
    if (libsvm_grow(s)) return PL_OK;
    return pl_fail(why, PL_ENOMEM, "out of memory while reading LIBSVM text");
}

/* Adds "index:value" to the set; `last` is the previous index, 0 at first. */
static int libsvm_entry(const struct libsvm_text *t, const char *token, uint64_t *last,
                        struct libsvm_set *s, struct pl_why *why) {
    const unsigned long long line = t->line;
    char *end;
    errno = 0;
    unsigned long long index = isdigit((unsigned char)token[0]) ? strtoull(token, &end, 10) : 0;
    if (!isdigit((unsigned char)token[0]) || *end != ':' || errno || isspace((unsigned char)end[1]))
        return pl_fail(why, PL_EDATA, "%s, line %llu: '%s' is not index:value", t->file.path, line,
                       token);
    if (index < 1 || index > PL_DATA_DIM_MAX)
        return pl_fail(why, PL_EDATA, "%s, line %llu: index %llu is not between 1 and %llu",
                       t->file.path, line, index, (unsigned long long)PL_DATA_DIM_MAX);
    if (index <= *last)
        return pl_fail(why, PL_EDATA, "%s, line %llu: index %llu follows %llu; indices must ascend",
                       t->file.path, line, index, (unsigned long long)*last);
    const char *number = end + 1;
    float value = strtof(number, &end);
    if (end == number || *end != '\0' || !isfinite(value))
        return pl_fail(why, PL_EDATA, "%s, line %llu: '%s' has no finite number after the colon",
                       t->file.path, line, token);
    int rc = libsvm_room(s, why);
    if (rc) return rc;
    s->column[s->n_entries] = (uint32_t)(index - 1);
    s->value[s->n_entries++] = value;
    if (index > s->dim) s->dim = index;
    *last = index;
    return PL_OK;
}

/* Reads one line: a row, or nothing if it is blank. */
static int libsvm_line(struct libsvm_text *t, struct libsvm_set *s, struct pl_why *why) {
    char token[LIBSVM_TOKEN_MAX], *end;
    int rc = libsvm_token(t, token, why);
    if (rc || token[0] == '\0') return rc;
    double label = strtod(token, &end);
    if (end == token || *end != '\0' || !(fabs(label) <= LIBSVM_LABEL_MAX) || label != floor(label))
        return pl_fail(why, PL_EDATA, "%s, line %llu: the label '%s' is not a whole number",
                       t->file.path, (unsigned long long)t->line, token);
    if (s->n == PL_DATA_ROWS_MAX)
        return pl_fail(why, PL_EDATA, "%s has more than %llu rows, the largest number accepted",
                       t->file.path, (unsigned long long)PL_DATA_ROWS_MAX);
    rc = libsvm_room(s, why);
    if (rc) return rc;
    s->label[s->n] = (int64_t)label;
    s->start[s->n] = s->n_entries;
    uint64_t last = 0;
    for (;;) {
        rc = libsvm_token(t, token, why);
        if (rc) return rc;
        if (token[0] == '\0') break;
        rc = libsvm_entry(t, token, &last, s, why);
        if (rc) return rc;
    }
    s->start[++s->n] = s->n_entries;
    return PL_OK;
}

/* Appends the rows of a file. */
static int libsvm_read(const char *path, struct libsvm_set *s, struct pl_why *why) {
    struct libsvm_text *t = calloc(1, sizeof *t);
    if (!t) return pl_fail(why, PL_ENOMEM, "out of memory");
    uint64_t before = s->n;
    int rc = pl_file_open(&t->file, path, why);
    t->line = 1;
    while (!rc) {
        rc = libsvm_line(t, s, why);
        if (rc) break;
        int c = libsvm_peek(t, why);
        if (c == LIBSVM_FAILED) rc = t->rc;
        if (c < 0) break;
        t->at++; /* the newline */
        t->line++;
    }
    if (!rc && s->n == before) rc = pl_fail(why, PL_EDATA, "%s has no rows", path);
    pl_file_close(&t->file);
    free(t);
    return rc;
}

static int libsvm_order(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Collects the distinct labels, sorted, in class[*n], which the caller frees. */
static int libsvm_classes(const struct libsvm_set *s, const char *path, int64_t **class,
                          uint64_t *n, struct pl_why *why) {
    int64_t *all = NULL;
    int rc = pl_rows_array(&all, s->n, sizeof *all, why);
    if (rc) return rc;
    memcpy(all, s->label, (size_t)s->n * sizeof *all);
    qsort(all, (size_t)s->n, sizeof *all, libsvm_order);
    uint64_t k = 0;
    for (uint64_t i = 0; i < s->n; i++)
        if (i == 0 || all[i] != all[i - 1]) all[k++] = all[i];
    if (k < 2 || k > PL_DATA_CLASSES_MAX) {
        free(all);
        return pl_fail(why, PL_EDATA, "%s has %llu different labels; 2 to %d are accepted", path,
                       (unsigned long long)k, PL_DATA_CLASSES_MAX);
    }
    *class = all;
    *n = k;
    return PL_OK;
}

/* Copies rows first..first+n of the set to one half of the data. */
static int libsvm_half(const struct libsvm_set *s, uint64_t first, uint64_t n, struct pl_rows *rows,
                       struct pl_why *why) {
    uint64_t base = n ? s->start[first] : 0, entries = n ? s->start[first + n] - base : 0;
    int rc = pl_rows_array(&rows->start, n + 1, sizeof *rows->start, why);
    if (!rc) rc = pl_rows_array(&rows->column, entries, sizeof *rows->column, why);
    if (!rc) rc = pl_rows_array(&rows->value, entries, sizeof *rows->value, why);
    if (rc) return rc;
    for (uint64_t i = 0; i < n; i++) rows->start[i] = s->start[first + i] - base;
    rows->start[n] = entries;
    if (entries) {
        memcpy(rows->column, s->column + base, (size_t)entries * sizeof *rows->column);
        memcpy(rows->value, s->value + base, (size_t)entries * sizeof *rows->value);
    }
    rows->n = (uint32_t)n;
    return PL_OK;
}

/* The classes of such rows. */
static int libsvm_labels(const struct libsvm_set *s, const int64_t *class, uint64_t n_classes,
                         uint64_t first, struct pl_rows *rows, struct pl_why *why) {
    int rc = pl_rows_array(&rows->label, rows->n, sizeof *rows->label, why);
    if (rc) return rc;
    for (uint64_t i = 0; i < rows->n; i++) {
        const int64_t *at =
            bsearch(&s->label[first + i], class, (size_t)n_classes, sizeof *class, libsvm_order);
        rows->label[i] = (uint16_t)(at - class);
    }
    return PL_OK;
}

static void libsvm_free(struct libsvm_set *s) {
    free(s->label);
    free(s->start);
    free(s->column);
    free(s->value);
}

static int libsvm_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct libsvm_conf *c = conf;
    struct libsvm_set s = {.n = 0};
    int64_t *class = NULL;
    uint64_t n_train = 0, n_classes = 0;
    (void)seed;
    if (c->file[0] == '\0') return pl_fail(why, PL_EUSAGE, "libsvm needs a file: libsvm:FILE");
    int rc = libsvm_read(c->file, &s, why);
    if (!rc && c->test[0]) {
        n_train = s.n;
        rc = libsvm_read(c->test, &s, why);
    } else if (!rc) {
        n_train = s.n - (uint64_t)(c->share * (double)s.n);
    }
    if (!rc) rc = libsvm_classes(&s, c->file, &class, &n_classes, why);
    if (!rc && s.dim == 0) rc = pl_fail(why, PL_EDATA, "%s has no features", c->file);
    if (!rc) rc = libsvm_half(&s, 0, n_train, data->train, why);
    if (!rc) rc = libsvm_half(&s, n_train, s.n - n_train, data->test, why);
    if (!rc) rc = libsvm_labels(&s, class, n_classes, 0, data->train, why);
    if (!rc) rc = libsvm_labels(&s, class, n_classes, n_train, data->test, why);
    for (uint64_t i = 0; !rc && i < n_classes; i++) {
        char name[24];
        snprintf(name, sizeof name, "%lld", (long long)class[i]);
        rc = pl_schema_class(data->schema, name, why);
    }
    data->shape[0] = data->shape[1] = 1;
    data->shape[2] = (uint32_t)s.dim;
    data->n_classes = (uint32_t)n_classes;
    free(class);
    libsvm_free(&s);
    return rc;
}

/* Features that the model does not have are left out. Lines begin with a label, which may be 0. */
static int libsvm_open_as(const void *conf, struct pl_data *data, struct pl_why *why) {
    const struct libsvm_conf *c = conf;
    struct libsvm_set s = {.n = 0};
    if (c->file[0] == '\0') return pl_fail(why, PL_EUSAGE, "libsvm needs a file: libsvm:FILE");
    if (data->schema->n_columns > 0 || data->ratings)
        return pl_fail(why, PL_EUSAGE, "the model was not trained on LIBSVM text");
    uint64_t dim = (uint64_t)data->shape[0] * data->shape[1] * data->shape[2], n = 0;
    int rc = libsvm_read(c->file, &s, why);
    for (uint64_t i = 0, from = 0; !rc && i < s.n; i++) {
        for (; from < s.start[i + 1]; from++) {
            if (s.column[from] >= dim) continue;
            s.column[n] = s.column[from];
            s.value[n++] = s.value[from];
        }
        s.start[i + 1] = n;
    }
    if (!rc) rc = libsvm_half(&s, 0, s.n, data->test, why);
    libsvm_free(&s);
    return rc;
}

static const struct pl_opt libsvm_opts[] = {
    PL_OPT_FILE(struct libsvm_conf, file, "", "file of training samples, plain or .gz"),
    PL_OPT_FILE(struct libsvm_conf, test, "",
                "file of test samples (empty: hold out the last part of the training file)"),
    PL_OPT_REAL(struct libsvm_conf, share, "0.2", 0, 0.9,
                "fraction of the file that is held out for testing"),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_libsvm = {
    .id = {"libsvm", "sparse rows in LIBSVM's text format",
           "Chang, Lin, LIBSVM: a library for support vector machines, ACM TIST 2011", libsvm_opts,
           sizeof(struct libsvm_conf), 0},
    .open = libsvm_open,
    .open_as = libsvm_open_as,
};
