/* Shared libraries that are loaded while the program runs. */
#ifndef PL_SYS_MODULE_H
#define PL_SYS_MODULE_H

#include <stddef.h>

/* Loads the shared library `file` for the rest of the process, and returns the address of its
 * `symbol`. If it is NULL, the system's reason is in error [max]. The dynamic linker looks in
 * LD_LIBRARY_PATH, in the run path of the library or program that this function is linked into, and
 * in the system's folders. */
const void *pl_module_load(const char *file, const char *symbol, char *error, size_t max);

#endif
