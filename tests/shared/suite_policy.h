/* suite_policy: what every policy and tuner must keep, whatever happens.
 *
 * Control is driven by random events: workers join, answer, answer late, send results that are
 * rejected, leave. Beside it runs a book of its own (suite_book.h), which knows nothing but the
 * events and the plans: it says what the worker table, the fates, the staleness and the times must
 * be, and refuses a plan that cannot be carried out.
 *
 * Then the events become fair, and updates must be made. While somebody is there and tasks come
 * back, a policy that never commits is broken, whatever it takes or drops. Fair means: nobody comes
 * or goes, nothing is rejected, and in every turn each task that was running at its beginning comes
 * back, in random order; then time passes, longer after every turn, and a timer that is due rings.
 * So nobody can blame a silent worker or a timer that did not ring. This is asked of the workers
 * that the random events left over, of one alone, and of all after they came back.
 *
 * All of this holds for any struct pl_policy, one that a program registers included. The policies
 * and tuners of the library have promises of their own besides, one row each in the tables of
 * suite_promises.c; one without a row fails. */
#ifndef TESTS_SUITE_POLICY_H
#define TESTS_SUITE_POLICY_H

#include "core/tuner.h"

#define SUITE_WORKERS 20 /* at most */
#define SUITE_EVENTS 200 /* in a run */
#define SUITE_BROKEN 1   /* a promise was */

/* Results that may come back under a fair schedule before there is an update. Every task that is
 * running may turn out too stale, and then a group of the largest size that the policy declares is
 * made: n + most. The suite waits for several times as many, because a policy may decide at random.
 */
#define SUITE_PATIENCE(n, most) (100 + 9 * (n) + 8 * (most))

struct suite_setting {
    const struct pl_policy *policy;
    const struct pl_tuner *tuner;
    const void *policy_conf, *tuner_conf;
    int n_workers;
};

/* One run: PL_OK, SUITE_BROKEN with the promise in `why`, or what pl_control_new says. */
int suite_policy(const struct suite_setting *s, uint64_t seed, uint64_t run, struct pl_why *why);

/* PL_OK, or SUITE_BROKEN with a sentence about the first policy or tuner that has no row in the
 * tables of promises, or the first row that is about none of them. */
int suite_promises(const struct pl_family *policies, const struct pl_family *tuners,
                   struct pl_why *why);

#endif
