/* The gradient of samples that the server itself has, with which some filters compare results. The
 * samples are the first n of one shuffle of the training set, which does not depend on the seed of
 * the run; workers use them as well. */
#ifndef PL_LEARN_REFERENCE_GRADIENT_H
#define PL_LEARN_REFERENCE_GRADIENT_H

#include "learn/task.h"

struct pl_reference;

/* With as many samples as the job's filter needs; *out is NULL if it needs none. 0 or PL_ENOMEM. */
int pl_reference_new(const struct pl_job *job, struct pl_reference **out);
void pl_reference_free(struct pl_reference *t);

/* Their gradient at w [dim] into out; `reference` is a pl_reference. 0, or what the model returned.
 */
int pl_reference_gradient(void *reference, const float *w, float *out);

#endif
