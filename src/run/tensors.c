#include "run/tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run/tensors_header.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are read as they lie");

#define TENSORS_DEPTH_MAX 8
#define TENSORS_VALUES_MAX ((size_t)1 << 20)
#define TENSORS_NAME_MAX 255

/* ---- the header ---- */

/* Bounds the depth and the number of values before the parser sees them. */
static int tensors_scan(const char *text, size_t n, struct pl_why *why) {
    size_t values = 0;
    int depth = 0;
    bool quoted = false;
    if (n == 0 || text[0] != '{') return pl_fail(why, PL_EDATA, "its header does not begin with {");
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            if (c == '"') quoted = false;
            continue;
        }
        if (c == '"') quoted = true;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        if (c == '{' || c == '[' || c == ',') values++;
        if (depth > TENSORS_DEPTH_MAX)
            return pl_fail(why, PL_EDATA, "its header is nested deeper than %d", TENSORS_DEPTH_MAX);
        if (values > TENSORS_VALUES_MAX)
            return pl_fail(why, PL_EDATA, "its header has more than %zu values",
                           TENSORS_VALUES_MAX);
    }
    return PL_OK;
}

static int tensors_name_check(const char *name, struct pl_why *why) {
    size_t n = strlen(name);
    if (n == 0 || n > TENSORS_NAME_MAX)
        return pl_fail(why, PL_EDATA, "it has a name of %zu bytes; a name has 1 to %d", n,
                       TENSORS_NAME_MAX);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return pl_fail(why, PL_EDATA, "it has a name with control characters");
    return PL_OK;
}

/* Reads the shape, and computes the bytes that an array of this shape takes. */
static int tensors_shape(json_t *shape, struct pl_tensor *t, struct pl_why *why) {
    uint64_t bytes = pl_dtypes[t->type].size;
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > PL_TENSOR_DIMS)
        return pl_fail(why, PL_EDATA, "'%s' has no shape of at most %d dimensions", t->name,
                       PL_TENSOR_DIMS);
    t->n_dims = (int)n;
    for (size_t i = 0; i < n; i++) {
        json_t *side = json_array_get(shape, i);
        if (!json_is_integer(side) || json_integer_value(side) < 0)
            return pl_fail(why, PL_EDATA, "'%s' has a dimension that is not a whole number",
                           t->name);
        t->shape[i] = (uint64_t)json_integer_value(side);
        if (__builtin_mul_overflow(bytes, t->shape[i], &bytes) || bytes > PTRDIFF_MAX)
            return pl_fail(why, PL_EDATA, "the shape of '%s' is too large for any memory", t->name);
    }
    t->bytes = (size_t)bytes;
    return PL_OK;
}

static int tensors_row_parse(const char *name, json_t *entry, uint64_t room,
                             struct tensors_row *row, struct pl_why *why) {
    const char *type = NULL;
    json_t *shape = NULL;
    json_int_t begin = 0, end = 0;
    int rc = tensors_name_check(name, why);
    if (rc) return rc;
    if (json_unpack(entry, "{s:s, s:o, s:[I, I !] !}", "dtype", &type, "shape", &shape,
                    "data_offsets", &begin, &end))
        return pl_fail(why, PL_EDATA,
                       "'%s' must have dtype, shape and two data_offsets, and nothing else", name);
    int found = pl_dtype_find(type);
    if (found < 0)
        return pl_fail(why, PL_EDATA, "'%s' has the unknown dtype '%.20s'; convert it to F32", name,
                       type);
    row->tensor = (struct pl_tensor){.name = name, .type = (enum pl_dtype)found};
    rc = tensors_shape(shape, &row->tensor, why);
    if (rc) return rc;
    if (begin < 0 || end < begin || (uint64_t)end > room)
        return pl_fail(why, PL_EDATA, "'%s' lies outside the file", name);
    row->begin = (uint64_t)begin;
    row->end = (uint64_t)end;
    if (row->end - row->begin != row->tensor.bytes)
        return pl_fail(why, PL_EDATA,
                       "the shape of '%s' needs %zu bytes, but its offsets span %llu", name,
                       row->tensor.bytes, (unsigned long long)(row->end - row->begin));
    return PL_OK;
}

static int tensors_order(const void *a, const void *b) {
    const struct tensors_row *x = *(const struct tensors_row *const *)a,
                             *y = *(const struct tensors_row *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Checks that every byte of the data belongs to exactly one array. */
static int tensors_cover(struct pl_tensors *t, uint64_t room, struct pl_why *why) {
    uint64_t at = 0;
    const struct tensors_row **row = malloc((t->n + 1) * sizeof *row);
    const struct tensors_row *bad = NULL;
    if (!row) return pl_fail(why, PL_ENOMEM, "out of memory");
    for (size_t i = 0; i < t->n; i++) row[i] = &t->row[i];
    qsort(row, t->n, sizeof *row, tensors_order);
    for (size_t i = 0; i < t->n && !bad; i++) {
        if (row[i]->begin != at)
            bad = row[i];
        else
            at = row[i]->end;
    }
    free(row);
    if (bad)
        return pl_fail(why, PL_EDATA, "there is %s before '%s'",
                       bad->begin < at ? "an overlap" : "a hole", bad->tensor.name);
    if (at != room)
        return pl_fail(why, PL_EDATA, "its header describes %llu bytes of data, but it has %llu",
                       (unsigned long long)at, (unsigned long long)room);
    return PL_OK;
}

static int tensors_meta_check(json_t *meta, struct pl_why *why) {
    const char *key;
    json_t *value;
    if (!json_is_object(meta)) return pl_fail(why, PL_EDATA, "its __metadata__ is not an object");
    json_object_foreach(meta, key, value) {
        int rc = tensors_name_check(key, why);
        if (rc) return rc;
        if (!json_is_string(value))
            return pl_fail(why, PL_EDATA, "its metadata '%s' is not a string", key);
    }
    return PL_OK;
}

int pl_tensors_parse(struct pl_tensors *t, const char *text, size_t n, uint64_t room,
                     struct pl_why *why) {
    json_error_t error;
    int rc = tensors_scan(text, n, why);
    if (rc) return rc;
    t->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!t->root && json_error_code(&error) == json_error_out_of_memory)
        return pl_fail(why, PL_ENOMEM, "out of memory");
    if (!t->root && json_error_code(&error) == json_error_duplicate_key)
        return pl_fail(why, PL_EDATA, "its header has the same name twice");
    if (!t->root)
        return pl_fail(why, PL_EDATA, "its header is not JSON in UTF-8 (at byte %d)",
                       error.position);
    const char *name;
    json_t *entry;
    t->row = calloc(json_object_size(t->root) + 1, sizeof *t->row);
    if (!t->row) return pl_fail(why, PL_ENOMEM, "out of memory");
    json_object_foreach(t->root, name, entry) {
        if (strcmp(name, "__metadata__") == 0) {
            t->meta = entry;
            rc = tensors_meta_check(entry, why);
        } else {
            rc = tensors_row_parse(name, entry, room, &t->row[t->n++], why);
        }
        if (rc) return rc;
    }
    return tensors_cover(t, room, why);
}

static uint64_t tensors_get_length(const unsigned char in[8]) {
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)in[i] << (8 * i);
    return n;
}

void pl_tensors_sha(const char *header, size_t n, struct sha256_ctx *out) {
    unsigned char length[8];
    const char *behind = header + TENSORS_SHA_AT + TENSORS_SHA_DIGITS;
    pl_tensors_put_length(length, n);
    sha256_init(out);
    sha256_update(out, sizeof length, length);
    sha256_update(out, TENSORS_SHA_AT, (const uint8_t *)header);
    sha256_update(out, TENSORS_SHA_DIGITS, (const uint8_t *)TENSORS_NO_SHA);
    sha256_update(out, (size_t)(header + n - behind), (const uint8_t *)behind);
}

void pl_tensors_sha_digits(struct sha256_ctx *sha, char digits[static TENSORS_SHA_DIGITS + 1]) {
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_digest(sha, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(digits + 2 * i, 3, "%02x", digest[i]);
}

/* ---- reading ---- */

static int tensors_read_all(int fd, unsigned char *to, size_t n, struct pl_why *why) {
    while (n > 0) {
        ssize_t got = read(fd, to, n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return pl_fail(why, PL_EIO, "%s", strerror(errno));
        if (got == 0) return pl_fail(why, PL_EDATA, "it became shorter while it was read");
        to += got;
        n -= (size_t)got;
    }
    return PL_OK;
}

static int tensors_check(struct pl_tensors *t, const char *header, size_t n,
                         const unsigned char *data, size_t room, struct pl_why *why) {
    char digits[TENSORS_SHA_DIGITS + 1];
    struct sha256_ctx sha;
    t->checked = pl_tensors_meta(t, "sha256") || pl_tensors_meta(t, "writer");
    if (!t->checked) return PL_OK;
    if (n < TENSORS_SHA_AT + TENSORS_SHA_DIGITS || memcmp(header, TENSORS_FRONT, TENSORS_SHA_AT))
        return pl_fail(why, PL_EDATA,
                       "it does not begin as this version of Paceline begins a checkpoint");
    pl_tensors_sha(header, n, &sha);
    sha256_update(&sha, room, data);
    pl_tensors_sha_digits(&sha, digits);
    if (memcmp(header + TENSORS_SHA_AT, digits, TENSORS_SHA_DIGITS))
        return pl_fail(why, PL_EDATA, "its SHA-256 does not match");
    return PL_OK;
}

/* Reads the header first, so that no more memory is touched than a valid header asks for. With
 * `head` it reads no more than that. */
static int tensors_load(struct pl_tensors *t, int fd, uint64_t size, bool head,
                        struct pl_why *why) {
    unsigned char length[8];
    if (size < sizeof length)
        return pl_fail(why, PL_EDATA, "it ends after %llu bytes", (unsigned long long)size);
    int rc = tensors_read_all(fd, length, sizeof length, why);
    if (rc) return rc;
    uint64_t n = tensors_get_length(length);
    if (n > TENSORS_HEADER_MAX)
        return pl_fail(why, PL_EDATA,
                       "it is not a safetensors file, which begins with the length "
                       "of its header");
    if (n > size - sizeof length)
        return pl_fail(why, PL_EDATA, "its header would take %llu bytes, but only %llu follow",
                       (unsigned long long)n, (unsigned long long)(size - sizeof length));
    if (size > PTRDIFF_MAX - TENSORS_ALIGN) return pl_fail(why, PL_ENOMEM, "out of memory");
    size_t wanted = head ? (size_t)n + sizeof length : (size_t)size;
    t->file = aligned_alloc(TENSORS_ALIGN, (wanted + TENSORS_ALIGN - 1) & -TENSORS_ALIGN);
    if (!t->file)
        return pl_fail(why, PL_ENOMEM, "out of memory: the file has %llu bytes",
                       (unsigned long long)size);
    memcpy(t->file, length, sizeof length);
    unsigned char *header = t->file + sizeof length, *data = header + n;
    size_t room = (size_t)(size - sizeof length - n);
    rc = tensors_read_all(fd, header, (size_t)n, why);
    if (!rc) rc = pl_tensors_parse(t, (const char *)header, (size_t)n, room, why);
    if (rc || head) return rc;
    rc = tensors_read_all(fd, data, room, why);
    if (!rc) rc = tensors_check(t, (const char *)header, (size_t)n, data, room, why);
    if (rc) return rc;
    for (size_t i = 0; i < t->n; i++) t->row[i].tensor.data = data + t->row[i].begin;
    return PL_OK;
}

static int tensors_open(const char *path, bool head, struct pl_tensors **out, struct pl_why *why) {
    /* O_NONBLOCK: a pipe is refused below; opening it must not block */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pl_fail(why, PL_EIO, "checkpoint '%s' cannot be opened: %s", path, strerror(errno));
    struct stat st;
    struct pl_tensors *t = NULL;
    int rc = PL_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = pl_fail(why, PL_EIO, "checkpoint '%s' is not a plain file", path);
    else if (!(t = calloc(1, sizeof *t)))
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
    else if ((rc = tensors_load(t, fd, (uint64_t)st.st_size, head, why))) {
        char prefix[PL_WHY_MAX];
        snprintf(prefix, sizeof prefix, "checkpoint '%s' %s", path,
                 rc == PL_EDATA ? "is damaged" : "cannot be read");
        pl_fail_in(why, rc, prefix);
    }
    close(fd);
    if (rc)
        pl_tensors_free(t);
    else
        *out = t;
    return rc;
}

int pl_tensors_read(const char *path, struct pl_tensors **out, struct pl_why *why) {
    return tensors_open(path, false, out, why);
}

int pl_tensors_head(const char *path, struct pl_tensors **out, struct pl_why *why) {
    return tensors_open(path, true, out, why);
}

void pl_tensors_free(struct pl_tensors *t) {
    if (!t) return;
    json_decref(t->root);
    free(t->row);
    free(t->file);
    free(t);
}

bool pl_tensors_checked(const struct pl_tensors *t) {
    return t->checked;
}

bool pl_tensor_finite(const struct pl_tensor *t) {
    const unsigned char *at = t->data; /* perhaps not aligned */
    uint32_t bad = 0;
    for (size_t i = 0; t->type == PL_F32 && i < t->bytes / sizeof(float); i++) {
        uint32_t bits;
        memcpy(&bits, at + i * sizeof bits, sizeof bits);
        bad |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return !bad;
}

size_t pl_tensors_count(const struct pl_tensors *t) {
    return t->n;
}

const struct pl_tensor *pl_tensors_at(const struct pl_tensors *t, size_t i) {
    return &t->row[i].tensor;
}

const struct pl_tensor *pl_tensors_find(const struct pl_tensors *t, const char *name) {
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->row[i].tensor.name, name) == 0) return &t->row[i].tensor;
    return NULL;
}

const char *pl_tensors_meta(const struct pl_tensors *t, const char *key) {
    return json_string_value(json_object_get(t->meta, key));
}
