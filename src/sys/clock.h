/* The monotonic clock and the wall clock. */
#ifndef PL_SYS_CLOCK_H
#define PL_SYS_CLOCK_H

#include <stdint.h>

uint64_t pl_now_ns(void);     /* monotonic; common to all processes of a machine */
double pl_wall_seconds(void); /* since 1970 */
void pl_wall_text(double seconds, char out[static 24]); /* "2026-11-15T17:02:29Z" */
void pl_sleep_ns(uint64_t ns);

#endif
