/* Writing a file of tensors: as a whole, and it gets its name when it is on the disk.
 *
 * Threads: the caller's, which may be the one that writes checkpoints. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/output.h"
#include "run/tensors_header.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are written as they lie");

/* The arrays in file order: those of large elements first, so that each is aligned to its type
 * without padding. Returns NULL if out of memory. */
static const struct pl_tensor **tensors_sort(const struct pl_tensor *tensors, size_t n) {
    const struct pl_tensor **sorted = malloc((n + 1) * sizeof *sorted);
    size_t at = 0;
    for (size_t size = 8; sorted && size > 0; size /= 2)
        for (size_t i = 0; i < n; i++)
            if (pl_dtypes[tensors[i].type].size == size) sorted[at++] = &tensors[i];
    return sorted;
}

/* Where each array begins in the data, in the order of `tensors`; NULL: out of memory. *room: the
 * bytes of all. */
static uint64_t *tensors_offsets(const struct pl_tensor *tensors,
                                 const struct pl_tensor *const *sorted, size_t n, size_t *room) {
    uint64_t *at = malloc((n + 1) * sizeof *at);
    *room = 0;
    for (size_t i = 0; at && i < n; i++) {
        at[sorted[i] - tensors] = *room;
        *room += sorted[i]->bytes;
    }
    return at;
}

/* The text of the header, with zeros for the hash. It has the order of the caller,
 * which is that of the tensors in a model's vector. */
static void tensors_header(const struct pl_tensor *tensors, const uint64_t *at, size_t n,
                           const struct pl_meta *meta, size_t n_meta, struct pl_json *j) {
    pl_json_open(j, NULL, '{');
    pl_json_open(j, "__metadata__", '{');
    pl_json_text(j, "sha256", TENSORS_NO_SHA);
    pl_json_text(j, "format", "pt");
    pl_json_text(j, "writer", "paceline");
    for (size_t i = 0; i < n_meta; i++) pl_json_text(j, meta[i].key, meta[i].value);
    pl_json_close(j, '}');
    for (size_t i = 0; i < n; i++) {
        const struct pl_tensor *t = &tensors[i];
        pl_json_open(j, t->name, '{');
        pl_json_text(j, "dtype", pl_dtypes[t->type].name);
        pl_json_open(j, "shape", '[');
        for (int d = 0; d < t->n_dims; d++) pl_json_whole(j, NULL, t->shape[d]);
        pl_json_close(j, ']');
        pl_json_open(j, "data_offsets", '[');
        pl_json_whole(j, NULL, at[i]);
        pl_json_whole(j, NULL, at[i] + t->bytes);
        pl_json_close(j, ']');
        pl_json_close(j, '}');
    }
    pl_json_close(j, '}');
}

int pl_tensors_sync_folder(const char *path) {
    char folder[PL_OUTPUT_PATH];
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/') n--; /* d/ is in the same folder as d */
    while (n > 0 && path[n - 1] != '/') n--;
    if (n >= sizeof folder) return PL_EIO;
    memcpy(folder, path, n);
    folder[n] = '\0';
    int fd = open(n ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return PL_EIO;
    int rc;
    do rc = fsync(fd);
    while (rc && errno == EINTR);
    /* EINVAL: the file system does not support it */
    rc = rc && errno != EINVAL ? PL_EIO : PL_OK;
    close(fd);
    return rc;
}

struct tensors_memory {
    unsigned char *bytes;
    size_t n;
};

static int tensors_store(const char *path, const char *header, size_t n_header,
                         const struct pl_tensor *const *sorted, size_t n, struct pl_why *why) {
    struct pl_output o;
    unsigned char length[8];
    int rc = pl_output_begin(&o, path, why);
    pl_tensors_put_length(length, n_header);
    if (!rc) rc = pl_output_put(&o, length, sizeof length, why);
    if (!rc) rc = pl_output_put(&o, header, n_header, why);
    for (size_t i = 0; i < n && !rc; i++)
        rc = pl_output_put(&o, sorted[i]->data, sorted[i]->bytes, why);
    if (!rc) rc = pl_output_sync(&o, why);
    rc = pl_output_end(&o, rc, why);
    if (!rc && pl_tensors_sync_folder(path))
        rc = pl_fail(why, PL_EIO, "its folder cannot be synced to the disk");
    return rc;
}

/* The same into memory. */
static int tensors_copy(const char *header, size_t n_header, const struct pl_tensor *const *sorted,
                        size_t n, size_t room, struct tensors_memory *to, struct pl_why *why) {
    unsigned char *at = to->bytes = malloc(8 + n_header + room);
    if (!at) return pl_fail(why, PL_ENOMEM, "out of memory");
    pl_tensors_put_length(at, n_header);
    memcpy(at += 8, header, n_header);
    at += n_header;
    for (size_t i = 0; i < n; i++) {
        if (sorted[i]->bytes > 0) memcpy(at, sorted[i]->data, sorted[i]->bytes);
        at += sorted[i]->bytes;
    }
    to->n = 8 + n_header + room;
    return PL_OK;
}

/* Puts the hash into the header. */
static void tensors_sign(char *header, size_t n_header, const struct pl_tensor *const *sorted,
                         size_t n) {
    struct sha256_ctx sha;
    char digits[TENSORS_SHA_DIGITS + 1];
    pl_tensors_sha(header, n_header, &sha);
    for (size_t i = 0; i < n; i++)
        if (sorted[i]->bytes > 0) sha256_update(&sha, sorted[i]->bytes, sorted[i]->data);
    pl_tensors_sha_digits(&sha, digits);
    memcpy(header + TENSORS_SHA_AT, digits, TENSORS_SHA_DIGITS);
}

/* To the file at `path`, or if it is NULL to memory. */
static int tensors_write(const char *path, struct tensors_memory *to,
                         const struct pl_tensor *tensors, size_t n, const struct pl_meta *meta,
                         size_t n_meta, struct pl_why *why) {
    for (size_t i = 0; i < n; i++)
        if ((size_t)tensors[i].type >= PL_DTYPES || tensors[i].n_dims < 0 ||
            tensors[i].n_dims > PL_TENSOR_DIMS)
            return pl_fail(why, PL_EUSAGE, "'%s' has an unknown type or too many dimensions",
                           tensors[i].name);
    struct pl_json j = {.text = NULL};
    struct pl_tensors checked = {.n = 0};
    size_t room = 0, n_header = 0;
    char *header = NULL;
    int rc = PL_OK;
    const struct pl_tensor **sorted = tensors_sort(tensors, n);
    uint64_t *at = sorted ? tensors_offsets(tensors, sorted, n, &room) : NULL;
    if (at) tensors_header(tensors, at, n, meta, n_meta, &j);
    if (at && !j.failed) { /* data begin at a multiple of 64 bytes */
        n_header = ((j.n + 8 + TENSORS_ALIGN - 1) & -TENSORS_ALIGN) - 8;
        header = malloc(n_header + 1);
    }
    if (!header) {
        rc = pl_fail(why, PL_ENOMEM, "out of memory");
        goto out;
    }
    memset(header, ' ', n_header); /* blanks up to the data */
    memcpy(header, j.text, j.n);
    if (n_header > TENSORS_HEADER_MAX)
        rc = pl_fail(why, PL_EUSAGE, "its header would take %zu bytes", n_header);
    if (!rc) rc = pl_tensors_parse(&checked, header, n_header, room, why);
    if (rc == PL_EDATA) rc = PL_EUSAGE; /* the caller's arguments are wrong, not a file */
    if (rc) goto out;
    tensors_sign(header, n_header, sorted, n);
    rc = path ? tensors_store(path, header, n_header, sorted, n, why)
              : tensors_copy(header, n_header, sorted, n, room, to, why);
out:
    json_decref(checked.root);
    free(checked.row);
    free(header);
    free(j.text);
    free(at);
    free(sorted);
    return rc;
}

int pl_tensors_write(const char *path, const struct pl_tensor *tensors, size_t n,
                     const struct pl_meta *meta, size_t n_meta, struct pl_why *why) {
    int rc = tensors_write(path, NULL, tensors, n, meta, n_meta, why);
    if (rc) {
        char prefix[PL_WHY_MAX];
        snprintf(prefix, sizeof prefix, "checkpoint '%s' cannot be written", path);
        pl_fail_in(why, rc, prefix);
    }
    return rc;
}

int pl_tensors_pack(const struct pl_tensor *tensors, size_t n, const struct pl_meta *meta,
                    size_t n_meta, unsigned char **out, size_t *bytes, struct pl_why *why) {
    struct tensors_memory to = {NULL, 0};
    int rc = tensors_write(NULL, &to, tensors, n, meta, n_meta, why);
    *out = to.bytes;
    *bytes = to.n;
    return rc;
}
