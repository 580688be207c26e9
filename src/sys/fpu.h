/* Numbers too small to be normal count as zero. A momentum that decays for long, or a network that
 * has died, is full of them, and on some processors each costs a hundred cycles. */
#ifndef PL_SYS_FPU_H
#define PL_SYS_FPU_H

#include <stdint.h>

/* For the calling thread; returns what was before, for pl_fpu_restore. */
uint64_t pl_fpu_flush(void);
void pl_fpu_restore(uint64_t before);

#endif
