#include "core/tuner.h"

/* X(tuner), in the order in which `paceline list` shows them */
#define TUNERS(X) X(fixed) X(adasync) X(abs) X(fastestk) X(growing_bound) X(auto)

#define X(name) extern const struct pl_tuner pl_tuner_##name;
TUNERS(X)
#undef X

static const struct pl_entry *const tuner_table[] = {
#define X(name) &pl_tuner_##name.id,
    TUNERS(X)
#undef X
        NULL};

const struct pl_family pl_tuner_family = {
    "tuner", "how do K and the staleness bound change during the run?", tuner_table};
