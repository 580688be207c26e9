/* NPY, the format of numpy.save: features in one file, what is to be predicted in another.
 *
 * A file is "\x93NUMPY", a version, the length of a header, the header, a Python dictionary with
 * the keys descr, fortran_order and shape, and then the numbers in C order. The shape of the
 * features is [n], [n, features], [n, height, width] or [n, channels, height, width]; the targets
 * are [n] or [n, 1]. Bytes are taken as pictures, 0 to 255, and stay bytes. Format: NumPy
 * Enhancement Proposal 1. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "data/columns.h"
#include "data/file.h"

#define NPY_HEADER_MAX 65536
#define NPY_DIMS 4

struct npy_conf {
    char file[PL_TEXT_MAX], target[PL_TEXT_MAX], test[PL_TEXT_MAX], test_target[PL_TEXT_MAX];
    struct pl_columns_conf ready;
};

struct npy {
    char kind; /* 'f', 'i', 'u' or 'b' */
    int size;  /* bytes of a number */
    int n_dims;
    uint64_t shape[NPY_DIMS];
    uint64_t n; /* numbers */
    const uint8_t *number;
    uint8_t *bytes; /* the whole file; the caller frees it */
};

/* --- the header ---------------------------------------------------------------------------- */

/* Skips to what follows 'key': in the header; NULL if it is not there. */
static const char *npy_key(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    at += strspn(at, " ");
    if (*at++ != ':') return NULL;
    return at + strspn(at, " ");
}

static int npy_type(struct npy *a, const char *at, const char *path, struct pl_why *why) {
    static const char *const known[] = {"f4", "f8", "i1", "i2", "i4", "i8",
                                        "u1", "u2", "u4", "u8", "b1"};
    if (at && *at == '\'' && at[1] && strchr("<|", at[1]))
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strncmp(at + 2, known[i], 2) == 0 && at[4] == '\'') {
                a->kind = known[i][0];
                a->size = known[i][1] - '0';
                return PL_OK;
            }
    return pl_fail(why, PL_EDATA,
                   "%s: its numbers are of type %.*s; save them with .astype('float32') or as "
                   "whole numbers",
                   path, at ? (int)strcspn(at, ",}") % 16 : 1, at ? at : "?");
}

static int npy_shape(struct npy *a, const char *at, const char *path, struct pl_why *why) {
    bool ok = at && *at++ == '(';
    a->n = 1;
    for (a->n_dims = 0; ok && *at != ')';) {
        char *end;
        at += strspn(at, " ");
        if (!isdigit((unsigned char)*at) || a->n_dims == NPY_DIMS) {
            ok = false;
            break;
        }
        unsigned long long size = strtoull(at, &end, 10);
        at = end + strspn(end, " ");
        if (*at == ',') at += 1 + strspn(at + 1, " ");
        uint64_t max = a->n_dims == 0 ? PL_DATA_ROWS_MAX : PL_DATA_DIM_MAX;
        ok = size > 0 && size <= max && a->n <= PL_DATA_BYTES_MAX / 8 / size;
        a->shape[a->n_dims++] = size;
        a->n *= ok ? size : 1;
    }
    if (ok && a->n_dims > 0) return PL_OK;
    return pl_fail(why, PL_EDATA,
                   "%s: its shape is not one to four positive sizes within the limits", path);
}

static int npy_header(struct npy *a, const uint8_t *bytes, size_t n, size_t *at, const char *path,
                      struct pl_why *why) {
    char header[NPY_HEADER_MAX + 1];
    if (n < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return pl_fail(why, PL_EDATA, "%s is not a file of numpy.save", path);
    if (bytes[6] < 1 || bytes[6] > 3)
        return pl_fail(why, PL_EDATA, "%s has version %u of the format; 1 to 3 are known", path,
                       bytes[6]);
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    *at = 10;
    if (bytes[6] > 1) {
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
        *at = 12;
    }
    if (length > NPY_HEADER_MAX || length > n - *at)
        return pl_fail(why, PL_EDATA, "%s is truncated in its header", path);
    memcpy(header, bytes + *at, length);
    header[length] = '\0';
    *at += length;
    const char *order = npy_key(header, "fortran_order");
    if (!order || strncmp(order, "False", 5) != 0)
        return pl_fail(why, PL_EDATA, "%s is not in C order; save it with numpy.ascontiguousarray",
                       path);
    int rc = npy_type(a, npy_key(header, "descr"), path, why);
    return rc ? rc : npy_shape(a, npy_key(header, "shape"), path, why);
}

/* Reads a file. The caller frees a->bytes, also after a failure. */
static int npy_read(const char *path, struct npy *a, struct pl_why *why) {
    size_t n = 0, at = 0;
    *a = (struct npy){0};
    int rc = pl_file_slurp(path, PL_DATA_BYTES_MAX, &a->bytes, &n, why);
    if (!rc) rc = npy_header(a, a->bytes, n, &at, path, why);
    if (rc) return rc;
    if (n - at != a->n * (uint64_t)a->size)
        return pl_fail(why, PL_EDATA, "%s is %s: its header announces %llu bytes, but %zu follow",
                       path, n - at < a->n * (uint64_t)a->size ? "truncated" : "too long",
                       (unsigned long long)(a->n * (uint64_t)a->size), n - at);
    a->number = a->bytes + at;
    return PL_OK;
}

/* --- numbers ------------------------------------------------------------------------------- */

/* The i-th number. Files are little-endian, and so are the machines this library runs on. */
static double npy_number(const struct npy *a, uint64_t i) {
    const uint8_t *p = a->number + i * (uint64_t)a->size;
    uint64_t bits = 0;
    for (int b = 0; b < a->size; b++) bits |= (uint64_t)p[b] << (8 * b);
    if (a->kind == 'f' && a->size == 4) {
        uint32_t half = (uint32_t)bits;
        float f;
        memcpy(&f, &half, sizeof f);
        return f;
    }
    if (a->kind == 'f') {
        double d;
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    if (a->kind != 'i') return (double)bits;
    uint64_t sign = (uint64_t)1 << (8 * a->size - 1);
    return (double)(int64_t)((bits ^ sign) - sign);
}

/* Appends the features of all rows to x, and checks them. */
static int npy_features(const struct npy *a, float *x, const char *path, struct pl_why *why) {
    for (uint64_t i = 0; i < a->n; i++) {
        x[i] = (float)npy_number(a, i);
        if (!isfinite(x[i]))
            return pl_fail(why, PL_EDATA, "%s: row %llu has a value that is not a finite number",
                           path, (unsigned long long)(i / (a->n / a->shape[0])));
    }
    return PL_OK;
}

static bool npy_is_bytes(const struct npy *a) {
    return a->kind == 'u' && a->size == 1;
}

/* --- the set ------------------------------------------------------------------------------- */

/* Reads one half: features and targets of as many rows. */
static int npy_half(const char *file, const char *target, struct npy *a, struct pl_columns *set,
                    struct pl_why *why) {
    struct npy y;
    int rc = npy_read(file, a, why);
    if (rc) return rc;
    rc = npy_read(target, &y, why);
    if (!rc && (y.n != y.shape[0] || y.n != a->shape[0]))
        rc = pl_fail(why, PL_EDATA, "%s has %llu targets in %llu rows; %s has %llu rows", target,
                     (unsigned long long)y.n, (unsigned long long)y.shape[0], file,
                     (unsigned long long)a->shape[0]);
    set->dim = a->n / a->shape[0];
    if (!rc) rc = pl_rows_array(&set->y, y.n, sizeof *set->y, why);
    if (!rc) {
        set->n = set->room = y.n;
        for (uint64_t i = 0; !rc && i < y.n; i++) {
            set->y[i] = npy_number(&y, i);
            if (!isfinite(set->y[i]))
                rc = pl_fail(why, PL_EDATA, "%s: target %llu is not a finite number", target,
                             (unsigned long long)i);
        }
    }
    free(y.bytes);
    if (rc || npy_is_bytes(a)) return rc;
    rc = pl_rows_array(&set->x, a->n, sizeof *set->x, why);
    if (rc) return rc;
    rc = npy_features(a, set->x, file, why);
    free(a->bytes);
    a->bytes = NULL;
    return rc;
}

static int npy_same(const struct npy *a, const struct npy *b, const char *path,
                    struct pl_why *why) {
    bool same = a->n_dims == b->n_dims && npy_is_bytes(a) == npy_is_bytes(b);
    for (int d = 1; same && d < a->n_dims; d++) same = a->shape[d] == b->shape[d];
    return same ? PL_OK
                : pl_fail(why, PL_EDATA,
                          "%s has rows of another shape or type than the training "
                          "file",
                          path);
}

/* Copies the rows of a set of bytes to one half. */
static int npy_bytes(const struct npy *a, const uint32_t *order, uint64_t n, struct pl_rows *rows,
                     struct pl_why *why) {
    uint64_t dim = a->n / a->shape[0];
    int rc = pl_rows_array(&rows->byte, n, dim, why);
    if (rc) return rc;
    for (uint64_t i = 0; i < n; i++)
        memcpy(rows->byte + i * dim, a->number + (order ? order[i] : i) * dim, (size_t)dim);
    return PL_OK;
}

/* Pictures: they stay bytes, and are not standardised. */
static int npy_pictures(const struct npy_conf *c, const struct npy *a, struct pl_columns *train,
                        const struct npy *b, struct pl_columns *test, uint64_t seed,
                        struct pl_data *data, struct pl_why *why) {
    uint32_t *order = NULL;
    uint64_t n_test = test->n, n = train->n + test->n;
    int rc = PL_OK;
    if (n_test == 0) {
        rc = pl_columns_deck(n, c->ready.share, seed, &order, &n_test, why);
    } else {
        if (!PL_RESIZE(train->y, n)) return pl_fail(why, PL_ENOMEM, "out of memory");
        memcpy(train->y + train->n, test->y, (size_t)n_test * sizeof *test->y);
    }
    if (!rc) rc = pl_columns_targets(data, train->y, order, n, n_test, &c->ready, c->target, why);
    if (!rc) rc = npy_bytes(a, order, n - n_test, data->train, why);
    if (!rc)
        rc = npy_bytes(order ? a : b, order ? order + n - n_test : NULL, n_test, data->test, why);
    free(order);
    return rc;
}

static int npy_open(const void *conf, uint64_t seed, struct pl_data *data, struct pl_why *why) {
    const struct npy_conf *c = conf;
    struct npy a = {0}, b = {0};
    struct pl_columns train = {0}, test = {0};
    if (!c->file[0] || !c->target[0] || !c->test[0] != !c->test_target[0])
        return pl_fail(why, PL_EUSAGE,
                       "npy needs files in pairs: npy:X.npy,target=Y.npy, and for testing "
                       "test=X2.npy,test-target=Y2.npy");
    int rc = npy_half(c->file, c->target, &a, &train, why);
    if (!rc && c->test[0]) rc = npy_half(c->test, c->test_target, &b, &test, why);
    if (!rc && c->test[0]) rc = npy_same(&a, &b, c->test, why);
    if (!rc)
        rc = npy_is_bytes(&a)
                 ? npy_pictures(c, &a, &train, &b, &test, seed, data, why)
                 : pl_columns_give(data, &train, &test, &c->ready, seed, c->target, why);
    for (int d = 0; d < 3; d++) { /* [n, d] is {1, 1, d}; [n, h, w] is {1, h, w} */
        int from = a.n_dims - 3 + d;
        data->shape[d] = from >= 1 ? (uint32_t)a.shape[from] : 1;
    }
    if (!rc && train.dim > PL_DATA_DIM_MAX)
        rc = pl_fail(why, PL_EDATA, "%s has more than %llu features", c->file,
                     (unsigned long long)PL_DATA_DIM_MAX);
    free(a.bytes);
    free(b.bytes);
    pl_columns_free(&train);
    pl_columns_free(&test);
    return rc;
}

static int npy_open_as(const void *conf, struct pl_data *data, struct pl_why *why) {
    const struct npy_conf *c = conf;
    const struct pl_schema *s = data->schema;
    struct npy a;
    uint64_t dim = (uint64_t)data->shape[0] * data->shape[1] * data->shape[2];
    if (!c->file[0]) return pl_fail(why, PL_EUSAGE, "npy needs a file of features: npy:X.npy");
    int rc = npy_read(c->file, &a, why);
    if (!rc && (a.n / a.shape[0] != dim || data->ratings))
        rc =
            pl_fail(why, PL_EDATA, "%s has rows of %llu numbers, but the model was trained on %llu",
                    c->file, (unsigned long long)(a.n / a.shape[0]), (unsigned long long)dim);
    if (!rc && s->n_columns != dim && !npy_is_bytes(&a))
        rc = pl_fail(why, PL_EDATA, "%s has numbers, but the model was trained on bytes or texts",
                     c->file);
    if (!rc && s->n_columns != dim) {
        rc = npy_bytes(&a, NULL, a.shape[0], data->test, why);
    } else if (!rc) {
        rc = pl_rows_array(&data->test->real, a.n, sizeof *data->test->real, why);
        if (!rc) rc = npy_features(&a, data->test->real, c->file, why);
    }
    data->test->n = rc ? 0 : (uint32_t)a.shape[0];
    if (!rc && data->test->real) rc = pl_columns_apply(s, data->test, why);
    free(a.bytes);
    return rc;
}

static const struct pl_opt npy_opts[] = {
    PL_OPT_FILE(struct npy_conf, file, "", "features: an array of n rows, written by numpy.save"),
    PL_OPT_FILE(struct npy_conf, target, "", "what to predict: an array of n numbers"),
    PL_OPT_FILE(struct npy_conf, test, "", "features of test rows (empty: hold out a part)"),
    PL_OPT("test-target", TEXT, struct npy_conf, test_target, "", 0, 0, "FILE",
           "what to predict of them", 0),
    PL_COLUMNS_OPTS(struct npy_conf),
    PL_OPT_END,
};

const struct pl_data_kind pl_data_npy = {
    .id = {"npy", "arrays of your own, written by numpy.save: features and what to predict", "",
           npy_opts, sizeof(struct npy_conf), 0},
    .open = npy_open,
    .open_as = npy_open_as,
};
