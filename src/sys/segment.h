/* Zero-filled memory that costs nothing until it is touched.
 *
 * A shared segment has no name, and the kernel frees it when the last process that maps it ends. It
 * is passed on by fork, as a descriptor over a socket, or to a process of the same user that is
 * told where to find it. */
#ifndef PL_SYS_SEGMENT_H
#define PL_SYS_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>

struct pl_segment {
    void *at;
    size_t size;
    int fd; /* -1 if not shared */
};

int pl_segment_new(size_t size, bool shared, struct pl_segment *out); /* 0 or PL_ENOMEM */

/* Maps another process's segment and takes ownership of the descriptor. Returns 0, PL_ENOMEM, or
 * PL_EDATA if the segment is shorter than `size`. */
int pl_segment_map(int fd, size_t size, struct pl_segment *out);

/* Maps the segment that process `pid`, of the same user, has as descriptor `fd`. Returns 0,
 * PL_ENOMEM, or PL_EDATA if there is no segment of this size. */
int pl_segment_find(int pid, int fd, size_t size, struct pl_segment *out);

/* Makes [from, from + size) read-only for this process; both are multiples of PL_PAGE. */
void pl_segment_protect(const struct pl_segment *s, size_t from, size_t size);

/* Memory that is about to be written as a whole is obtained at once: page by page, as it is
 * touched, takes about twice as long. It is best effort. */
void pl_segment_populate(void *at, size_t size);

void pl_segment_free(struct pl_segment *s);

/* A segment of several files, so that other processes can be given some of them. */

/* Addresses without memory; the processes see the files at the same offsets. 0 or PL_ENOMEM. */
int pl_segment_reserve(size_t size, struct pl_segment *out);

/* Creates an anonymous file of `size` bytes that cannot grow or shrink. If `final`, no further
 * seals can be added. Returns a descriptor, or -1. */
int pl_segment_file(size_t size, bool final);

/* Maps a file at an offset of a segment, in place of what was there. The caller keeps the
 * descriptor, -1 for memory that only forked processes share. 0, PL_ENOMEM, or PL_EDATA if the file
 * is shorter or can be made shorter. */
int pl_segment_place(const struct pl_segment *s, size_t from, size_t size, int fd, bool writable);

/* From now on no process can map the file for writing; existing mappings remain. It is best effort:
 * before Linux 5.1 a process of the same user can find a way around pl_segment_reader alone. */
void pl_segment_seal(int fd);

/* A descriptor for reading only, to be given away, or -1 if it failed. */
int pl_segment_reader(int fd);

#define PL_PAGE 65536 /* at least the page size of every supported machine */

#endif
