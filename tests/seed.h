/* What every random test begins with: its seed, printed, and whether to go easy. Header only, so
 * that the double-precision tests, which link nothing of the library, have it too. */
#ifndef PL_TESTS_SEED_H
#define PL_TESTS_SEED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* PL_TEST_SEED from the environment, or `usual`. A seed that is no number ends the test: a typing
 * mistake must not pass for a seed of 0. */
static inline uint64_t seed_of_test(uint64_t usual) {
    const char *given = getenv("PL_TEST_SEED");
    char *end = NULL;
    uint64_t seed = given && *given ? strtoull(given, &end, 10) : usual;
    if (end && *end) {
        fprintf(stderr, "PL_TEST_SEED=%s is not a whole number\n", given);
        exit(1);
    }
    printf("PL_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* Under a sanitizer: everything is many times slower. */
static inline bool seed_sanitized(void) {
    const char *sanitize = getenv("SANITIZE");
    return sanitize && *sanitize;
}

#endif
