/* The policies of the library. The contract is public: include/paceline_policy.h. */
#ifndef PL_CORE_POLICY_H
#define PL_CORE_POLICY_H

#include "base/opt.h"
#include "base/rng.h"
#include "paceline_policy.h"

extern const struct pl_family pl_policy_family;

#endif
