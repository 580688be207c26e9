/* A small simulated run. */
#ifndef PL_TESTS_SIM_SMALL_H
#define PL_TESTS_SIM_SMALL_H

#include "folder.h"
#include "setups.h"

static pl_setup *small; /* digits, a small network, five workers */

static inline int setup(void **state) {
    char seed[32];
    if (folder_make(state)) return -1;
    small = plain();
    snprintf(seed, sizeof seed, "%llu", test_seed);
    set_all(small, "data=digits:samples=1000,test=200 model=mlp:hidden=16 workers=5 batch=16");
    set(small, "updates", sanitized ? "100" : "300");
    set(small, "eval-samples", "300");
    set(small, "seed", seed);
    return pl_setup_check(small);
}

static inline int teardown(void **state) {
    return folder_end((const char *const[]){"script"}, 1);
}

#endif
