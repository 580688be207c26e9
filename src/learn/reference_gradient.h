/* Samples that the server itself holds, and their gradient: what filters compare with that know
 * nothing of the workers. They are the first n of one shuffle of the training set, the same
 * whatever the seed of the run; workers draw from them as from all others. */
#ifndef PL_LEARN_REFERENCE_GRADIENT_H
#define PL_LEARN_REFERENCE_GRADIENT_H

#include "learn/task.h"

struct pl_reference;

/* As many as the job's filter wants; *out is NULL where it wants none. 0 or PL_ENOMEM. */
int pl_reference_new(const struct pl_job *job, struct pl_reference **out);
void pl_reference_free(struct pl_reference *t);

/* Their gradient at w [dim] into out; `trust` is a pl_reference. 0, or what the model returned. */
int pl_reference_gradient(void *reference, const float *w, float *out);

#endif
