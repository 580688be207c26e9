/* The header of a file of tensors, which tensors.c (parsing and reading) and tensors_write.c share.
 *
 * jansson parses it, after a scan has bounded what the parser may build. The writer passes its own
 * header through the same checks before it writes, so no file is written that could not be read
 * back.
 *
 * The checksum is zlib's crc32 over the whole file, with its own eight digits counted as zeros. It
 * is the first thing in the header, at a fixed position, and the SHA-256 over the whole file, with
 * the digits of both counted as zeros, comes next:
 *
 *     {"__metadata__":{"crc32":"89abcdef","sha256":"…","format":"pt","writer":"paceline", …
 *
 * Files of earlier versions have no "sha256". A file that has "crc32" or "writer" must have it
 * there: a flipped bit in one of the two words cannot turn our file into one without a checksum.
 *
 * Threads: the caller's. */
#ifndef PL_RUN_TENSORS_HEADER_H
#define PL_RUN_TENSORS_HEADER_H

#include <jansson.h>
#include <nettle/sha2.h>

#include "run/tensors.h"

#define TENSORS_HEADER_MAX ((uint64_t)100 * 1000 * 1000)
#define TENSORS_ALIGN ((size_t)64)
#define TENSORS_FRONT "{\"__metadata__\":{\"crc32\":\""
#define TENSORS_CRC_AT (sizeof TENSORS_FRONT - 1) /* position of its digits in the header */
#define TENSORS_CRC_DIGITS ((size_t)8)
#define TENSORS_BETWEEN "\",\"sha256\":\""
#define TENSORS_SHA_AT (TENSORS_CRC_AT + TENSORS_CRC_DIGITS + sizeof TENSORS_BETWEEN - 1)
#define TENSORS_SHA_DIGITS ((size_t)64)

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

/* crc32 of the length and of the header, with zeros for its digits. */
unsigned long pl_tensors_crc(const char *header, size_t n);

/* SHA-256 of the length and the header, with zeros for the digits of both; the caller adds the data
 * and calls pl_tensors_sha_digits. */
void pl_tensors_sha(const char *header, size_t n, struct sha256_ctx *out);
void pl_tensors_sha_digits(struct sha256_ctx *sha, char digits[static TENSORS_SHA_DIGITS + 1]);

static inline void pl_tensors_put_length(unsigned char out[8], uint64_t n) {
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(n >> (8 * i));
}

#endif
