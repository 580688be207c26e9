#include "test.h"

#define MAX_TESTS 100

unsigned long long test_seed;
bool sanitized;

/* The section of TEST. Programs with a main() of their own may have none. */
extern const struct test *const __start_tests[] __attribute__((weak));
extern const struct test *const __stop_tests[] __attribute__((weak));

static bool begun;

/* A seed that is no number ends the test: a typing mistake must not pass for a seed of 0. */
void begin_tests(unsigned long long usual_seed) {
    const char *given = getenv("PL_TEST_SEED"), *sanitize = getenv("SANITIZE");
    char *end = NULL;
    test_seed = given && *given ? strtoull(given, &end, 10) : usual_seed;
    if (end && *end) {
        fprintf(stderr, "PL_TEST_SEED=%s is not a whole number\n", given);
        exit(1);
    }
    printf("PL_TEST_SEED=%llu\n", test_seed);
    sanitized = sanitize && *sanitize;
    begun = true;
}

/* --- what tests own ------------------------------------------------------------------------ */

static struct {
    void *object;
    void (*release)(void *object);
} * owned;
static size_t n_now, n_room, n_of_group;

void *own(void *object, void (*release)(void *object)) {
    if (!object) return NULL;
    if (n_now == n_room) {
        n_room = n_room ? 2 * n_room : 64;
        owned = realloc(owned, n_room * sizeof *owned);
        assert_non_null(owned);
    }
    owned[n_now].object = object;
    owned[n_now++].release = release;
    return object;
}

void *own_room(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    assert_non_null(p);
    return own(p, free);
}

size_t n_owned(void) {
    return n_now;
}

void release_owned(size_t n) {
    while (n_now > n) {
        n_now--;
        owned[n_now].release(owned[n_now].object);
    }
}

static int end_test(void **state) {
    release_owned(n_of_group);
    return 0;
}

/* --- all tests of a program ---------------------------------------------------------------- */

static CMFixtureFunction setup_group, teardown_group;

static int begin_group(void **state) {
    int rc = setup_group ? setup_group(state) : 0;
    n_of_group = n_now;
    return rc;
}

static int end_group(void **state) {
    int rc = teardown_group ? teardown_group(state) : 0;
    release_owned(0);
    free(owned);
    return rc;
}

/* The compiler may have written them in any order. */
static int compare_lines(const void *a, const void *b) {
    return (*(const struct test *const *)a)->line - (*(const struct test *const *)b)->line;
}

int run_all_tests(CMFixtureFunction setup, CMFixtureFunction teardown) {
    const struct test *sorted[MAX_TESTS];
    struct CMUnitTest units[MAX_TESTS];
    size_t n = (size_t)(__stop_tests - __start_tests);
    if (!begun) begin_tests(1);
    if (n == 0 || n > MAX_TESTS) {
        fprintf(stderr, "%zu tests in one program, not 1 to %d\n", n, MAX_TESTS);
        return 1;
    }
    memcpy(sorted, __start_tests, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_lines);
    for (size_t i = 0; i < n; i++) {
        units[i] = sorted[i]->unit;
        if (!units[i].teardown_func) units[i].teardown_func = end_test;
    }
    setup_group = setup;
    teardown_group = teardown;
    return _cmocka_run_group_tests("tests", units, n, begin_group, end_group);
}

__attribute__((weak)) ALL_TESTS_BETWEEN(NULL, NULL)
