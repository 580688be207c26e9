/* The learning rate: base rate, chain of schedules, and whether it grows with the group. */
#ifndef PL_CORE_RATE_H
#define PL_CORE_RATE_H

#include "core/aggregate.h"
#include "core/archive.h"
#include "core/progress.h"

struct pl_rate {
    double lr;
    bool replaced; /* lr was set during the run */
    struct pl_chain schedule;
    bool by_k;            /* multiplied by the number of members: "linear scaling" */
    double epoch_samples; /* samples in an epoch; 0 if there is no data */
    double number[PL_LINKS][PL_RULE_NUMBERS]; /* what the schedules keep; zero at first */
};

/* Totals over the members of a group. */
struct pl_tally {
    double samples;
    double known, loss; /* samples whose loss is known, and the sum of those losses */
};
void pl_tally_add(struct pl_tally *t, double samples, double loss); /* loss NAN: unknown */

/* Counts the samples of a committed group, and tells the schedules about it. */
void pl_rate_commit(struct pl_rate *r, struct pl_progress *p, const struct pl_tally *t);

/* Replaces the base rate. */
void pl_rate_set(struct pl_rate *r, double lr);

/* The rate at this point of the run. */
double pl_rate_now(const struct pl_rate *r, const struct pl_progress *p, int n_workers);

/* Saves or restores what the schedules keep. */
void pl_rate_archive(struct pl_rate *r, const struct pl_archive *k);

#endif
