/* Threads: any one at a time. */
#include "run/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
#define CLAIM_LINE 256
#define CLAIM_NAME "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"

/* What the file has: the process that has the lock, or had it, and what was noted. The numbers that
 * grow have a fixed length, so that a line is written over the one before. */
static int claim_print(char out[CLAIM_LINE], long holder, const struct pl_claim *c) {
    if (!c->run[0] || !c->boot[0]) return snprintf(out, CLAIM_LINE, "%ld\n", holder);
    return snprintf(out, CLAIM_LINE, "%ld %s %s %" PRIu64 " %020" PRIu64 "\n", holder, c->boot,
                    c->run, c->epoch, c->version);
}

static void claim_word(char **at, char out[PL_CLAIM_TEXT]) {
    if (**at == ' ') ++*at;
    size_t n = strspn(*at, CLAIM_NAME), fits = n < PL_CLAIM_TEXT ? n : 0;
    memcpy(out, *at, fits);
    out[fits] = '\0';
    *at += n;
}

/* Reads that. Returns the process; 0 if the file is empty, -1 if it is not one of ours: printed
 * again, it is not the same. */
static long claim_read(int fd, struct pl_claim *c) {
    char text[CLAIM_LINE] = "", again[CLAIM_LINE];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    *c = (struct pl_claim){.lock = fd};
    if (n == 0) return 0;
    char *at = text;
    long holder = strtol(at, &at, 10);
    claim_word(&at, c->boot);
    claim_word(&at, c->run);
    c->epoch = strtoull(at, &at, 10);
    c->version = strtoull(at, &at, 10);
    c->length = claim_print(again, holder, c);
    return n == c->length && memcmp(text, again, (size_t)n) == 0 ? holder : -1;
}

/* Writes it again. A line of another length replaces the one before; if one cannot be written,
 * nothing is left of it that could be wrong. */
static void claim_write(struct pl_claim *c) {
    char text[CLAIM_LINE];
    int n = claim_print(text, (long)getpid(), c);
    bool ok = n == c->length || ftruncate(c->lock, 0) == 0;
    if (ok && pwrite(c->lock, text, (size_t)n, 0) != n) ok = ftruncate(c->lock, 0) && false;
    c->length = n;
    if (!ok) c->boot[0] = '\0';
}

/* What the machine is called since it was started; "" if that is not known. */
static void claim_boot(char out[PL_CLAIM_TEXT]) {
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f || !fgets(out, PL_CLAIM_TEXT, f)) out[0] = '\0';
    out[strspn(out, "0123456789abcdef-")] = '\0';
    if (f) fclose(f);
}

/* Opens the lock, and locks it: PL_OK, or -1 and errno. A run that never began removes its lock, so
 * one that was waited for can be gone. */
static int claim_open(const char *path, struct pl_claim *c) {
    uint64_t until = pl_now_ns() + CLAIM_WAIT_NS;
    for (;;) {
        struct stat st;
        c->made_lock = true;
        c->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (c->lock < 0 && errno == EEXIST) {
            c->made_lock = false;
            c->lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
            if (c->lock < 0 && errno == ENOENT) continue;
        }
        if (c->lock < 0) return -1;
        int rc;
        while ((rc = flock(c->lock, LOCK_EX | LOCK_NB)) &&
               (errno == EWOULDBLOCK || errno == EINTR) && pl_now_ns() < until)
            pl_sleep_ns(CLAIM_NAP_NS);
        if (rc || fstat(c->lock, &st) || st.st_nlink > 0) return rc;
        close(c->lock);
    }
}

static int claim_lock(const char *dir, struct pl_claim *out, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX], boot[PL_CLAIM_TEXT];
    struct pl_claim found;
    int used = snprintf(path, sizeof path, "%s/.lock", dir);
    if (used < 0 || (size_t)used >= sizeof path)
        return pl_fail(why, PL_EUSAGE, "the path %.60s… is too long", dir);
    int rc = claim_open(path, out), fd = out->lock;
    if (fd < 0)
        return pl_fail(why, PL_EIO, "'%.200s' cannot be created: %s", path, strerror(errno));
    out->lock = -1;
    if (rc && errno == EWOULDBLOCK) {
        long holder = claim_read(fd, &found);
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
    if (claim_read(fd, &found) < 0) {
        close(fd);
        return pl_fail(why, PL_EUSAGE,
                       "'%.200s' is in the way: it is not the lock of a run; give another folder "
                       "with --checkpoint",
                       path);
    }
    claim_boot(boot);
    if (strcmp(found.boot, boot) != 0) found.run[0] = '\0';
    memcpy(found.boot, boot, sizeof boot);
    found.made_folder = out->made_folder;
    found.made_lock = out->made_lock;
    *out = found;
    return PL_OK;
}

/* Refuses a folder with a run.json that no run with checkpoints has written. An empty one can be
 * left by a machine that crashed. */
static int claim_check_description(const char *dir, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX], text[256] = "", version = '\0';
    struct stat st;
    int used = snprintf(path, sizeof path, "%s/run.json", dir);
    if (used < 0 || (size_t)used >= sizeof path || lstat(path, &st)) return PL_OK;
    int fd = S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n == 0) return PL_OK;
    int read = n < 0 ? 0
                     : sscanf(text,
                              " { \"id\": \"%*[0-9]-%*[0-9]-%*[0-9a-f]\", \"kind\": \"train\","
                              " \"version\": %c",
                              &version);
    if (read == 1) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "'%.200s' is in the way: it does not describe a run with checkpoints; move it, "
                   "or give another folder with --checkpoint",
                   path);
}

/* Whether both name the same folder. */
static bool claim_is(const char *one, const char *other) {
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Whether the file lies in the folder. */
static bool claim_inside(const char *dir, const char *file) {
    char folder[PL_CHECKPOINT_PATH_MAX];
    const char *slash = strrchr(file, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file) + 1 : 1,
             slash ? file : ".");
    return claim_is(dir, folder);
}

/* Refuses a folder that has checkpoints. */
static int claim_check_empty(const char *dir, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX];
    struct pl_tensors *t = NULL;
    int rc = pl_checkpoint_find(dir, path, sizeof path, NULL);
    if (rc == PL_EMISSING && pl_checkpoint_only_best(dir, why)) return PL_EUSAGE;
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

int pl_claim_take(const char *dir, const char *from, struct pl_claim *out, struct pl_why *why) {
    struct stat st;
    *out = (struct pl_claim){.lock = -1, .made_folder = lstat(dir, &st) != 0};
    int rc = pl_checkpoint_folder(dir, why);
    if (!rc) rc = claim_check_description(dir, why);
    if (!rc) rc = claim_lock(dir, out, why);
    bool own = from && claim_inside(dir, from);
    if (!rc && !own) {
        rc = claim_check_empty(dir, why);
        out->run[0] = '\0';
    }
    if (!rc && out->lock >= 0) claim_write(out);
    if (rc) pl_claim_discard(out, dir);
    return rc;
}

int pl_claim_check_output(const char *dir, const char *option, const char *path,
                          struct pl_why *why) {
    char file[PL_CHECKPOINT_PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    snprintf(file, sizeof file, "%.*s", (int)n, path);
    const char *slash = strrchr(file, '/');
    if (claim_is(dir, file))
        return pl_fail(why, PL_EUSAGE,
                       "--%s '%.200s' is the folder of --checkpoint; give another name, such as "
                       "--%s %.150s/%s",
                       option, path, option, file, option);
    if (!pl_checkpoint_uses(slash ? slash + 1 : file) || !claim_inside(dir, file)) return PL_OK;
    return pl_fail(why, PL_EUSAGE,
                   "--%s '%.200s' has a name that --checkpoint gives to a file of its own in this "
                   "folder; give another name",
                   option, path);
}

void pl_claim_note(struct pl_claim *c, const char *run, uint64_t epoch, uint64_t version) {
    size_t n = strlen(run);
    if (c->lock < 0 || !c->boot[0] || n >= sizeof c->run || strspn(run, CLAIM_NAME) != n) return;
    memmove(c->run, run, n + 1);
    c->epoch = epoch;
    c->version = version;
    claim_write(c);
}

void pl_claim_release(struct pl_claim *c) {
    if (c->lock >= 0) close(c->lock);
    c->lock = -1;
}

void pl_claim_discard(struct pl_claim *c, const char *dir) {
    char path[PL_CHECKPOINT_PATH_MAX];
    int used = snprintf(path, sizeof path, "%s/.lock", dir);
    if (c->made_lock && used > 0 && (size_t)used < sizeof path) unlink(path);
    pl_claim_release(c);
    if (c->made_folder) rmdir(dir);
    c->made_lock = c->made_folder = false;
}
