/* Methods that hand out blocks of a matrix: tests that go through all methods give them one. */
#ifndef PL_TESTS_BLOCKS_H
#define PL_TESTS_BLOCKS_H

#include <stdbool.h>
#include <string.h>

#define BLOCKS_MODEL "mf:k=6"
#define BLOCKS_DATA "lowrank:users=90,items=70,ratings=4000"

static inline bool needs_blocks(const char *method) {
    return strcmp(method, "fdsgd") == 0 || strcmp(method, "dsgd") == 0 ||
           strcmp(method, "fpsgd") == 0;
}

#endif
