/* How much more memory this process may map. */
#ifndef PL_SYS_MEMORY_H
#define PL_SYS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Tells whether n blocks of `bytes` each can be mapped now, by trying: limits of the process
 * (ulimit -v) and of the machine count. The memory is not touched. */
bool pl_memory_fits(int n, size_t bytes);

#endif
