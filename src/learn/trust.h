/* Samples that the server itself holds, and their gradient: what filters compare with that know
 * nothing of the workers. They are the first n of one shuffle of the training set, the same
 * whatever the seed of the run; workers draw from them as from all others. */
#ifndef PL_LEARN_TRUST_H
#define PL_LEARN_TRUST_H

#include "learn/task.h"

struct pl_trust;

/* As many as the job's filter wants; *out is NULL where it wants none. 0 or PL_ENOMEM. */
int pl_trust_new(const struct pl_job *job, struct pl_trust **out);
void pl_trust_free(struct pl_trust *t);

/* Their gradient at w [dim] into out; `trust` is a pl_trust. 0, or what the model returned. */
int pl_trust_gradient(void *trust, const float *w, float *out);

#endif
