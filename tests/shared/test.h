/* What every test program includes: cmocka, the headers that it and most tests need, and a way to
 * write a test so that the program runs it:
 *
 *     TEST(what_holds) { … }
 *
 * They run in the order in which they are written. A program without a main() runs them all, with
 * no more preparation. */
#ifndef PL_TESTS_TEST_H
#define PL_TESTS_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct test {
    struct CMUnitTest unit;
    int line;
};

/* A test between two fixtures, either of which may be NULL; a test with a teardown owns things
 * until the next one without has ended. The linker makes an array of all the pointers in the
 * section. */
#define TEST_BETWEEN(setup, teardown, name)                                                        \
    static void name(void **state);                                                                \
    static const struct test test_of_##name = {{#name, name, setup, teardown, NULL}, __LINE__};    \
    __attribute__((used, section("tests"))) static const struct test *const entry_of_##name =      \
        &test_of_##name;                                                                           \
    static void name(void **state)
#define TEST(name) TEST_BETWEEN(NULL, NULL, name)

extern unsigned long long test_seed; /* PL_TEST_SEED from the environment, or the usual one */
extern bool sanitized;               /* everything is many times slower then */

/* What a test owns is released when it ends, the newest first; what the setup of a group owns,
 * after the last test. */
void *own(void *object, void (*release)(void *object)); /* returns the object; NULL is fine */
void *own_room(size_t n, size_t size);                  /* zeros */
size_t n_owned(void);
void release_owned(size_t n); /* all but the first n, for loops that own much */

void begin_tests(unsigned long long usual_seed); /* sets both, and prints the seed */

/* Runs all tests between two fixtures, either of which may be NULL; with a usual seed of 1 unless
 * begin_tests was called. Returns the exit status. */
int run_all_tests(CMFixtureFunction setup, CMFixtureFunction teardown);

/* The main() of a program whose tests need more than the usual: fixtures of the whole group, and
 * another usual seed. */
#define ALL_TESTS_FROM_SEED(seed, setup, teardown)                                                 \
    int main(void) {                                                                               \
        begin_tests(seed);                                                                         \
        return run_all_tests(setup, teardown);                                                     \
    }
#define ALL_TESTS_BETWEEN(setup, teardown) ALL_TESTS_FROM_SEED(1, setup, teardown)

#endif
