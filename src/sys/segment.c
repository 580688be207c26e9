#define _GNU_SOURCE
#include "sys/segment.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; unknown to older ones, which then do nothing */
#endif

#define SEGMENT_NAME "paceline"

/* Takes ownership of the descriptor, even on failure. */
static int segment_map(int fd, size_t size, int flags, struct pl_segment *out) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) {
        if (fd >= 0) close(fd);
        return PL_ENOMEM;
    }
    madvise(at, size, MADV_HUGEPAGE); /* vectors are read sequentially; failure is harmless */
    *out = (struct pl_segment){.at = at, .size = size, .fd = fd};
    return PL_OK;
}

/* sealed: a process that gets the descriptor cannot shrink it under the others */
int pl_segment_file(size_t size, bool final) {
    if (size == 0 || size > PTRDIFF_MAX) return -1;
    int fd = memfd_create(SEGMENT_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    if (!fchmod(fd, 0600) && !ftruncate(fd, (off_t)size) &&
        !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | (final ? F_SEAL_SEAL : 0)))
        return fd;
    close(fd);
    return -1;
}

int pl_segment_new(size_t size, bool shared, struct pl_segment *out) {
    if (size == 0 || size > PTRDIFF_MAX) return PL_ENOMEM;
    if (!shared) return segment_map(-1, size, MAP_PRIVATE | MAP_ANONYMOUS, out);
    int fd = pl_segment_file(size, true);
    if (fd < 0) return PL_ENOMEM;
    return segment_map(fd, size, MAP_SHARED, out);
}

/* The file has `size` bytes and will not be shorter. */
static bool segment_fits(int fd, size_t size) {
    struct stat s;
    int seals = fcntl(fd, F_GET_SEALS);
    return fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size >= 0 &&
           (uint64_t)s.st_size >= size && seals >= 0 && (seals & F_SEAL_SHRINK);
}

int pl_segment_map(int fd, size_t size, struct pl_segment *out) {
    if (!segment_fits(fd, size) || size == 0 || size > PTRDIFF_MAX) {
        close(fd);
        return PL_EDATA;
    }
    return segment_map(fd, size, MAP_SHARED, out);
}

/* Nothing else than a segment is opened: to open a device or a pipe may do something. */
int pl_segment_find(int pid, int fd, size_t size, struct pl_segment *out) {
    static const char name[] = "/memfd:" SEGMENT_NAME;
    char path[64], is[sizeof name];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    ssize_t n = readlink(path, is, sizeof is);
    if (n < (ssize_t)sizeof name || memcmp(is, name, sizeof name - 1) != 0) return PL_EDATA;
    int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    return opened < 0 ? PL_EDATA : pl_segment_map(opened, size, out);
}

void pl_segment_protect(const struct pl_segment *s, size_t from, size_t size) {
    if (size) mprotect((char *)s->at + from, size, PROT_READ);
}

int pl_segment_reserve(size_t size, struct pl_segment *out) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (size == 0 || size > PTRDIFF_MAX) return PL_ENOMEM;
    void *at = mmap(NULL, size, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED) return PL_ENOMEM;
    *out = (struct pl_segment){.at = at, .size = size, .fd = -1};
    return PL_OK;
}

int pl_segment_place(const struct pl_segment *s, size_t from, size_t size, int fd, bool writable) {
    int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
    if (from > s->size || size > s->size - from) return PL_EDATA;
    if (fd >= 0 && !segment_fits(fd, size)) return PL_EDATA;
    void *at =
        mmap((char *)s->at + from, size, PROT_READ | (writable ? PROT_WRITE : 0), flags, fd, 0);
    if (at == MAP_FAILED) return PL_ENOMEM;
    madvise(at, size, MADV_HUGEPAGE);
    return PL_OK;
}

void pl_segment_seal(int fd) {
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
}

int pl_segment_reader(int fd) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void pl_segment_populate(void *at, size_t size) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)at & ~(page - 1),
              to = ((uintptr_t)at + size + page - 1) & ~(page - 1);
    madvise((void *)from, to - from, MADV_POPULATE_WRITE);
}

void pl_segment_free(struct pl_segment *s) {
    if (s->at) munmap(s->at, s->size);
    if (s->at && s->fd >= 0) close(s->fd);
    *s = (struct pl_segment){.fd = -1};
}
