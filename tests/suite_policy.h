/* suite_policy: what every policy and tuner must keep, whatever happens.
 *
 * Control is driven by random events: workers join, answer, answer late, bring what will not do,
 * leave. Beside it runs a book of its own, which knows nothing but the events and the plans: it
 * says what the worker table, the fates, the staleness and the times must be, and refuses a plan
 * that cannot be carried out. On top come the promises of each policy and tuner, known by name; a
 * new one is covered by the general part without a line here. */
#ifndef TESTS_SUITE_POLICY_H
#define TESTS_SUITE_POLICY_H

#include "core/tuner.h"

#define SUITE_WORKERS 20 /* at most */
#define SUITE_EVENTS 200 /* in a run */
#define SUITE_BROKEN 1   /* a promise was */

struct suite_setting {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    const void *policy_conf, *tuner_conf;
    int n_workers;
};

/* One run: PL_OK, SUITE_BROKEN with the promise in `why`, or what pl_control_new says. */
int suite_policy(const struct suite_setting *s, uint64_t seed, uint64_t run, struct pl_why *why);

#endif
