/* The program with policies that wait for another number of results than K, for reproduce.sh: the
 * environment variable MUTANT names the one that is wrong. */
#include <stdlib.h>
#include <string.h>

#include "paceline_policy.h"

#define MUTANTS(X) X(ksync, -1) X(kasync, -1) X(kbatchasync, 1)

#define X(name, more)                                                                              \
    extern const struct pl_policy __real_pl_policy_##name;                                         \
    extern struct pl_policy __wrap_pl_policy_##name;                                               \
    struct pl_policy __wrap_pl_policy_##name;                                                      \
    static struct pl_knobs name##_knobs(const void *conf) {                                        \
        struct pl_knobs knobs = __real_pl_policy_##name.knobs(conf);                               \
        if (knobs.k + (more) > 0) knobs.k += (more);                                               \
        return knobs;                                                                              \
    }
MUTANTS(X)
#undef X

__attribute__((constructor)) static void mutants_begin(void) {
    const char *mutant = getenv("MUTANT");
#define X(name, more)                                                                              \
    __wrap_pl_policy_##name = __real_pl_policy_##name;                                             \
    if (mutant && strcmp(mutant, #name) == 0) __wrap_pl_policy_##name.knobs = name##_knobs;
    MUTANTS(X)
#undef X
}
