/* The learning rate: base rate, chain of schedules, and whether it grows with the group. */
#ifndef PL_CORE_RATE_H
#define PL_CORE_RATE_H

#include "core/aggregate.h"

struct pl_rate {
    double lr;
    struct pl_chain schedule;
    bool by_k;            /* multiplied by the number of members: "linear scaling" */
    double epoch_samples; /* samples in an epoch; 0: there is no data */
};

/* The rate after n_commits commits and that number of epochs. */
double pl_rate_now(const struct pl_rate *r, uint64_t n_commits, double epochs, int n_workers);

#endif
