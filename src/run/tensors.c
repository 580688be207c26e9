/* The header is parsed by jansson, after a scan has bounded what the parser may build. The writer
 * hands its own header to the same checks before it writes, so that nothing is ever written that
 * could not be read back.
 *
 * The checksum is zlib's crc32 over the whole file with its own eight digits taken as zeros. It is
 * the first thing in the header, at a fixed place:
 *
 *     {"__metadata__":{"crc32":"89abcdef","format":"pt","writer":"paceline", …
 *
 * A file with either "crc32" or "writer" must have it right there: a flipped bit in one of the two
 * words cannot turn a file of ours into one that has no checksum. */
#include "run/tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/json.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are written as they lie");

#define TENSORS_HEADER_MAX ((uint64_t)100 * 1000 * 1000)
#define TENSORS_DEPTH_MAX 8
#define TENSORS_VALUES_MAX ((size_t)1 << 20)
#define TENSORS_NAME_MAX 255
#define TENSORS_ALIGN ((size_t)64)
#define TENSORS_PATH_MAX 4096
#define TENSORS_TRIES 1000

static const char tensors_front[] = "{\"__metadata__\":{\"crc32\":\"";
#define TENSORS_CRC_AT (sizeof tensors_front - 1) /* of its digits, in the header */
#define TENSORS_CRC_DIGITS ((size_t)8)

static const struct tensors_type {
    const char *name;
    size_t size;
} tensors_types[] = {
    [PL_F32] = {"F32", 4},
    [PL_F64] = {"F64", 8},
    [PL_U64] = {"U64", 8},
    [PL_U8] = {"U8", 1},
};
#define TENSORS_TYPES (sizeof tensors_types / sizeof *tensors_types)

struct tensors_row {
    struct pl_tensor tensor;
    uint64_t begin, end; /* in the data */
};

struct pl_tensors {
    unsigned char *file;
    json_t *root; /* owns the names */
    json_t *meta; /* NULL where there is none */
    struct tensors_row *row;
    size_t n;
    bool checked;
};

/* ---- the header ---- */

/* Bounds depth and number of values before a parser sees them. */
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
        return pl_fail(why, PL_EDATA, "it has a name of %zu bytes; 1 to %d are right", n,
                       TENSORS_NAME_MAX);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return pl_fail(why, PL_EDATA, "it has a name with control characters");
    return PL_OK;
}

/* Shape, and the bytes that an array of this shape takes. */
static int tensors_shape(json_t *shape, struct pl_tensor *t, struct pl_why *why) {
    uint64_t bytes = tensors_types[t->type].size;
    size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > PL_TENSOR_DIMS)
        return pl_fail(why, PL_EDATA, "'%s' has no shape of at most %d dimensions", t->name,
                       PL_TENSOR_DIMS);
    t->n_dims = (int)n;
    for (size_t i = 0; i < n; i++) {
        json_t *side = json_array_get(shape, i);
        if (!json_is_integer(side) || json_integer_value(side) < 0)
            return pl_fail(why, PL_EDATA, "'%s' has a dimension that is no whole number", t->name);
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
    size_t i = 0;
    int rc = tensors_name_check(name, why);
    if (rc) return rc;
    if (json_unpack(entry, "{s:s, s:o, s:[I, I !] !}", "dtype", &type, "shape", &shape,
                    "data_offsets", &begin, &end))
        return pl_fail(why, PL_EDATA, "'%s' needs dtype, shape and two data_offsets, and no more",
                       name);
    while (i < TENSORS_TYPES && strcmp(type, tensors_types[i].name) != 0) i++;
    if (i == TENSORS_TYPES)
        return pl_fail(why, PL_EDATA, "'%s' has an unknown dtype; F32, F64, U64 and U8 are known",
                       name);
    row->tensor = (struct pl_tensor){.name = name, .type = (enum pl_dtype)i};
    rc = tensors_shape(shape, &row->tensor, why);
    if (rc) return rc;
    if (begin < 0 || end < begin || (uint64_t)end > room)
        return pl_fail(why, PL_EDATA, "'%s' lies outside of the file", name);
    row->begin = (uint64_t)begin;
    row->end = (uint64_t)end;
    if (row->end - row->begin != row->tensor.bytes)
        return pl_fail(why, PL_EDATA, "the shape of '%s' takes %zu bytes, its offsets give it %llu",
                       name, row->tensor.bytes, (unsigned long long)(row->end - row->begin));
    return PL_OK;
}

static int tensors_order(const void *a, const void *b) {
    const struct tensors_row *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Every byte of the data belongs to one array. */
static int tensors_cover(struct pl_tensors *t, uint64_t room, struct pl_why *why) {
    uint64_t at = 0;
    qsort(t->row, t->n, sizeof *t->row, tensors_order);
    for (size_t i = 0; i < t->n; i++) {
        if (t->row[i].begin != at)
            return pl_fail(why, PL_EDATA, "there is %s before '%s'",
                           t->row[i].begin < at ? "an overlap" : "a hole", t->row[i].tensor.name);
        at = t->row[i].end;
    }
    if (at != room)
        return pl_fail(why, PL_EDATA, "its header tells of %llu bytes of data, it has %llu",
                       (unsigned long long)at, (unsigned long long)room);
    return PL_OK;
}

static int tensors_meta_check(json_t *meta, struct pl_why *why) {
    const char *key;
    json_t *value;
    if (!json_is_object(meta)) return pl_fail(why, PL_EDATA, "its __metadata__ is no object");
    json_object_foreach(meta, key, value) {
        int rc = tensors_name_check(key, why);
        if (rc) return rc;
        if (!json_is_string(value))
            return pl_fail(why, PL_EDATA, "its metadata '%s' is no string", key);
    }
    return PL_OK;
}

/* Fills everything of t but the data, of which there are `room` bytes. The caller frees t. */
static int tensors_parse(struct pl_tensors *t, const char *text, size_t n, uint64_t room,
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

static void tensors_put_length(unsigned char out[8], uint64_t n) {
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(n >> (8 * i));
}

static uint64_t tensors_get_length(const unsigned char in[8]) {
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)in[i] << (8 * i);
    return n;
}

/* crc32 of the length and of a header with zeros for its digits. */
static uLong tensors_crc_front(const char *header, size_t n) {
    unsigned char length[8];
    const char *behind = header + TENSORS_CRC_AT + TENSORS_CRC_DIGITS;
    tensors_put_length(length, n);
    uLong crc = crc32_z(0, length, sizeof length);
    crc = crc32_z(crc, (const Bytef *)header, TENSORS_CRC_AT);
    crc = crc32_z(crc, (const Bytef *)"00000000", TENSORS_CRC_DIGITS);
    return crc32_z(crc, (const Bytef *)behind, (size_t)(header + n - behind));
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
    char digits[TENSORS_CRC_DIGITS + 1];
    t->checked = pl_tensors_meta(t, "crc32") || pl_tensors_meta(t, "writer");
    if (!t->checked) return PL_OK;
    if (n < TENSORS_CRC_AT + TENSORS_CRC_DIGITS || memcmp(header, tensors_front, TENSORS_CRC_AT))
        return pl_fail(why, PL_EDATA, "its checksum is not where it should be");
    uLong crc = crc32_z(tensors_crc_front(header, n), data, room);
    snprintf(digits, sizeof digits, "%08lx", crc & 0xffffffff);
    if (memcmp(header + TENSORS_CRC_AT, digits, TENSORS_CRC_DIGITS))
        return pl_fail(why, PL_EDATA, "its checksum does not match");
    return PL_OK;
}

/* Header first: the memory is touched only as far as a header that makes sense asks for it. */
static int tensors_load(struct pl_tensors *t, int fd, uint64_t size, struct pl_why *why) {
    unsigned char length[8];
    if (size < sizeof length)
        return pl_fail(why, PL_EDATA, "it ends after %llu bytes", (unsigned long long)size);
    int rc = tensors_read_all(fd, length, sizeof length, why);
    if (rc) return rc;
    uint64_t n = tensors_get_length(length);
    if (n > TENSORS_HEADER_MAX)
        return pl_fail(why, PL_EDATA, "its header would take %llu bytes; at most %llu are read",
                       (unsigned long long)n, (unsigned long long)TENSORS_HEADER_MAX);
    if (n > size - sizeof length)
        return pl_fail(why, PL_EDATA, "its header would take %llu bytes, of which %llu are there",
                       (unsigned long long)n, (unsigned long long)(size - sizeof length));
    if (size > PTRDIFF_MAX - TENSORS_ALIGN) return pl_fail(why, PL_ENOMEM, "out of memory");
    t->file = aligned_alloc(TENSORS_ALIGN, ((size_t)size + TENSORS_ALIGN - 1) & -TENSORS_ALIGN);
    if (!t->file)
        return pl_fail(why, PL_ENOMEM, "out of memory: it has %llu bytes",
                       (unsigned long long)size);
    memcpy(t->file, length, sizeof length);
    unsigned char *header = t->file + sizeof length, *data = header + n;
    size_t room = (size_t)(size - sizeof length - n);
    rc = tensors_read_all(fd, header, (size_t)n, why);
    if (!rc) rc = tensors_parse(t, (const char *)header, (size_t)n, room, why);
    if (!rc) rc = tensors_read_all(fd, data, room, why);
    if (!rc) rc = tensors_check(t, (const char *)header, (size_t)n, data, room, why);
    if (rc) return rc;
    for (size_t i = 0; i < t->n; i++) t->row[i].tensor.data = data + t->row[i].begin;
    return PL_OK;
}

int pl_tensors_read(const char *path, struct pl_tensors **out, struct pl_why *why) {
    /* O_NONBLOCK: a pipe must be refused below, not waited for here */
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
    else if ((rc = tensors_load(t, fd, (uint64_t)st.st_size, why))) {
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

/* ---- writing ---- */

/* The arrays in the order in which they will lie: those of large elements first, so that each is
 * aligned to its type without holes between them. NULL: out of memory. */
static const struct pl_tensor **tensors_sort(const struct pl_tensor *tensors, size_t n) {
    const struct pl_tensor **sorted = malloc((n + 1) * sizeof *sorted);
    size_t at = 0;
    for (size_t size = 8; sorted && size > 0; size /= 2)
        for (size_t i = 0; i < n; i++)
            if (tensors_types[tensors[i].type].size == size) sorted[at++] = &tensors[i];
    return sorted;
}

/* Text of the header, with zeros for the checksum; *room: the bytes of data that it tells of. */
static void tensors_header(const struct pl_tensor *const *sorted, size_t n,
                           const struct pl_meta *meta, size_t n_meta, struct pl_json *j,
                           size_t *room) {
    uint64_t at = 0;
    pl_json_open(j, NULL, '{');
    pl_json_open(j, "__metadata__", '{');
    pl_json_text(j, "crc32", "00000000");
    pl_json_text(j, "format", "pt");
    pl_json_text(j, "writer", "paceline");
    for (size_t i = 0; i < n_meta; i++) pl_json_text(j, meta[i].key, meta[i].value);
    pl_json_close(j, '}');
    for (size_t i = 0; i < n; i++) {
        const struct pl_tensor *t = sorted[i];
        pl_json_open(j, t->name, '{');
        pl_json_text(j, "dtype", tensors_types[t->type].name);
        pl_json_open(j, "shape", '[');
        for (int d = 0; d < t->n_dims; d++) pl_json_whole(j, NULL, t->shape[d]);
        pl_json_close(j, ']');
        pl_json_open(j, "data_offsets", '[');
        pl_json_whole(j, NULL, at);
        pl_json_whole(j, NULL, at += t->bytes);
        pl_json_close(j, ']');
        pl_json_close(j, '}');
    }
    pl_json_close(j, '}');
    *room = (size_t)at;
}

static int tensors_write_all(int fd, const void *from, size_t n, struct pl_why *why) {
    const char *at = from;
    while (n > 0) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return pl_fail(why, PL_EIO, "%s", strerror(errno));
        at += put;
        n -= (size_t)put;
    }
    return PL_OK;
}

static int tensors_fsync(int fd) {
    int rc;
    do rc = fsync(fd);
    while (rc && errno == EINTR);
    return rc;
}

int pl_tensors_sync_folder(const char *path) {
    char folder[TENSORS_PATH_MAX];
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--; /* d/ is in the folder that d is in */
    while (n > 0 && path[n - 1] != '/') n--;
    if (n >= sizeof folder) return PL_EIO;
    memcpy(folder, path, n);
    folder[n] = '\0';
    int fd = open(n ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return PL_EIO;
    /* EINVAL: a file system that has no such thing */
    int rc = tensors_fsync(fd) && errno != EINVAL ? PL_EIO : PL_OK;
    close(fd);
    return rc;
}

/* A new file beside `path`, locked as long as its writer lives; its name to temporary[]. */
static int tensors_create(const char *path, char temporary[TENSORS_PATH_MAX], int *out,
                          struct pl_why *why) {
    for (int i = 0; i < TENSORS_TRIES; i++) {
        int n = snprintf(temporary, TENSORS_PATH_MAX, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        if (n < 0 || n >= TENSORS_PATH_MAX)
            return pl_fail(why, PL_EUSAGE, "its path is longer than %d bytes",
                           TENSORS_PATH_MAX - 32);
        int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return pl_fail(why, PL_EIO, "%s", strerror(errno));
        struct stat st;
        int locked = flock(fd, LOCK_EX | LOCK_NB);
        /* taken for a dead writer's and swept away in the moment before the lock: once more */
        if ((locked == 0 || errno != EWOULDBLOCK) && fstat(fd, &st) == 0 && st.st_nlink > 0) {
            *out = fd;
            return PL_OK;
        }
        close(fd);
    }
    return pl_fail(why, PL_EIO, "too many temporary files are in its folder");
}

void pl_tensors_sweep(const char *temporary) {
    int fd = open(temporary, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(temporary);
    close(fd);
}

static int tensors_store(const char *path, const char *header, size_t n_header,
                         const struct pl_tensor *const *sorted, size_t n, struct pl_why *why) {
    char temporary[TENSORS_PATH_MAX];
    unsigned char length[8];
    int fd = -1, rc = tensors_create(path, temporary, &fd, why);
    if (rc) return rc;
    tensors_put_length(length, n_header);
    rc = tensors_write_all(fd, length, sizeof length, why);
    if (!rc) rc = tensors_write_all(fd, header, n_header, why);
    for (size_t i = 0; i < n && !rc; i++)
        rc = tensors_write_all(fd, sorted[i]->data, sorted[i]->bytes, why);
    if (!rc && tensors_fsync(fd)) rc = pl_fail(why, PL_EIO, "%s", strerror(errno));
    /* the lock goes with the file's last descriptor: rename first */
    if (!rc && rename(temporary, path)) rc = pl_fail(why, PL_EIO, "%s", strerror(errno));
    if (rc) unlink(temporary);
    if (close(fd) && !rc) rc = pl_fail(why, PL_EIO, "%s", strerror(errno));
    if (!rc && pl_tensors_sync_folder(path))
        rc = pl_fail(why, PL_EIO, "its folder cannot be forced to the disk");
    return rc;
}

static int tensors_write(const char *path, const struct pl_tensor *tensors, size_t n,
                         const struct pl_meta *meta, size_t n_meta, struct pl_why *why) {
    for (size_t i = 0; i < n; i++)
        if ((size_t)tensors[i].type >= TENSORS_TYPES || tensors[i].n_dims < 0 ||
            tensors[i].n_dims > PL_TENSOR_DIMS)
            return pl_fail(why, PL_EUSAGE, "'%s' has no known type or too many dimensions",
                           tensors[i].name);
    struct pl_json j = {.text = NULL};
    struct pl_tensors checked = {.n = 0};
    size_t room = 0, n_header = 0;
    char *header = NULL;
    int rc = PL_OK;
    const struct pl_tensor **sorted = tensors_sort(tensors, n);
    if (sorted) tensors_header(sorted, n, meta, n_meta, &j, &room);
    if (sorted && !j.failed) { /* the data begins at a multiple of 64 bytes */
        n_header = ((j.n + 8 + TENSORS_ALIGN - 1) & -TENSORS_ALIGN) - 8;
        header = malloc(n_header + 1);
    }
    if (!header) {
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
        goto out;
    }
    memset(header, ' ', n_header); /* blanks behind it, up to where the data begins */
    memcpy(header, j.text, j.n);
    if (n_header > TENSORS_HEADER_MAX)
        rc = pl_fail(why, PL_EUSAGE, "its header would take %zu bytes", n_header);
    if (!rc) rc = tensors_parse(&checked, header, n_header, room, why);
    if (rc == PL_EDATA) rc = PL_EUSAGE; /* it is what was asked for that is wrong */
    if (rc) goto out;
    uLong crc = tensors_crc_front(header, n_header);
    for (size_t i = 0; i < n; i++) /* of no bytes at NULL, crc32_z would begin anew */
        if (sorted[i]->bytes > 0) crc = crc32_z(crc, sorted[i]->data, sorted[i]->bytes);
    char digits[TENSORS_CRC_DIGITS + 1];
    snprintf(digits, sizeof digits, "%08lx", crc & 0xffffffff);
    memcpy(header + TENSORS_CRC_AT, digits, TENSORS_CRC_DIGITS);
    rc = tensors_store(path, header, n_header, sorted, n, why);
out:
    json_decref(checked.root);
    free(checked.row);
    free(header);
    free(j.text);
    free(sorted);
    return rc;
}

int pl_tensors_write(const char *path, const struct pl_tensor *tensors, size_t n,
                     const struct pl_meta *meta, size_t n_meta, struct pl_why *why) {
    int rc = tensors_write(path, tensors, n, meta, n_meta, why);
    if (rc) {
        char prefix[PL_WHY_MAX];
        snprintf(prefix, sizeof prefix, "checkpoint '%s' cannot be written", path);
        pl_fail_in(why, rc, prefix);
    }
    return rc;
}
