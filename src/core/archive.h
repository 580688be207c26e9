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

enum pl_archive_kind {
    PL_REALS, /* vectors of the model */
    PL_WHOLES,
    PL_NUMBERS,
    PL_BYTES
};

struct pl_archive {
    bool restoring;
    void *ctx;
    size_t (*piece)(void *ctx, const char *name, enum pl_archive_kind kind, void *v, size_t n);
};

/* Bytes of an element. */
static inline size_t pl_archive_size(enum pl_archive_kind kind) {
    return kind == PL_REALS ? sizeof(pl_real) : kind == PL_BYTES ? 1 : 8;
}

static inline size_t pl_archive_reals(const struct pl_archive *k, const char *name, pl_real *v,
                                      size_t n) {
    return k->piece(k->ctx, name, PL_REALS, v, n);
}

static inline size_t pl_archive_wholes(const struct pl_archive *k, const char *name, uint64_t *v,
                                       size_t n) {
    return k->piece(k->ctx, name, PL_WHOLES, v, n);
}

static inline size_t pl_archive_numbers(const struct pl_archive *k, const char *name, double *v,
                                        size_t n) {
    return k->piece(k->ctx, name, PL_NUMBERS, v, n);
}

static inline size_t pl_archive_bytes(const struct pl_archive *k, const char *name, void *v,
                                      size_t n) {
    return k->piece(k->ctx, name, PL_BYTES, v, n);
}

#endif
