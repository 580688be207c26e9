/* Types of the elements of tensors in files, and their conversion to and from single precision, in
 * which everything is computed. A whole number takes one float per byte, the lowest first, so that
 * it is exact in a vector of whatever precision. The highest byte has the sign. */
#ifndef PL_BASE_DTYPE_H
#define PL_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_dtype {
    PL_F32,
    PL_F64,
    PL_U64,
    PL_U8,
    PL_F16,
    PL_BF16,
    PL_I64,
    PL_I32,
    PL_I16,
    PL_I8,
    PL_BOOL,
    PL_DTYPES
};

/* By their names in safetensors files. */
extern const struct pl_dtype_row {
    const char *name;
    size_t size; /* bytes per element */
} pl_dtypes[PL_DTYPES];

int pl_dtype_find(const char *name); /* enum pl_dtype; -1: unknown */

static inline bool pl_dtype_is_whole(enum pl_dtype type) {
    return type != PL_F32 && type != PL_F64 && type != PL_F16 && type != PL_BF16;
}

/* Floats that an element takes in a vector. */
static inline size_t pl_dtype_floats(enum pl_dtype type) {
    return pl_dtype_is_whole(type) ? pl_dtypes[type].size : 1;
}

/* Converts n elements of `from`, which may lie at any address, to floats. */
void pl_dtype_widen(enum pl_dtype type, const void *from, size_t n, float *to);

/* Converts floats to n elements. Rounds to nearest, ties to even; bytes of a whole number that have
 * been averaged become the nearest number of their type, and NAN becomes 0. */
void pl_dtype_narrow(enum pl_dtype type, const float *from, size_t n, void *to);

#endif
