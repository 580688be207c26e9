#include "base/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define OUTPUT_TRIES 1000
#define OUTPUT_MORE 48 /* characters of a temporary name, at most, beyond the file's */

static const char *output_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int output_fail(struct pl_why *why) {
    return pl_fail(why, PL_EIO, "%s", strerror(errno));
}

/* --- what killed writers have left ------------------------------------------------------- */

/* "NAME.paceline-<process>-<number>.tmp" */
bool pl_output_is_temporary(const char *name, size_t *front) {
    static const char mark[] = ".paceline-", digits[] = "0123456789";
    const char *found = NULL;
    for (const char *at = name; (at = strstr(at, mark)); at++) found = at;
    if (!found || found == name) return false;
    const char *process = found + sizeof mark - 1;
    size_t n = strspn(process, digits);
    if (n == 0 || process[n] != '-') return false;
    const char *number = process + n + 1, *end = number + strspn(number, digits);
    if (end == number || strcmp(end, ".tmp") != 0) return false;
    *front = (size_t)(found - name);
    return true;
}

void pl_output_sweep(const char *temporary) {
    int fd = open(temporary, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlink(temporary);
    close(fd);
}

static void output_sweep_folder(const char *path) {
    char found[PL_OUTPUT_PATH];
    const char *name = output_name(path);
    size_t front, n = strlen(name), before = (size_t)(name - path);
    snprintf(found, sizeof found, "%.*s", (int)before, path);
    DIR *d = opendir(before ? found : ".");
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (!pl_output_is_temporary(e->d_name, &front) || front != n ||
            strncmp(e->d_name, name, n) != 0)
            continue;
        int used = snprintf(found, sizeof found, "%.*s%s", (int)before, path, e->d_name);
        if (used > 0 && (size_t)used < sizeof found) pl_output_sweep(found);
    }
    closedir(d);
}

/* A file that is replaced keeps its permissions, unless it is another user's. */
static void output_keep_mode(const struct pl_output *o) {
    struct stat old, new;
    if (lstat(o->path, &old) || !S_ISREG(old.st_mode) || fstat(o->fd, &new) ||
        old.st_uid != new.st_uid || (old.st_mode & 0777) == (new.st_mode & 0777))
        return;
    /* where that is not possible, the file system has no permissions of its own */
    (void)!fchmod(o->fd, old.st_mode & 0777);
}

/* --- writing ----------------------------------------------------------------------------- */

int pl_output_begin(struct pl_output *o, const char *path, struct pl_why *why) {
    o->fd = -1;
    if (strlen(path) + OUTPUT_MORE > sizeof o->path)
        return pl_fail(why, PL_EUSAGE, "its path is longer than %d bytes",
                       PL_OUTPUT_PATH - OUTPUT_MORE);
    snprintf(o->path, sizeof o->path, "%s", path);
    output_sweep_folder(path);
    for (int i = 0; i < OUTPUT_TRIES; i++) {
        snprintf(o->temporary, sizeof o->temporary, "%.*s.paceline-%ld-%d.tmp",
                 PL_OUTPUT_PATH - OUTPUT_MORE, path, (long)getpid(), i);
        int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno == EEXIST) continue;
        if (fd < 0) return output_fail(why);
        struct stat st;
        int locked = flock(fd, LOCK_EX | LOCK_NB);
        /* before it was locked, another process may have swept it away as a dead writer's: try
         * again */
        if ((locked == 0 || errno != EWOULDBLOCK) && fstat(fd, &st) == 0 && st.st_nlink > 0) {
            o->fd = fd;
            output_keep_mode(o);
            return PL_OK;
        }
        close(fd);
    }
    return pl_fail(why, PL_EIO, "its folder has too many temporary files");
}

int pl_output_put(struct pl_output *o, const void *from, size_t n, struct pl_why *why) {
    const char *at = from;
    while (n > 0) {
        ssize_t put = write(o->fd, at, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return output_fail(why);
        at += put;
        n -= (size_t)put;
    }
    return PL_OK;
}

int pl_output_sync(struct pl_output *o, struct pl_why *why) {
    while (fsync(o->fd))
        if (errno != EINTR) return output_fail(why);
    return PL_OK;
}

int pl_output_end(struct pl_output *o, int rc, struct pl_why *why) {
    if (o->fd < 0) return rc;
    /* closing the file releases the lock: rename first */
    if (!rc && rename(o->temporary, o->path)) rc = output_fail(why);
    if (rc) unlink(o->temporary);
    if (close(o->fd) && !rc) rc = output_fail(why);
    o->fd = -1;
    return rc;
}

int pl_output_write(const char *path, const void *from, size_t n, struct pl_why *why) {
    struct pl_output o;
    int rc = pl_output_begin(&o, path, why);
    if (!rc) rc = pl_output_put(&o, from, n, why);
    return pl_output_end(&o, rc, why);
}

/* --- folders ----------------------------------------------------------------------------- */

int pl_output_no_folder(const char *what, const char *path, struct pl_why *why) {
    char above[PL_OUTPUT_PATH];
    struct stat st;
    bool missing = errno == ENOENT;
    int rc = pl_fail(why, PL_EIO, "%s '%.200s' cannot be created: %s", what, path, strerror(errno));
    snprintf(above, sizeof above, "%s", path);
    for (char *at = strchr(above, '/'); missing && at; at = strchr(at + 1, '/')) {
        if (at == above || !at[1]) continue;
        *at = '\0';
        if (stat(above, &st) != 0)
            return pl_fail(why, PL_EIO,
                           "%s '%.200s' cannot be created: there is no folder '%.200s'; create it "
                           "first",
                           what, path, above);
        *at = '/';
    }
    return rc;
}
