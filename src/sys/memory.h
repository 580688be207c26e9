/* How much more memory this process may map, and files that are in memory. */
#ifndef PL_SYS_MEMORY_H
#define PL_SYS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Tells whether n blocks of `bytes` each can be mapped now, by trying: limits of the process
 * (ulimit -v) and of the machine count. The memory is not touched. */
bool pl_memory_fits(int n, size_t bytes);

/* To write and read, or NULL. It goes when it is closed. */
FILE *pl_memory_file(void);

#endif
