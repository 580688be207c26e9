/* The header of a file of tensors, which tensors.c (parsing and reading) and tensors_write.c share.
 *
 * jansson parses it, after a scan has bounded what the parser may build. The writer passes its own
 * header through the same checks before it writes, so no file is written that could not be read
 * back.
 *
 * The hash is the SHA-256 over the whole file, with its own 64 digits counted as zeros. It is
 * the first thing in the header, at a fixed position:
 *
 *     {"__metadata__":{"sha256":"…","format":"pt","writer":"paceline", …
 *
 * A file that has "sha256" or "writer" must have it there: a flipped bit in one of the two words
 * cannot turn our file into one without a hash.
 *
 * Threads: the caller's. */
#ifndef PL_RUN_TENSORS_HEADER_H
#define PL_RUN_TENSORS_HEADER_H

#include <jansson.h>
#include <nettle/sha2.h>

#include "run/tensors.h"

#define TENSORS_HEADER_MAX ((uint64_t)100 * 1000 * 1000)
#define TENSORS_ALIGN ((size_t)64)
#define TENSORS_FRONT "{\"__metadata__\":{\"sha256\":\""
#define TENSORS_SHA_AT (sizeof TENSORS_FRONT - 1) /* position of its digits in the header */
#define TENSORS_SHA_DIGITS ((size_t)64)
#define TENSORS_NO_SHA "0000000000000000000000000000000000000000000000000000000000000000"

struct tensors_row {
    struct pl_tensor tensor;
    uint64_t begin, end; /* offsets in the data */
};

struct pl_tensors {
    unsigned char *file;
    json_t *root; /* owns the names */
    json_t *meta; /* NULL: the file has none */
    struct tensors_row *row;
    size_t n;
    bool checked;
};

/* Parses a header for `room` bytes of data. Fills everything in t but the data; the caller frees t,
 * also if this fails. */
int pl_tensors_parse(struct pl_tensors *t, const char *text, size_t n, uint64_t room,
                     struct pl_why *why);

/* SHA-256 of the length and the header, with zeros for its digits; the caller adds the data and
 * calls pl_tensors_sha_digits. */
void pl_tensors_sha(const char *header, size_t n, struct sha256_ctx *out);
void pl_tensors_sha_digits(struct sha256_ctx *sha, char digits[static TENSORS_SHA_DIGITS + 1]);

static inline void pl_tensors_put_length(unsigned char out[8], uint64_t n) {
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(n >> (8 * i));
}

#endif
