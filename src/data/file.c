/* Files that may be gzipped.
 *
 * zlib's gzread passes plain files through, so one path serves both. What is read goes into a
 * buffer that grows with its contents up to the caller's limit. A header therefore never decides
 * how much memory is allocated, and a compressed bomb stops at the limit. */
#include "data/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input.h"

#define FILE_PIECE ((size_t)1 << 20) /* size of the largest read */
#define FILE_FIRST ((size_t)1 << 12) /* size of the first buffer, or that of the file: */
#define FILE_GZ_BUFFER (1u << 17)

/* Small files get small buffers. What is compressed needs more later. */
static size_t file_buffer(const struct pl_file *f, size_t most) {
    size_t size = f->size < most ? (size_t)f->size : most;
    return size > FILE_FIRST ? size : FILE_FIRST;
}

int pl_file_open(struct pl_file *f, const char *path, struct pl_why *why) {
    f->gz = NULL;
    f->path = path;
    const char *wrong;
    int fd = pl_input_open(path, &wrong);
    if (fd < 0) return pl_fail(why, PL_EIO, "%s cannot be opened: %s", path, wrong);
    struct stat st;
    f->size = fstat(fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
    f->gz = gzdopen(fd, "rb");
    if (!f->gz) {
        close(fd);
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    gzbuffer(f->gz, (unsigned)file_buffer(f, FILE_GZ_BUFFER));
    return PL_OK;
}

int pl_file_read(struct pl_file *f, void *to, size_t n, size_t *got, struct pl_why *why) {
    size_t done = 0;
    while (done < n) {
        size_t piece = n - done < FILE_PIECE ? n - done : FILE_PIECE;
        int r = gzread(f->gz, (char *)to + done, (unsigned)piece);
        if (r <= 0) {
            /* a truncated stream reads as an end with Z_BUF_ERROR set */
            int code;
            const char *text = gzerror(f->gz, &code);
            if (code == Z_ERRNO)
                return pl_fail(why, PL_EIO, "%s cannot be read: %s", f->path, strerror(errno));
            if (code == Z_BUF_ERROR)
                return pl_fail(why, PL_EDATA, "%s is truncated: its compressed stream has no end",
                               f->path);
            if (r < 0 || (code != Z_OK && code != Z_STREAM_END))
                return pl_fail(why, PL_EDATA, "%s is damaged: %s", f->path, text);
            break;
        }
        done += (size_t)r;
    }
    *got = done;
    return PL_OK;
}

void pl_file_close(struct pl_file *f) {
    /* every error of gzclose was already reported by a read */
    if (f->gz) (void)gzclose(f->gz);
    f->gz = NULL;
}

int pl_file_rest(struct pl_file *f, uint64_t max, uint8_t **out, size_t *n, struct pl_why *why) {
    uint8_t *buf = NULL;
    size_t have = 0, room = 0, got = 0;
    int rc = PL_OK;
    do {
        if (have == room) {
            size_t more = room ? room * 2 : file_buffer(f, FILE_PIECE) + 1;
            if (more > max) more = (size_t)max + (max == 0);
            uint8_t *grown = more > room ? realloc(buf, more) : NULL;
            if (!grown) {
                free(buf);
                return pl_fail(why, PL_ENOMEM, "out of memory while reading %s", f->path);
            }
            buf = grown;
            room = more;
        }
        size_t most = max < room ? (size_t)max : room;
        rc = pl_file_read(f, buf + have, most - have, &got, why);
        if (rc) {
            free(buf);
            return rc;
        }
        have += got;
    } while (got > 0 && have == room && have < max);
    *out = buf;
    *n = have;
    return PL_OK;
}

int pl_file_slurp(const char *path, uint64_t max, uint8_t **out, size_t *n, struct pl_why *why) {
    struct pl_file f;
    int rc = pl_file_open(&f, path, why);
    if (rc) return rc;
    rc = pl_file_rest(&f, max + 1, out, n, why);
    pl_file_close(&f);
    if (rc || *n <= max) return rc;
    free(*out);
    return pl_fail(why, PL_EDATA, "%s is larger than %llu bytes, the largest size accepted", path,
                   (unsigned long long)max);
}

int pl_file_find(const char *dir, const char *name, char *path, struct pl_why *why) {
    static const char *const ending[] = {"", ".gz"};
    for (size_t i = 0; i < 2; i++) {
        int n = snprintf(path, PL_PATH_MAX, "%s/%s%s", dir, name, ending[i]);
        if (n < 0 || n >= PL_PATH_MAX)
            return pl_fail(why, PL_EUSAGE, "the path %.60s/… is longer than %d characters", dir,
                           PL_PATH_MAX - 1);
        if (access(path, F_OK) == 0) return PL_OK;
    }
    return pl_fail(why, PL_EIO, "%s has no file %s or %s.gz", dir, name, name);
}
