/* The policies that a tuner may switch to, and what is expected of each.
 *
 * The last tasks of every worker are remembered: how long they took or, if they were cancelled, how
 * long they had taken by then. The twin (core/twin.h) runs every arm on such times, drawn again at
 * random per worker. A cancelled task is drawn as one of the same worker that took longer (Kaplan
 * and Meier's estimate) or, if there is none, with an exponential rest: its mean is the time of all
 * tasks over the number of those that were completed.
 *
 * Forecasts are made when every worker has been measured, when workers have come or gone, when 16
 * completed tasks of a worker took three times as long as those before or a third of that, and
 * otherwise less and less often. However often workers change, the results that all forecasts play
 * are bounded by the number of completed tasks. Forecasts depend on events alone, so a replay makes
 * the same. Functions accept NULL, and do nothing, where control calls them for every tuner.
 * Control, arms and the twin call each other in a circle: a forecast is a run of control itself. */
#ifndef PL_CORE_ARMS_H
#define PL_CORE_ARMS_H

#include "core/archive.h"
#include "core/tuner.h"

#define PL_ARMS_WORKERS 4096 /* forecasts for more would take too long */

struct pl_arms;

/* One arm per policy of `names` ("ksync+kasync") and K. PL_EUSAGE for a policy that cannot take
 * over between two events. */
int pl_arms_new(const char *names, int n_workers, uint64_t seed, struct pl_arms **out,
                struct pl_why *why);
void pl_arms_free(struct pl_arms *a);

const struct pl_arm *pl_arms_table(const struct pl_arms *a, int *n);
int pl_arms_find(const struct pl_arms *a, const struct pl_policy *policy, int k); /* -1: none */

/* A task of the worker was completed or, if not `done`, cancelled after `seconds`. */
void pl_arms_task(struct pl_arms *a, int worker, double seconds, bool done);
void pl_arms_moved(struct pl_arms *a); /* a worker has joined or left */

/* Makes forecasts for the workers that are present, if they are due. */
int pl_arms_forecast(struct pl_arms *a, const struct pl_view *v, struct pl_why *why);

void pl_arms_archive(struct pl_arms *a, const struct pl_archive *k);

#endif
