/* Threads: any one at a time. */
#include "run/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run/checkpoint_state.h"
#include "sys/clock.h"

/* The workers of a server that was killed hold its lock for the moment that they take to end. */
#define CLAIM_WAIT_NS 3000000000u
#define CLAIM_NAP_NS 20000000u

/* The process that has the lock, or had it, as it wrote there; 0 if the file is empty, -1 if it is
 * not one of ours. */
static long claim_holder(int fd) {
    char text[32] = "", *end = text;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    long holder = n > 0 ? strtol(text, &end, 10) : 0;
    return n == 0 || (n > 0 && strcmp(end, "\n") == 0) ? holder : -1;
}

static int claim_lock(const char *dir, int *lock, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX], text[32];
    int used = snprintf(path, sizeof path, "%s/.lock", dir);
    if (used < 0 || (size_t)used >= sizeof path)
        return pl_fail(why, PL_EUSAGE, "the path %.60s… is too long", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return pl_fail(why, PL_EIO, "'%.200s' cannot be created: %s", path, strerror(errno));
    uint64_t until = pl_now_ns() + CLAIM_WAIT_NS;
    int rc;
    while ((rc = flock(fd, LOCK_EX | LOCK_NB)) && (errno == EWOULDBLOCK || errno == EINTR) &&
           pl_now_ns() < until)
        pl_sleep_ns(CLAIM_NAP_NS);
    if (rc && errno == EWOULDBLOCK) {
        long holder = claim_holder(fd);
        close(fd);
        return pl_fail(why, PL_EIO,
                       "another run is writing checkpoints to '%.200s' (process %ld); wait until "
                       "it has ended, or give another folder with --checkpoint",
                       dir, holder);
    }
    if (rc) { /* the file system has no locks */
        close(fd);
        return PL_OK;
    }
    if (claim_holder(fd) < 0) {
        close(fd);
        return pl_fail(why, PL_EUSAGE,
                       "'%.200s' is in the way: it is not the lock of a run; give another folder "
                       "with --checkpoint",
                       path);
    }
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)n, 0) != n)
        (void)0; /* it is only for people */
    *lock = fd;
    return PL_OK;
}

/* Whether the file lies in the folder. */
static bool claim_inside(const char *dir, const char *file) {
    char folder[PL_CHECKPOINT_PATH_MAX];
    const char *slash = strrchr(file, '/');
    struct stat a, b;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file) + 1 : 1,
             slash ? file : ".");
    return stat(dir, &a) == 0 && stat(folder, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Refuses a folder that has checkpoints. */
static int claim_check_empty(const char *dir, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX];
    struct pl_tensors *t = NULL;
    int rc = pl_checkpoint_find(dir, path, sizeof path, NULL);
    if (rc == PL_EMISSING) {
        struct stat st;
        int used = snprintf(path, sizeof path, "%s/" PL_BEST_FILE, dir);
        if (used > 0 && (size_t)used < sizeof path && stat(path, &st) == 0) rc = PL_OK;
    }
    if (rc) return rc == PL_EMISSING ? PL_OK : pl_checkpoint_find(dir, path, sizeof path, why);
    if (pl_tensors_head(path, &t, NULL)) t = NULL;
    const char *id = t ? pl_tensors_meta(t, "run_id") : NULL;
    const char *updates = t ? pl_tensors_meta(t, "updates") : NULL;
    pl_fail(why, PL_EUSAGE,
            "folder '%.150s' holds the checkpoints of another run (%.40s%s%.20s); continue that "
            "run with --resume %.150s, or give another folder with --checkpoint",
            dir, id ? id : "without an id", updates ? ", updates " : "", updates ? updates : "",
            dir);
    pl_tensors_free(t);
    return PL_EUSAGE;
}

int pl_claim_take(const char *dir, const char *from, int *lock, struct pl_why *why) {
    *lock = -1;
    int rc = pl_checkpoint_folder(dir, why);
    if (!rc) rc = claim_lock(dir, lock, why);
    if (!rc && !(from && claim_inside(dir, from))) rc = claim_check_empty(dir, why);
    if (rc) {
        pl_claim_release(*lock);
        *lock = -1;
    }
    return rc;
}

void pl_claim_release(int lock) {
    if (lock >= 0) close(lock);
}
