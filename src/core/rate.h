/* The learning rate: base rate, chain of schedules, and whether it grows with the group. */
#ifndef PL_CORE_RATE_H
#define PL_CORE_RATE_H

#include "core/aggregate.h"

struct pl_rate {
    double lr;
    struct pl_chain schedule;
    bool by_k;                                /* times the number of members: "linear scaling" */
    double epoch_samples;                     /* samples in an epoch; 0 if there is no data */
    double number[PL_LINKS][PL_RULE_NUMBERS]; /* what the schedules keep; zero at first */
};

/* Tells the schedules about a commit: its samples whose loss is known, and their mean loss. */
void pl_rate_commit(struct pl_rate *r, double samples, double loss);

/* The rate after n_commits and `epochs`. */
double pl_rate_now(const struct pl_rate *r, uint64_t n_commits, double epochs, int n_workers);

#endif
