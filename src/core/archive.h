/* State that must survive the end of a process, described once for saving and restoring: store,
 * control and others pass each piece, by name, to the archive.
 *
 * When saving, a piece is read before the call returns. When restoring, it is filled with what was
 * saved under its name, at most n elements; the call returns how many were saved, 0 if the name is
 * unknown. If fewer than n were saved, the rest is left as it was. */
#ifndef PL_CORE_ARCHIVE_H
#define PL_CORE_ARCHIVE_H

#include <stdbool.h>

#include "core/rule.h"

struct pl_archive {
    bool restoring;
    void *ctx;
    /* A vector of the model's length. */
    size_t (*reals)(void *ctx, const char *name, pl_real *v, size_t n);
    size_t (*wholes)(void *ctx, const char *name, uint64_t *v, size_t n);
    size_t (*numbers)(void *ctx, const char *name, double *v, size_t n);
    size_t (*bytes)(void *ctx, const char *name, void *v, size_t n);
};

#endif
