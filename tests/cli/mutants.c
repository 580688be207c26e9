/* The program with policies and rules that are wrong, for reproduce.sh: the environment variable
 * MUTANT names the one that is. */
#include <stdlib.h>
#include <string.h>

#include "core/rule.h"
#include "paceline_policy.h"

/* A symbol of the library, and the one that the program has instead. */
#define WRAPPED(type, symbol)                                                                      \
    extern const struct type __real_##symbol;                                                      \
    extern struct type __wrap_##symbol;                                                            \
    struct type __wrap_##symbol;

/* Policies that wait for one result less than K. */
#define POLICIES(X) X(ksync) X(kasync) X(kbatchasync)

/* Rules without one of their functions: two corrections that do not damp, and elastic averaging
 * that does not pull the worker. */
#define RULES(X) X(correct, gap, apply) X(correct, distance, factor) X(local, elastic, pull)
#define FAMILIES(X) X(correct) X(local)

#define X(name)                                                                                    \
    WRAPPED(pl_policy, pl_policy_##name)                                                           \
    static struct pl_knobs name##_knobs(const void *conf) {                                        \
        struct pl_knobs knobs = __real_pl_policy_##name.knobs(conf);                               \
        if (knobs.k > 1) knobs.k--;                                                                \
        return knobs;                                                                              \
    }
POLICIES(X)
#undef X

#define X(family)                                                                                  \
    WRAPPED(pl_family, pl_##family##_family)                                                       \
    static const struct pl_entry *family##_table[64];
FAMILIES(X)
#undef X

#define X(family, rule, function)                                                                  \
    static void rule##_spoil(void) {                                                               \
        static struct pl_##family wrong;                                                           \
        const struct pl_entry **entry = family##_table;                                            \
        while (strcmp((*entry)->name, #rule) != 0) entry++;                                        \
        wrong = *(const struct pl_##family *)*entry;                                               \
        wrong.function = NULL;                                                                     \
        *entry = &wrong.id;                                                                        \
    }
RULES(X)
#undef X

__attribute__((constructor)) static void mutants_begin(void) {
    const char *given = getenv("MUTANT"), *mutant = given ? given : "none";
#define X(name)                                                                                    \
    __wrap_pl_policy_##name = __real_pl_policy_##name;                                             \
    if (strcmp(mutant, #name) == 0) __wrap_pl_policy_##name.knobs = name##_knobs;
    POLICIES(X)
#undef X
#define X(family)                                                                                  \
    __wrap_pl_##family##_family = __real_pl_##family##_family;                                     \
    for (int i = 0; __real_pl_##family##_family.table[i]; i++)                                     \
        family##_table[i] = __real_pl_##family##_family.table[i];                                  \
    __wrap_pl_##family##_family.table = family##_table;
    FAMILIES(X)
#undef X
#define X(family, rule, function)                                                                  \
    if (strcmp(mutant, #rule) == 0) rule##_spoil();
    RULES(X)
#undef X
}
