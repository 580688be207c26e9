#define _GNU_SOURCE
#include "sys/core_wait.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys/clock.h"

void pl_core_wait_open(struct pl_core_wait *c) {
    *c = (struct pl_core_wait){.fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)};
    pl_core_wait_ns(c);
}

void pl_core_wait_close(struct pl_core_wait *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

/* "RUNNING_NS WAITING_NS SLICES" */
static uint64_t core_wait_count(const struct pl_core_wait *c) {
    char text[96];
    ssize_t n = c->fd >= 0 ? pread(c->fd, text, sizeof text - 1, 0) : 0;
    if (n <= 0) return 0;
    text[n] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoull(second + 1, NULL, 10) : 0;
}

uint64_t pl_core_wait_ns(struct pl_core_wait *c) {
    uint64_t now = c->fd >= 0 ? pl_now_ns() : 0, before = c->count_ns;
    if (now < c->read_ns + PL_CORE_WAIT_PAUSE) return 0;
    c->read_ns = now;
    c->count_ns = core_wait_count(c);
    return c->count_ns > before ? c->count_ns - before : 0;
}

static size_t core_wait_bytes(int n) {
    return (size_t)(n > 0 ? n : 1) * sizeof(struct pl_core_waited);
}

struct pl_core_waited *pl_core_waited_new(int n) {
    void *p =
        mmap(NULL, core_wait_bytes(n), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void pl_core_waited_begin(struct pl_core_waited *w, const struct pl_core_wait *c) {
    atomic_store(&w->count_ns, c->count_ns);
    atomic_store(&w->thread, (int)gettid());
}

uint64_t pl_core_waited_report(struct pl_core_waited *w, struct pl_core_wait *c) {
    uint64_t waited = pl_core_wait_ns(c);
    atomic_fetch_add_explicit(&w->total_ns, waited, memory_order_relaxed);
    atomic_store_explicit(&w->count_ns, c->count_ns, memory_order_relaxed);
    return waited;
}

uint64_t pl_core_waited_now(struct pl_core_waited *w) {
    char path[64];
    uint64_t total = atomic_load(&w->total_ns), counted = atomic_load(&w->count_ns);
    snprintf(path, sizeof path, "/proc/%d/schedstat", atomic_load(&w->thread));
    struct pl_core_wait c = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    uint64_t now = core_wait_count(&c);
    pl_core_wait_close(&c);
    return now > counted ? total + (now - counted) : total;
}

void pl_core_waited_free(struct pl_core_waited *w, int n) {
    if (w) munmap(w, core_wait_bytes(n));
}
