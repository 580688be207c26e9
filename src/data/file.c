/* Files that may be gzipped.
 *
 * zlib's gzread passes plain files through, so one path serves both. A whole file is read into a
 * buffer that grows with its contents, and the sizes in the header are checked afterwards. A header
 * therefore never decides how much memory is allocated, and a compressed bomb stops at the caller's
 * limit. */
#include "data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_PIECE ((size_t)1 << 20) /* size of the first buffer and of the largest read */
#define FILE_GZ_BUFFER (1u << 17)

int pl_file_open(struct pl_file *f, const char *path, struct pl_why *why) {
    f->gz = NULL;
    f->path = path;
    /* O_NONBLOCK: a pipe is rejected below and must not block here */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return pl_fail(why, PL_EIO, "%s cannot be opened: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return pl_fail(why, PL_EIO, "%s is not a plain file", path);
    }
    f->gz = gzdopen(fd, "rb");
    if (!f->gz) {
        close(fd);
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    gzbuffer(f->gz, FILE_GZ_BUFFER);
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

int pl_file_slurp(const char *path, uint64_t max, uint8_t **out, size_t *n, struct pl_why *why) {
    struct pl_file f;
    int rc = pl_file_open(&f, path, why);
    if (rc) return rc;
    uint8_t *buf = NULL;
    size_t have = 0, room = 0, got = 0;
    do {
        if (have == room) {
            size_t more = room ? room * 2 : FILE_PIECE;
            uint8_t *grown = more > room ? realloc(buf, more) : NULL;
            if (!grown) {
                rc = pl_fail(why, PL_ENOMEM, "out of memory while reading %s", path);
                goto out;
            }
            buf = grown;
            room = more;
        }
        rc = pl_file_read(&f, buf + have, room - have, &got, why);
        if (rc) goto out;
        have += got;
        if (have > max) {
            rc = pl_fail(why, PL_EDATA, "%s is larger than %llu bytes, the largest size accepted",
                         path, (unsigned long long)max);
            goto out;
        }
    } while (got > 0 && have == room);
    *out = buf;
    *n = have;
    buf = NULL;
out:
    free(buf);
    pl_file_close(&f);
    return rc;
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
