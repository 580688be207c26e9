/* Status codes and error messages.
 *
 * A function that can fail returns 0 or a negative PL_E… code (see paceline.h). If it knows the
 * cause, it also writes one sentence to a struct pl_why: what is wrong and what to do instead. The
 * sentence is written where the cause is first known, and callers pass it on unchanged. */
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
/* Rarely called: laid out away from what often runs. */
#define PL_COLD __attribute__((cold))
/* Never inlined, so that callers that rarely need it stay small. */
#define PL_NOINLINE __attribute__((noinline))
#else
#define PL_PRINTF(f, a)
#define PL_COLD
#define PL_NOINLINE
#endif

/* Writes the message (truncated to PL_WHY_MAX) and returns `status`. `why` may be NULL. */
int pl_fail(struct pl_why *why, int status, const char *fmt, ...) PL_PRINTF(3, 4) PL_COLD;

/* Puts "prefix: " in front of an existing message and returns `status`. */
int pl_fail_in(struct pl_why *why, int status, const char *prefix);

/* Reports that the `what` file `path` could not be created; errno has the reason. PL_EIO. */
int pl_fail_create(struct pl_why *why, const char *what, const char *path);

/* Appends to the string in out[max] with snprintf; truncates, never overflows. */
void pl_append(char *out, size_t max, const char *fmt, ...) PL_PRINTF(3, 4);

#endif
