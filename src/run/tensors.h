/* Named arrays in one file, in the safetensors format, so that other tools can load them: eight
 * bytes with the length of the header (little-endian), the header in JSON, then the arrays, one
 * after the other, in C order.
 *
 * A file is complete or does not exist: it is written under a temporary name, synced to the disk
 * and renamed. Its header contains a SHA-256 over every byte. The reader trusts
 * nothing that it has not checked.
 *
 * Threads: the caller's; nothing here is shared. */
#ifndef PL_RUN_TENSORS_H
#define PL_RUN_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

#define PL_TENSOR_DIMS 8

struct pl_tensor {
    const char *name; /* 1 to 255 bytes of UTF-8 without control characters */
    enum pl_dtype type;
    int n_dims; /* 0: a single number */
    uint64_t shape[PL_TENSOR_DIMS];
    const void *data; /* aligned to its type if we wrote the file, otherwise perhaps not */
    size_t bytes;
};

/* Metadata. pl_tensors_write sets "sha256", "format" and "writer". */
struct pl_meta {
    const char *key, *value;
};

struct pl_tensors; /* a file that was read */

/* Writes a complete file, replacing one that is at `path`, or changes nothing. */
int pl_tensors_write(const char *path, const struct pl_tensor *tensors, size_t n,
                     const struct pl_meta *meta, size_t n_meta, struct pl_why *why);

/* The bytes of that file, malloc()ed. */
int pl_tensors_pack(const struct pl_tensor *tensors, size_t n, const struct pl_meta *meta,
                    size_t n_meta, unsigned char **out, size_t *bytes, struct pl_why *why);

/* Syncs the folder that contains `path` to the disk: names that were added or removed last. */
int pl_tensors_sync_folder(const char *path);

/* PL_EIO: it cannot be read or is not a plain file; PL_EDATA: "checkpoint 'x' is damaged: …". */
int pl_tensors_read(const char *path, struct pl_tensors **out, struct pl_why *why);
/* Only the header, which is not checked: names, shapes and metadata; there are no data. */
int pl_tensors_head(const char *path, struct pl_tensors **out, struct pl_why *why);
void pl_tensors_free(struct pl_tensors *t); /* NULL is fine */

/* Whether the file had our hash; files written by other tools have none. */
bool pl_tensors_checked(const struct pl_tensors *t);

/* Whether every element of an array of type F32 is finite; true for other types. */
bool pl_tensor_finite(const struct pl_tensor *t);

size_t pl_tensors_count(const struct pl_tensors *t);
const struct pl_tensor *pl_tensors_at(const struct pl_tensors *t, size_t i); /* as in the header */
const struct pl_tensor *pl_tensors_find(const struct pl_tensors *t, const char *name); /* or NULL */
const char *pl_tensors_meta(const struct pl_tensors *t, const char *key);              /* or NULL */

#endif
