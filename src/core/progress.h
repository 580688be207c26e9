/* How far a run has come: what schedules and reports count by. */
#ifndef PL_CORE_PROGRESS_H
#define PL_CORE_PROGRESS_H

#include <stdint.h>

struct pl_progress {
    uint64_t n_commits;
    double samples; /* in committed contributions */
    double epoch;   /* samples in one epoch; 0: there is no data */
};

static inline double pl_progress_epochs(const struct pl_progress *p) {
    return p->epoch > 0 ? p->samples / p->epoch : 0;
}

#endif
