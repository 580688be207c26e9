/* Delays that must open, and numbers that must be near others. */
#ifndef PL_TESTS_DELAYS_H
#define PL_TESTS_DELAYS_H

#include "opened.h"

#define near(got, want, limit) near_at(got, want, limit, #got, __LINE__)
static inline void near_at(double got, double want, double limit, const char *what, int line) {
    if (!(fabs(got - want) <= limit))
        fail_msg("line %d: %s is %.10g, not %.10g +- %g", line, what, got, want, limit);
}

#endif
