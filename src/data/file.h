/* Reads a file that may be gzipped, in pieces. Every failure gets an error message. */
#ifndef PL_DATA_FILE_H
#define PL_DATA_FILE_H

#include <stdint.h>
#include <zlib.h>

#include "base/status.h"

#define PL_PATH_MAX 1024

struct pl_file {
    gzFile gz;
    const char *path;
    uint64_t size; /* of the file as it lies on the disk */
};

/* Opens a regular file; directories, pipes and devices are errors. `path` must outlive the file. */
int pl_file_open(struct pl_file *f, const char *path, struct pl_why *why);

/* Reads up to n bytes; *got < n only at the end. A damaged or truncated stream is an error. */
int pl_file_read(struct pl_file *f, void *to, size_t n, size_t *got, struct pl_why *why);

void pl_file_close(struct pl_file *f); /* a zeroed struct is allowed */

/* Unpacks what is left, but at most `max` bytes, into *out[*n], which the caller frees. */
int pl_file_rest(struct pl_file *f, uint64_t max, uint8_t **out, size_t *n, struct pl_why *why);

/* Unpacks the whole file into *out[*n], which the caller frees. Fails above `max` bytes. */
int pl_file_slurp(const char *path, uint64_t max, uint8_t **out, size_t *n, struct pl_why *why);

/* Writes the path of dir/name or dir/name.gz, whichever exists, to path[PL_PATH_MAX]. */
int pl_file_find(const char *dir, const char *name, char *path, struct pl_why *why);

#endif
