/* Flushes denormal numbers to zero. A decaying momentum or a dead network is full of them, and on
 * some processors each costs a hundred cycles. */
#ifndef PL_SYS_FPU_H
#define PL_SYS_FPU_H

#include <stdint.h>

/* Applies to the calling thread. Returns the previous mode for pl_fpu_restore. */
uint64_t pl_fpu_flush(void);
void pl_fpu_restore(uint64_t before);

#endif
