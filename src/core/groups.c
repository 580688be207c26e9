#include "core/groups.h"

#include <stdlib.h>
#include <string.h>

/* The K that the tuner begins with. */
static int groups_first_k(const struct pl_policy *policy, const struct pl_choice *tuner,
                          int n_workers, struct pl_knobs *knobs) {
    const struct pl_tuner *t = (const struct pl_tuner *)tuner->entry;
    struct pl_run_info info = {
        .n_workers = n_workers, .by_batch = policy->by_batch, .k = knobs->k, .current = -1};
    if (!t->init) return PL_OK;
    char *state = calloc(1, t->state_size + 1);
    if (!state) return PL_ENOMEM;
    if (t->id.conf_size) memcpy(state, tuner->conf, t->id.conf_size);
    t->init(state, &info, knobs);
    free(state);
    return PL_OK;
}

int pl_groups(const struct pl_choice *policy, const struct pl_choice *tuner, int n_workers,
              struct pl_sizes *out) {
    const struct pl_policy *p = (const struct pl_policy *)policy->entry;
    bool moves = ((const struct pl_tuner *)tuner->entry)->moves & PL_USES_K;
    struct pl_knobs knobs = p->knobs(policy->conf);
    int rc = groups_first_k(p, tuner, n_workers, &knobs);
    if (rc) return rc;
    int k_most = moves && knobs.k < n_workers ? n_workers : knobs.k;
    *out = (struct pl_sizes){knobs.k, k_most};
    if (p->groups)
        *out = (struct pl_sizes){p->groups(policy->conf, n_workers, knobs.k).least,
                                 p->groups(policy->conf, n_workers, k_most).most};
    return PL_OK;
}
