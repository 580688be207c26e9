/* What must survive the end of a process, told once for saving and restoring: store and control
 * walk through what they are made of and hand each piece, by name, to whoever keeps it.
 *
 * Saving, a piece is read before the call returns. Restoring, it is filled with what was kept under
 * its name: at most n elements; the call returns how many were kept, 0 for a name that is unknown.
 * A piece that was kept shorter leaves the rest as it was. */
#ifndef PL_CORE_ARCHIVE_H
#define PL_CORE_ARCHIVE_H

#include <stdbool.h>

#include "core/rule.h"

struct pl_archive {
    bool restoring;
    void *ctx;
    size_t (*reals)(void *ctx, const char *name, pl_real *v, size_t n); /* a vector of the model's
                                                                           length */
    size_t (*wholes)(void *ctx, const char *name, uint64_t *v, size_t n);
    size_t (*numbers)(void *ctx, const char *name, double *v, size_t n);
    size_t (*bytes)(void *ctx, const char *name, void *v, size_t n);
};

#endif
