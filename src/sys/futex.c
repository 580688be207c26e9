#include "sys/futex.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(atomic_uint) == 4 && ATOMIC_INT_LOCK_FREE == 2, "futexes are 32-bit words");

bool pl_futex_wait(atomic_uint *word, unsigned seen, uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    if (ns == 0) return true;
    return syscall(SYS_futex, word, FUTEX_WAIT, seen, ns == PL_FOREVER ? NULL : &t, NULL, 0) == 0 ||
           errno != EINTR;
}

void pl_futex_ring(atomic_uint *word) {
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
