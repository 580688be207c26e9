/* Whether the choices of a run go together: its parties, for base/needs.h. */
#ifndef PL_API_FIT_H
#define PL_API_FIT_H

#include "api/setup.h"

/* What a run under this policy does not offer to its other members. */
unsigned pl_policy_lacks(const struct pl_policy *policy);

/* Checks every choice and option against every other, as far as they are known: before the data and
 * the model are opened, and once more with the data. n_servers divide the model. */
int pl_fit(struct pl_setup *s, const struct pl_built *b, enum pl_host host, int n_servers);

#endif
