/* The two clocks: one that only goes forward, and the one on the wall. */
#ifndef PL_SYS_CLOCK_H
#define PL_SYS_CLOCK_H

#include <stdint.h>

uint64_t pl_now_ns(void);     /* monotonic; the same for all processes of the machine */
double pl_wall_seconds(void); /* since 1970 */
void pl_sleep_ns(uint64_t ns);

#endif
