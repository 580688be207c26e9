/* Reading a file that may be gzipped, in pieces, with every failure told in one sentence. */
#ifndef PL_DATA_FILE_H
#define PL_DATA_FILE_H

#include <stdint.h>
#include <zlib.h>

#include "base/status.h"

#define PL_PATH_MAX 1024

struct pl_file {
    gzFile gz;
    const char *path;
};

/* Plain files only: no directory, pipe or device. `path` must outlive the file. */
int pl_file_open(struct pl_file *f, const char *path, struct pl_why *why);

/* Up to n bytes; *got < n only at the end. A damaged or cut compressed stream is an error. */
int pl_file_read(struct pl_file *f, void *to, size_t n, size_t *got, struct pl_why *why);

void pl_file_close(struct pl_file *f); /* a zeroed one is fine */

/* The whole file, unpacked, in *out[*n] (free() it). More than `max` bytes are refused. */
int pl_file_slurp(const char *path, uint64_t max, uint8_t **out, size_t *n, struct pl_why *why);

/* Writes to path[PL_PATH_MAX] whichever of dir/name and dir/name.gz exists. */
int pl_file_find(const char *dir, const char *name, char *path, struct pl_why *why);

#endif
