/* Setups and sentences for programs that see paceline.h alone. */
#ifndef PL_TESTS_EMBEDDING_H
#define PL_TESTS_EMBEDDING_H

#include "setups.h"

/* Pairs of keys and values; ends with NULL. */
static inline pl_setup *make(const char *key, ...) {
    va_list ap;
    char seed[32];
    pl_setup *s = plain();
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)test_seed);
    assert_int_equal(pl_setup_set(s, "seed", seed), 0);
    va_start(ap, key);
    for (; key; key = va_arg(ap, const char *))
        if (pl_setup_set(s, key, va_arg(ap, const char *))) fail_msg("%s", pl_setup_why(s));
    va_end(ap);
    return s;
}

static inline pl_run *run_setup(pl_setup *s) {
    pl_run *run = simulate(s);
    assert_string_equal(pl_setup_why(s), "");
    return run;
}

/* One sentence: something in it, one line, no full stop, no leftovers of a format. */
static inline void check_sentence(const char *why) {
    size_t n = strlen(why);
    if (n < 10 || strchr(why, '\n') || why[n - 1] == '.' || why[n - 1] == ' ' ||
        strstr(why, "%s") || strstr(why, "(null)"))
        fail_msg("\"%s\" is not a sentence", why);
}

#endif
