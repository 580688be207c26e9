/* A chain of reductions, applied to one group.
 *
 * Links that mix return weights only, so the cost of running a chain does not grow with the model:
 * the weights of all links are multiplied into one matrix, vectors by members, and the
 * inner products of mixed vectors follow from those of the members. The store then computes each
 * block of the result directly from the members. */
#ifndef PL_CORE_AGGREGATE_H
#define PL_CORE_AGGREGATE_H

#include "base/chain.h"
#include "core/policy.h"
#include "core/rule.h"

#define PL_GRAM_MAX 1024 /* members whose inner products are computed */

/* Checks that the links fit together, that the condition of each on f holds for the smallest group
 * and that the largest is not too large to be compared in pairs. A link without an f takes the
 * largest that another link was given. */
int pl_reduce_check(struct pl_chain *c, struct pl_sizes group, struct pl_why *why);

bool pl_reduce_geometry(const struct pl_chain *c);
bool pl_reduce_remembers(const struct pl_chain *c);

/* The outcome of a chain for one group: at.n vectors, each a weighted sum of the members. */
struct pl_mixed {
    const struct pl_reduce *rule; /* its apply() reduces them; NULL: there is only one */
    const void *conf;
    struct pl_reduce_at at;
    const double *row; /* [at.n][width] the weights; NULL: the members times their factors */
    int width;         /* members, and one more for the previous result */
    const double *factor;
};

struct pl_mixer; /* the memory for it */

struct pl_mixer *pl_mixer_new(void);
void pl_mixer_free(struct pl_mixer *m);
/* How often a rule's condition did not hold for its group, and the coordinate-wise median was used
 * instead. */
uint64_t pl_mixer_n_medians(const struct pl_mixer *m);

/* at: the group, with the inner products of its members, which are multiplied by factor [n]
 * afterwards. *out is valid until the next call. 0 or PL_ENOMEM. */
int pl_mix(struct pl_mixer *m, const struct pl_chain *c, const struct pl_reduce_at *at,
           const double *factor, struct pl_mixed *out);

#endif
