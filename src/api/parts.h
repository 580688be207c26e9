/* Whether a job can be worked on in parts, where its policy hands out nothing else. */
#ifndef PL_API_PARTS_H
#define PL_API_PARTS_H

#include "api/setup.h"

/* Before data and model are opened: policy and model. */
int pl_parts_suit(const struct pl_setup *s, const struct pl_job *job, struct pl_why *why);

/* When they are: all other choices; and the data is cut into job->grid. */
int pl_parts_open(const struct pl_setup *s, struct pl_job *job, struct pl_why *why);

#endif
