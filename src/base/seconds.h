/* Times: nanoseconds inside, seconds for people. */
#ifndef PL_BASE_SECONDS_H
#define PL_BASE_SECONDS_H

#include <math.h>
#include <stdint.h>

static inline double pl_seconds(uint64_t ns) {
    return (double)ns / 1e9; /* the nearest to what it was made of: 1.2 for 1.2 s */
}

static inline uint64_t pl_ns(double seconds) {
    return (uint64_t)llround(seconds * 1e9);
}

#endif
