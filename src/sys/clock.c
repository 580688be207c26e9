#include "sys/clock.h"

#include <time.h>

uint64_t pl_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double pl_wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void pl_wall_text(double seconds, char out[static 24]) {
    time_t t = (time_t)seconds;
    struct tm utc;
    if (!gmtime_r(&t, &utc) || strftime(out, 24, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) out[0] = '\0';
}

void pl_sleep_ns(uint64_t ns) {
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&left, NULL);
}
