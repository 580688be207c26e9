/* Checks that the choices of a run go together, with base/needs.h. */
#ifndef PL_API_FIT_H
#define PL_API_FIT_H

#include "api/setup.h"

/* What a run under this policy does not offer to its other choices. */
unsigned pl_policy_lacks(const struct pl_policy *policy);

/* What the seven columns of a job need. */
void pl_fit_needs(const struct pl_job *job, unsigned needs[PL_N_COLUMNS]);

/* Checks all choices and options that are known against each other: before the data and the model
 * are opened, and again with the data. n_servers divide the model. */
int pl_fit(struct pl_setup *s, const struct pl_built *b, enum pl_host host, int n_servers);

#endif
