/* Status codes and the sentence that goes with one.
 *
 * A function that can fail returns 0 or a negative PL_E… code (see
 * paceline.h) and, where it knows the cause, leaves one sentence in a
 * struct pl_why: what was wrong and what would be right. The sentence is
 * written once, where the cause is first known, and travels up unchanged. */
#ifndef PL_BASE_STATUS_H
#define PL_BASE_STATUS_H

#include <stddef.h>

#include "paceline.h"

#define PL_WHY_MAX 512

struct pl_why {
    char text[PL_WHY_MAX];
};

#if defined(__GNUC__)
#define PL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define PL_PRINTF(f, a)
#endif

/* Writes the sentence (cut at PL_WHY_MAX) and returns `status`. `why` may be NULL. */
int pl_fail(struct pl_why *why, int status, const char *fmt, ...) PL_PRINTF(3, 4);

/* Puts "prefix: " in front of a sentence that is already there; returns `status`. */
int pl_fail_in(struct pl_why *why, int status, const char *prefix);

/* snprintf at the end of a string that lives in out[max]; cuts, never overflows. */
void pl_append(char *out, size_t max, const char *fmt, ...) PL_PRINTF(3, 4);

#endif
