/* The weights that a run begins with, and the layout of its vector. */
#ifndef PL_API_WEIGHTS_H
#define PL_API_WEIGHTS_H

#include "api/setup.h"

/* For a job that has its model: reads init and layout, checks them against the model, and completes
 * a model that clients compute. */
int pl_weights_build(struct pl_setup *s, struct pl_built *b);

#endif
