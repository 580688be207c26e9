/* Checkpoints as files: their names, writing, rotation, finding and reading. What is in them is in
 * snapshot.c and saved.c. */
#include "run/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/output.h"
#include "run/checkpoint_state.h"

#define CHECKPOINT_NAME_MAX 64
#define CHECKPOINT_TRIES 100

/* ---- names in a folder ---- */

static void checkpoint_name(uint64_t updates, char name[CHECKPOINT_NAME_MAX]) {
    snprintf(name, CHECKPOINT_NAME_MAX, "checkpoint-%010llu.safetensors",
             (unsigned long long)updates);
}

/* Whether `name` begins with the name of a checkpoint; its number, and the rest of the name. */
static bool checkpoint_begins(const char *name, uint64_t *updates, const char **rest) {
    static const char front[] = "checkpoint-";
    char canonical[CHECKPOINT_NAME_MAX], *end;
    if (strncmp(name, front, sizeof front - 1) != 0) return false;
    const char *digits = name + sizeof front - 1;
    if (*digits < '0' || *digits > '9') return false;
    *updates = strtoull(digits, &end, 10);
    /* printed again it must be the same: ten digits, no overflow */
    checkpoint_name(*updates, canonical);
    size_t n = strlen(canonical);
    if (strncmp(name, canonical, n) != 0) return false;
    *rest = name + n;
    return true;
}

static bool checkpoint_is_ours(const char *name, uint64_t *updates) {
    const char *rest;
    return checkpoint_begins(name, updates, &rest) && *rest == '\0';
}

/* The temporary file of a checkpoint or of the best model. */
static bool checkpoint_is_temporary(const char *name) {
    uint64_t updates;
    const char *rest;
    size_t front;
    if (!pl_output_is_temporary(name, &front)) return false;
    return (checkpoint_begins(name, &updates, &rest) && rest == name + front) ||
           (front == sizeof PL_BEST_FILE - 1 && strncmp(name, PL_BEST_FILE, front) == 0);
}

static int checkpoint_join(char path[], size_t max, const char *dir, const char *name,
                           struct pl_why *why) {
    size_t n = strlen(dir);
    int used = snprintf(path, max, "%s%s%s", dir, n > 0 && dir[n - 1] == '/' ? "" : "/", name);
    if (used < 0 || (size_t)used >= max)
        return pl_fail(why, PL_EUSAGE, "the path %.60s… is longer than %zu bytes", dir, max - 1);
    return PL_OK;
}

static int checkpoint_order(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Numbers of the checkpoints in `dir`, ascending, in *out (free() it). Plain files only. If
 * `sweep`, removes temporary files that a killed writer has left. */
static int checkpoint_list(const char *dir, bool sweep, uint64_t **out, size_t *n,
                           struct pl_why *why) {
    DIR *d = opendir(dir);
    if (!d)
        return pl_fail(why, errno == ENOENT ? PL_EMISSING : PL_EIO,
                       "folder '%s' cannot be read: %s", dir, strerror(errno));
    uint64_t *found = NULL, updates;
    size_t room = 0;
    int rc = PL_OK;
    *n = 0;
    for (struct dirent *e; !rc && (e = readdir(d));) {
        struct stat st;
        char path[PL_CHECKPOINT_PATH_MAX];
        if (sweep && checkpoint_is_temporary(e->d_name) &&
            !checkpoint_join(path, sizeof path, dir, e->d_name, NULL))
            pl_output_sweep(path);
        if (!checkpoint_is_ours(e->d_name, &updates)) continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (!PL_GROW(found, room, *n + 1)) {
            rc = pl_fail(why, PL_ENOMEM, "out of memory");
            break;
        }
        found[(*n)++] = updates;
    }
    closedir(d);
    if (rc) {
        free(found);
        return rc;
    }
    if (*n > 1) qsort(found, *n, sizeof *found, checkpoint_order);
    *out = found;
    return PL_OK;
}

/* ---- writing ---- */

/* Whether a link can get this name: there is nothing, or a link to what a run saves. */
static bool checkpoint_may_link(const char *path) {
    char target[CHECKPOINT_NAME_MAX];
    uint64_t updates;
    struct stat st;
    if (lstat(path, &st)) return true;
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = '\0';
    return checkpoint_is_ours(target, &updates) || strcmp(target, PL_BEST_FILE) == 0;
}

/* First those of links. */
static const char *const checkpoint_names[] = {"latest",     "best",     "latest.tmp", "best.tmp",
                                               PL_BEST_FILE, "run.json", ".lock"};
#define CHECKPOINT_LINKS 4

bool pl_checkpoint_uses(const char *name) {
    uint64_t updates;
    for (size_t i = 0; i < sizeof checkpoint_names / sizeof *checkpoint_names; i++)
        if (strcmp(name, checkpoint_names[i]) == 0) return true;
    return checkpoint_is_ours(name, &updates) || checkpoint_is_temporary(name);
}

static int checkpoint_check_links(const char *dir, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX];
    int rc = PL_OK;
    for (size_t i = 0; !rc && i < CHECKPOINT_LINKS; i++) {
        rc = checkpoint_join(path, sizeof path, dir, checkpoint_names[i], why);
        if (!rc && !checkpoint_may_link(path))
            rc = pl_fail(why, PL_EUSAGE,
                         "'%s' is in the way: it is not a link to a checkpoint; move it, or give "
                         "another folder with --checkpoint",
                         path);
    }
    return rc;
}

int pl_checkpoint_folder(const char *dir, struct pl_why *why) {
    struct stat st;
    if (mkdir(dir, 0777) == 0) {
        if (pl_tensors_sync_folder(dir))
            return pl_fail(why, PL_EIO, "the folder of '%s' cannot be synced to the disk", dir);
    } else if (errno != EEXIST) {
        return pl_output_no_folder("folder", dir, why);
    } else if (stat(dir, &st) || !S_ISDIR(st.st_mode)) {
        return pl_fail(why, PL_EIO, "'%s' is not a folder; checkpoints need one", dir);
    }
    if (access(dir, W_OK | X_OK))
        return pl_fail(why, PL_EIO, "no files can be created in folder '%s': %s", dir,
                       strerror(errno));
    return checkpoint_check_links(dir, why);
}

/* Another process may do the same at the same time, or have died doing it. */
static int checkpoint_link(const char *dir, const char *link, const char *name,
                           struct pl_why *why) {
    char latest[PL_CHECKPOINT_PATH_MAX], temporary[PL_CHECKPOINT_PATH_MAX];
    int rc = checkpoint_join(latest, sizeof latest, dir, link, why);
    if (!rc)
        rc = checkpoint_join(temporary, sizeof temporary, dir,
                             strcmp(link, "latest") == 0 ? "latest.tmp" : "best.tmp", why);
    if (rc) return rc;
    for (int i = 0; i < CHECKPOINT_TRIES; i++) {
        if (symlink(name, temporary) == 0) {
            if (!checkpoint_may_link(latest)) {
                unlink(temporary);
                errno = EEXIST;
                break;
            }
            if (rename(temporary, latest) == 0) return PL_OK;
            if (errno == ENOENT) continue;
            break;
        }
        /* a file system without links: the numbers in the names suffice */
        if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return PL_OK;
        if (errno != EEXIST || !checkpoint_may_link(temporary)) break;
        unlink(temporary);
    }
    return pl_fail(why, PL_EIO, "'%s' is written, but the link '%s' cannot be set: %s", name,
                   latest, strerror(errno));
}

static const char *checkpoint_text(const struct pl_snapshot *s, const char *key) {
    for (size_t i = 0; i < s->n_text; i++)
        if (strcmp(s->text[i].key, key) == 0) return s->text[i].value;
    return NULL;
}

/* Whether a checkpoint in the folder was written by the run of this origin. */
static bool checkpoint_is_own(const char *path, const char *origin) {
    struct pl_tensors *t = NULL;
    if (!origin) return true;
    if (pl_tensors_head(path, &t, NULL)) return false;
    const char *theirs = pl_tensors_meta(t, "origin");
    bool own = theirs && strcmp(theirs, origin) == 0;
    pl_tensors_free(t);
    return own;
}

/* Moves the checkpoints that are not the run's own to the end, and returns how many are. */
static size_t checkpoint_own(const char *dir, uint64_t *found, size_t n, const char *origin) {
    size_t own = 0;
    for (size_t i = 0; i < n; i++) {
        char name[CHECKPOINT_NAME_MAX], path[PL_CHECKPOINT_PATH_MAX];
        checkpoint_name(found[i], name);
        if (checkpoint_join(path, sizeof path, dir, name, NULL) || !checkpoint_is_own(path, origin))
            continue;
        uint64_t mine = found[i];
        memmove(found + own + 1, found + own, (i - own) * sizeof *found);
        found[own++] = mine;
    }
    return own;
}

/* Never removes what was written last. Own checkpoints with higher numbers are of a branch that was
 * given up when the run was resumed from before them: they go first. */
static int checkpoint_prune(const char *dir, size_t keep_n, uint64_t written, const char *origin,
                            struct pl_why *why) {
    uint64_t *found = NULL;
    size_t n = 0, later = 0;
    int rc = checkpoint_list(dir, true, &found, &n, why);
    if (rc) return rc;
    size_t own = keep_n > 0 && n > keep_n ? checkpoint_own(dir, found, n, origin) : 0;
    while (later < own && found[own - 1 - later] > written) later++;
    for (size_t i = 0, left = own; i < own && left > keep_n && !rc; i++) {
        char name[CHECKPOINT_NAME_MAX], path[PL_CHECKPOINT_PATH_MAX];
        uint64_t oldest = found[(i + own - later) % own];
        if (oldest == written) continue;
        checkpoint_name(oldest, name);
        rc = checkpoint_join(path, sizeof path, dir, name, why);
        if (!rc && unlink(path) && errno != ENOENT)
            rc = pl_fail(why, PL_EIO, "the old checkpoint '%s' cannot be removed: %s", path,
                         strerror(errno));
        left--;
    }
    free(found);
    return rc;
}

/* Writes the snapshot as the file `name` in `dir`. */
static int checkpoint_store(const char *dir, const char *name, const struct pl_snapshot *s,
                            uint64_t updates, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX], count[24];
    if (s->failed) return pl_fail(why, PL_ENOMEM, "out of memory for a checkpoint");
    int rc = pl_checkpoint_folder(dir, why);
    if (!rc) rc = checkpoint_join(path, sizeof path, dir, name, why);
    if (rc) return rc;
    struct pl_meta *meta = malloc((s->n_text + 1) * sizeof *meta);
    if (!meta) return pl_fail(why, PL_ENOMEM, "out of memory");
    snprintf(count, sizeof count, "%llu", (unsigned long long)updates);
    meta[0] = (struct pl_meta){.key = "updates", .value = count};
    if (s->n_text > 0) memcpy(meta + 1, s->text, s->n_text * sizeof *meta);
    rc = pl_tensors_write(path, s->tensor, s->n, meta, s->n_text + 1, why);
    free(meta);
    return rc;
}

int pl_checkpoint_write(const char *dir, size_t keep_n, const struct pl_snapshot *s,
                        uint64_t updates, struct pl_why *why) {
    char name[CHECKPOINT_NAME_MAX];
    checkpoint_name(updates, name);
    int rc = checkpoint_store(dir, name, s, updates, why);
    if (!rc) rc = checkpoint_link(dir, "latest", name, why);
    if (!rc) rc = checkpoint_prune(dir, keep_n, updates, checkpoint_text(s, "origin"), why);
    return rc;
}

int pl_checkpoint_write_best(const char *dir, const struct pl_snapshot *s, uint64_t updates,
                             struct pl_why *why) {
    int rc = checkpoint_store(dir, PL_BEST_FILE, s, updates, why);
    return rc ? rc : checkpoint_link(dir, "best", PL_BEST_FILE, why);
}

double pl_checkpoint_best(const char *dir, const char *key) {
    char path[PL_CHECKPOINT_PATH_MAX];
    struct pl_tensors *t = NULL;
    double value = NAN;
    if (checkpoint_join(path, sizeof path, dir, PL_BEST_FILE, NULL) ||
        pl_tensors_head(path, &t, NULL))
        return NAN;
    const char *text = pl_tensors_meta(t, key);
    if (text) value = strtod(text, NULL);
    pl_tensors_free(t);
    return value;
}

/* ---- finding ---- */

static int checkpoint_copy(char path[], size_t max, const char *from, struct pl_why *why) {
    size_t n = strlen(from);
    if (n >= max) return pl_fail(why, PL_EUSAGE, "the path %.60s… is too long", from);
    memcpy(path, from, n + 1);
    return PL_OK;
}

/* dir[max]: what is before the last '/' of the path, "." if it has none. Returns the rest, or NULL
 * if `dir` is too long. */
static const char *checkpoint_split(const char *path, char dir[], size_t max) {
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n + 2 > max) return NULL;
    memcpy(dir, n ? path : slash ? "/" : ".", n ? n : 1);
    dir[n ? n : 1] = '\0';
    return slash ? slash + 1 : path;
}

/* A file is itself; the link `latest` is followed, so that other checkpoints beside its target can
 * be found. */
static int checkpoint_find_file(const char *file, char path[], size_t max, struct pl_why *why) {
    char dir[PL_CHECKPOINT_PATH_MAX], target[CHECKPOINT_NAME_MAX];
    uint64_t updates;
    ssize_t n = readlink(file, target, sizeof target - 1);
    if (n <= 0) return checkpoint_copy(path, max, file, why);
    target[n] = '\0';
    if (!checkpoint_is_ours(target, &updates) || !checkpoint_split(file, dir, sizeof dir))
        return checkpoint_copy(path, max, file, why);
    return checkpoint_join(path, max, dir, target, why);
}

/* The name of the checkpoint that the link `latest` in the folder names, if there is one. */
static bool checkpoint_latest(const char *dir, char name[CHECKPOINT_NAME_MAX]) {
    char path[PL_CHECKPOINT_PATH_MAX];
    uint64_t updates;
    struct stat st;
    if (checkpoint_join(path, sizeof path, dir, "latest", NULL)) return false;
    ssize_t n = readlink(path, name, CHECKPOINT_NAME_MAX - 1);
    if (n <= 0) return false;
    name[n] = '\0';
    return checkpoint_is_ours(name, &updates) &&
           !checkpoint_join(path, sizeof path, dir, name, NULL) && lstat(path, &st) == 0 &&
           S_ISREG(st.st_mode);
}

bool pl_checkpoint_only_best(const char *dir, struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX];
    struct stat st;
    if (checkpoint_join(path, sizeof path, dir, PL_BEST_FILE, NULL) || lstat(path, &st))
        return false;
    pl_fail(why, PL_EMISSING,
            "folder '%.150s' has only the best weights of an earlier run, which cannot be "
            "continued; give another folder, or evaluate them with paceline eval %.150s",
            dir, path);
    return true;
}

int pl_checkpoint_find(const char *where, char path[], size_t max, struct pl_why *why) {
    struct stat st;
    if (stat(where, &st))
        return pl_fail(why, errno == ENOENT ? PL_EMISSING : PL_EIO,
                       "checkpoint '%s' cannot be found: %s", where, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return checkpoint_find_file(where, path, max, why);
    char name[CHECKPOINT_NAME_MAX];
    uint64_t *found = NULL;
    size_t n = 0;
    if (checkpoint_latest(where, name) && !checkpoint_join(path, max, where, name, why))
        return PL_OK;
    int rc = checkpoint_list(where, false, &found, &n, why);
    if (rc) return rc;
    if (n == 0) {
        free(found);
        if (pl_checkpoint_only_best(where, why)) return PL_EMISSING;
        return pl_fail(why, PL_EMISSING,
                       "folder '%s' has no checkpoint (a file such as "
                       "checkpoint-0000000100.safetensors)",
                       where);
    }
    checkpoint_name(found[n - 1], name);
    free(found);
    return checkpoint_join(path, max, where, name, why);
}

/* ---- reading ---- */

static bool checkpoint_is_intact(const char *path) {
    struct pl_tensors *t = NULL;
    bool intact = !pl_tensors_read(path, &t, NULL) && pl_tensors_checked(t);
    pl_tensors_free(t);
    return intact;
}

/* Whether the checkpoint of `updates` in the folder of `path` is intact; its path in other[]. */
static bool checkpoint_try(const char *path, uint64_t updates, char other[PL_CHECKPOINT_PATH_MAX]) {
    char name[CHECKPOINT_NAME_MAX];
    const char *slash = strrchr(path, '/');
    checkpoint_name(updates, name);
    int used = snprintf(other, PL_CHECKPOINT_PATH_MAX, "%.*s%s",
                        slash ? (int)(slash - path) + 1 : 0, path, name);
    return used > 0 && used < PL_CHECKPOINT_PATH_MAX && checkpoint_is_intact(other);
}

/* Adds to the message what else is in the folder of a damaged file: the last intact checkpoint
 * before it, otherwise the first after it. */
static void checkpoint_offer(const char *path, struct pl_why *why) {
    char dir[PL_CHECKPOINT_PATH_MAX], other[PL_CHECKPOINT_PATH_MAX];
    uint64_t own = 0, *found = NULL;
    size_t n = 0;
    const char *name = why ? checkpoint_split(path, dir, sizeof dir) : NULL;
    if (!name || !checkpoint_is_ours(name, &own)) return;
    if (checkpoint_list(dir, false, &found, &n, NULL)) return;
    size_t before = 0, others = 0;
    for (size_t i = 0; i < n; i++) {
        before += found[i] < own;
        others += found[i] != own;
    }
    const char *text = others ? "; the others are damaged too" : "; there is no other";
    bool intact = false;
    for (size_t i = before; i > 0 && !intact; i--)
        if ((intact = checkpoint_try(path, found[i - 1], other)))
            text = i == before ? "; the one before it is intact: "
                               : "; the last intact one before it: ";
    for (size_t i = before; i < n && !intact; i++)
        if (found[i] != own && (intact = checkpoint_try(path, found[i], other)))
            text = "; one after it is intact: ";
    pl_append(why->text, sizeof why->text, "%s%s", text, intact ? other : "");
    free(found);
}

int pl_checkpoint_read(const char *path, struct pl_saved **out, struct pl_why *why) {
    struct pl_saved *s = calloc(1, sizeof *s);
    if (!s) return pl_fail(why, PL_ENOMEM, "out of memory");
    int rc = checkpoint_copy(s->path, sizeof s->path, path, why);
    if (!rc) rc = pl_tensors_read(path, &s->tensors, why);
    if (rc) {
        free(s);
        if (rc == PL_EDATA) checkpoint_offer(path, why);
        return rc;
    }
    *out = s;
    return PL_OK;
}

/* Reads a checkpoint that a run can be resumed from. */
static int checkpoint_read_whole(const char *path, struct pl_saved **out, struct pl_why *why) {
    struct pl_saved *saved = NULL;
    int rc = pl_checkpoint_read(path, &saved, why);
    if (!rc) rc = pl_saved_resumable(saved, why);
    if (rc)
        pl_saved_free(saved);
    else
        *out = saved;
    return rc;
}

int pl_checkpoint_read_last(const char *dir, struct pl_saved **out, struct pl_why *skipped,
                            struct pl_why *why) {
    char path[PL_CHECKPOINT_PATH_MAX], other[PL_CHECKPOINT_PATH_MAX], name[CHECKPOINT_NAME_MAX];
    struct pl_why first = {.text = ""};
    uint64_t *found = NULL;
    size_t n = 0;
    int n_more = 0;
    skipped->text[0] = '\0';
    int rc = pl_checkpoint_find(dir, path, sizeof path, why);
    if (rc) return rc;
    rc = checkpoint_read_whole(path, out, &first);
    if (rc == PL_EDATA && !checkpoint_list(dir, false, &found, &n, NULL)) {
        for (size_t i = n; i > 0 && rc == PL_EDATA; i--) {
            checkpoint_name(found[i - 1], name);
            if (checkpoint_join(other, sizeof other, dir, name, NULL) || !strcmp(other, path))
                continue;
            rc = checkpoint_read_whole(other, out, NULL);
            if (rc) n_more++;
        }
        free(found);
        first.text[strcspn(first.text, ";")] = '\0'; /* without the advice */
        if (!rc && n_more == 0)
            pl_fail(skipped, PL_EDATA, "%.300s; resuming from %.150s", first.text, other);
        if (!rc && n_more > 0)
            pl_fail(skipped, PL_EDATA,
                    "%.300s; %d other checkpoint%s cannot be used either; resuming from %.150s",
                    first.text, n_more, n_more > 1 ? "s" : "", other);
    }
    return rc ? pl_fail(why, rc, "%s%s", first.text,
                        rc == PL_EDATA ? "; no checkpoint in the folder can be resumed" : "")
              : PL_OK;
}
