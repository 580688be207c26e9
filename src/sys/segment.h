/* A stretch of memory, zero at first, that costs nothing until it is touched.
 *
 * A shared one has no name, so nobody else can open it and nothing is left of it when the last
 * process that has it is gone, however it went. It is handed on by fork, or as a descriptor over a
 * socket. */
#ifndef PL_SYS_SEGMENT_H
#define PL_SYS_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>

struct pl_segment {
    void *at;
    size_t size;
    int fd; /* -1 where it is not shared */
};

int pl_segment_new(size_t size, bool shared, struct pl_segment *out); /* 0 or PL_ENOMEM */

/* Another process's segment, by its descriptor, which is owned from then on. 0,
 * PL_ENOMEM, or PL_EDATA where it is shorter than `size`. */
int pl_segment_map(int fd, size_t size, struct pl_segment *out);

/* From now on this process cannot write [from, from + size); both are multiples of PL_PAGE. */
void pl_segment_protect(const struct pl_segment *s, size_t from, size_t size);

void pl_segment_free(struct pl_segment *s);

#define PL_PAGE 65536 /* no page of any machine we run on is larger */

#endif
