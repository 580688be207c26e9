#define _GNU_SOURCE
#include "sys/memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

bool pl_memory_fits(int n, size_t bytes) {
    void **block = malloc((size_t)n * sizeof *block);
    int mapped = 0;
    if (!block) return false;
    for (; mapped < n; mapped++) {
        block[mapped] =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block[mapped] == MAP_FAILED) break;
    }
    for (int i = 0; i < mapped; i++) munmap(block[i], bytes);
    free(block);
    return mapped == n;
}

FILE *pl_memory_file(void) {
    int fd = memfd_create("paceline", MFD_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (fd >= 0 && !file) close(fd);
    return file;
}
