#include "sys/fpu.h"

#if defined(__x86_64__)

#include <xmmintrin.h>

#define FPU_FLUSH 0x8040u /* flush to zero, denormals are zero */

uint64_t pl_fpu_flush(void) {
    uint32_t before = _mm_getcsr();
    _mm_setcsr(before | FPU_FLUSH);
    return before;
}

void pl_fpu_restore(uint64_t before) {
    _mm_setcsr((uint32_t)before);
}

#elif defined(__aarch64__)

#define FPU_FLUSH (UINT64_C(1) << 24) /* FPCR.FZ */

uint64_t pl_fpu_flush(void) {
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | FPU_FLUSH));
    return before;
}

void pl_fpu_restore(uint64_t before) {
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}

#else

uint64_t pl_fpu_flush(void) {
    return 0;
}

void pl_fpu_restore(uint64_t before) {
    (void)before;
}

#endif
