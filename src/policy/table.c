#include "core/policy.h"

/* X(policy), in the order in which `paceline list` shows them. */
#define POLICIES(X)                                                                                \
    X(ksync)                                                                                       \
    X(kbatchsync) X(kasync) X(kbatchasync) X(ssp) X(psp) X(buffers) X(rounds) X(blocks) X(strata)  \
        X(gossip) X(sgp)

#define X(name) extern const struct pl_policy pl_policy_##name;
POLICIES(X)
#undef X

static const struct pl_entry *const policy_table[] = {
#define X(name) &pl_policy_##name.id,
    POLICIES(X)
#undef X
        NULL};

const struct pl_family pl_policy_family = {
    "policy", "when is the model updated, and which workers compute next?", policy_table};
