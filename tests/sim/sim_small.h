/* A small simulated run. */
#ifndef PL_TESTS_SIM_SMALL_H
#define PL_TESTS_SIM_SMALL_H

#include "folder.h"
#include "setups.h"

static pl_setup *small; /* digits, a small network, five workers */

static inline double number(const pl_run *run, const char *key) {
    return pl_run_number(run, key);
}

static inline void check_books(const char *what, const pl_run *run) {
    static const char *const fates[] = {"tasks.applied", "tasks.dropped",  "tasks.cancelled",
                                        "tasks.lost",    "tasks.rejected", "tasks.running"};
    static const char *const shares[] = {"worker_time.compute", "worker_time.communication",
                                         "worker_time.idle", "worker_time.wasted"};
    double tasks = 0, time = 0;
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++) tasks += number(run, fates[i]);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        assert_true(number(run, shares[i]) >= 0);
        time += number(run, shares[i]);
    }
    if (tasks != number(run, "tasks.started"))
        fail_msg("%s: fates sum to %g of %g tasks", what, tasks, number(run, "tasks.started"));
    if (!(fabs(time - 1) <= 1e-9)) fail_msg("%s: the workers' time sums to %.12g", what, time);
}

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
