#include "sys/module.h"

#include <dlfcn.h>
#include <stdio.h>

const void *pl_module_load(const char *file, const char *symbol, char *error, size_t max) {
    /* global: an MPI library loads plug-ins, which look for its symbols */
    void *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    void *at = library ? dlsym(library, symbol) : NULL;
    const char *why = at ? NULL : dlerror();
    snprintf(error, max, "%s", why ? why : "");
    if (library && !at) dlclose(library);
    return at;
}
