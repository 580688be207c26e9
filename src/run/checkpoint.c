#include "run/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run/tensors.h"

_Static_assert(_Generic((pl_real)0, float : 1, default : 0), "reals are kept as F32");

#define CHECKPOINT_PATH_MAX 4096
#define CHECKPOINT_NAME_MAX 64
#define CHECKPOINT_TRIES 100

static const char checkpoint_state[] = "run."; /* in front of the names of what is not weights */

/* ---- snapshots ---- */

struct snapshot_piece {
    char *name;
    void *copy; /* NULL for weights */
};

struct pl_snapshot {
    size_t n, n_room;
    struct pl_tensor *tensor;     /* [n] */
    struct snapshot_piece *piece; /* [n]: what it owns of them */
    size_t n_text, n_text_room;
    struct pl_meta *text; /* [n_text], both strings its own */
    bool failed;          /* there was no memory for a piece */
};

int pl_snapshot_new(struct pl_snapshot **out, struct pl_why *why) {
    *out = calloc(1, sizeof **out);
    return *out ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
}

void pl_snapshot_free(struct pl_snapshot *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) {
        free(s->piece[i].name);
        free(s->piece[i].copy);
    }
    for (size_t i = 0; i < s->n_text; i++) {
        free((char *)s->text[i].key);
        free((char *)s->text[i].value);
    }
    free(s->tensor);
    free(s->piece);
    free(s->text);
    free(s);
}

/* Room for one more of each; false without memory. */
static bool snapshot_grow(struct pl_snapshot *s) {
    if (s->n < s->n_room) return true;
    size_t room = 2 * s->n_room + 16;
    struct pl_tensor *tensor = realloc(s->tensor, room * sizeof *tensor);
    if (tensor) s->tensor = tensor;
    struct snapshot_piece *piece = realloc(s->piece, room * sizeof *piece);
    if (piece) s->piece = piece;
    if (!tensor || !piece) return false;
    s->n_room = room;
    return true;
}

/* prefix + t->name is its name. Where `copied`, so is its data. */
static void snapshot_add(struct pl_snapshot *s, const char *prefix, const struct pl_tensor *t,
                         bool copied) {
    size_t n_name = strlen(prefix) + strlen(t->name) + 1;
    char *name = malloc(n_name);
    void *copy = copied ? malloc(t->bytes + 1) : NULL;
    if (!name || (copied && !copy) || !snapshot_grow(s)) {
        free(name);
        free(copy);
        s->failed = true;
        return;
    }
    snprintf(name, n_name, "%s%s", prefix, t->name);
    if (copied && t->bytes > 0) memcpy(copy, t->data, t->bytes);
    s->tensor[s->n] = *t;
    s->tensor[s->n].name = name;
    if (copied) s->tensor[s->n].data = copy;
    s->piece[s->n++] = (struct snapshot_piece){.name = name, .copy = copy};
}

static size_t snapshot_keep(void *ctx, const char *name, enum pl_dtype type, const void *v,
                            size_t n, size_t size) {
    struct pl_tensor t = {.name = name, .type = type, .n_dims = 1, .shape = {n}};
    t.data = v;
    t.bytes = n * size;
    snapshot_add(ctx, checkpoint_state, &t, true);
    return n;
}

static size_t snapshot_reals(void *ctx, const char *name, pl_real *v, size_t n) {
    return snapshot_keep(ctx, name, PL_F32, v, n, sizeof *v);
}

static size_t snapshot_wholes(void *ctx, const char *name, uint64_t *v, size_t n) {
    return snapshot_keep(ctx, name, PL_U64, v, n, sizeof *v);
}

static size_t snapshot_numbers(void *ctx, const char *name, double *v, size_t n) {
    return snapshot_keep(ctx, name, PL_F64, v, n, sizeof *v);
}

static size_t snapshot_bytes(void *ctx, const char *name, void *v, size_t n) {
    return snapshot_keep(ctx, name, PL_U8, v, n, 1);
}

struct pl_archive pl_snapshot_archive(struct pl_snapshot *s) {
    return (struct pl_archive){.restoring = false,
                               .ctx = s,
                               .reals = snapshot_reals,
                               .wholes = snapshot_wholes,
                               .numbers = snapshot_numbers,
                               .bytes = snapshot_bytes};
}

static size_t checkpoint_bytes(const struct pl_model_tensor *part) {
    size_t n = sizeof(float);
    for (int d = 0; d < part->n_dims; d++) n *= (size_t)part->shape[d];
    return n;
}

void pl_snapshot_weights(struct pl_snapshot *s, const struct pl_model *m, const float *w) {
    struct pl_model_tensor part;
    for (int i = 0; pl_model_tensor(m, i, &part); i++) {
        struct pl_tensor t = {.name = part.name, .type = PL_F32, .n_dims = part.n_dims};
        memcpy(t.shape, part.shape, sizeof t.shape);
        t.data = w + part.offset;
        t.bytes = checkpoint_bytes(&part);
        snapshot_add(s, "", &t, false);
    }
}

void pl_snapshot_text(struct pl_snapshot *s, const char *key, const char *value) {
    if (s->n_text == s->n_text_room) {
        size_t room = 2 * s->n_text_room + 16;
        struct pl_meta *grown = realloc(s->text, room * sizeof *grown);
        if (!grown) {
            s->failed = true;
            return;
        }
        s->text = grown;
        s->n_text_room = room;
    }
    struct pl_meta copy = {.key = strdup(key), .value = strdup(value)};
    if (!copy.key || !copy.value) s->failed = true;
    s->text[s->n_text++] = copy;
}

/* ---- names in a folder ---- */

static void checkpoint_name(uint64_t updates, char name[CHECKPOINT_NAME_MAX]) {
    snprintf(name, CHECKPOINT_NAME_MAX, "checkpoint-%010llu.safetensors",
             (unsigned long long)updates);
}

/* Whether `name` begins with that of a checkpoint; its number, and what comes behind it. */
static bool checkpoint_begins(const char *name, uint64_t *updates, const char **rest) {
    static const char front[] = "checkpoint-";
    char canonical[CHECKPOINT_NAME_MAX], *end;
    if (strncmp(name, front, sizeof front - 1) != 0) return false;
    const char *digits = name + sizeof front - 1;
    if (*digits < '0' || *digits > '9') return false;
    *updates = strtoull(digits, &end, 10);
    /* written again it must be the same: ten digits, no overflow */
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

/* checkpoint-….safetensors.<digits>-<digits>.tmp */
static bool checkpoint_is_temporary(const char *name) {
    static const char digits[] = "0123456789";
    uint64_t updates;
    const char *rest;
    if (!checkpoint_begins(name, &updates, &rest) || *rest != '.') return false;
    size_t pid = strspn(rest + 1, digits);
    if (pid == 0 || rest[1 + pid] != '-') return false;
    rest += 1 + pid + 1;
    size_t count = strspn(rest, digits);
    return count > 0 && strcmp(rest + count, ".tmp") == 0;
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

/* Numbers of the checkpoints in `dir`, rising, in *out (free() it). Plain files only. Temporaries
 * that a killed writer has left are removed on the way where `sweep`. */
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
        char path[CHECKPOINT_PATH_MAX];
        if (sweep && checkpoint_is_temporary(e->d_name) &&
            !checkpoint_join(path, sizeof path, dir, e->d_name, NULL))
            pl_tensors_sweep(path);
        if (!checkpoint_is_ours(e->d_name, &updates)) continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (*n == room) {
            room = 2 * room + 64;
            uint64_t *grown = realloc(found, room * sizeof *grown);
            if (!grown) {
                rc = pl_fail(why, PL_ENOMEM, "out of memory");
                break;
            }
            found = grown;
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

int pl_checkpoint_folder(const char *dir, struct pl_why *why) {
    struct stat st;
    char latest[CHECKPOINT_PATH_MAX];
    if (mkdir(dir, 0777) == 0) {
        if (pl_tensors_sync_folder(dir))
            return pl_fail(why, PL_EIO, "the folder of '%s' cannot be forced to the disk", dir);
    } else if (errno != EEXIST) {
        return pl_fail(why, PL_EIO, "folder '%s' cannot be made: %s", dir, strerror(errno));
    } else if (stat(dir, &st) || !S_ISDIR(st.st_mode)) {
        return pl_fail(why, PL_EIO, "'%s' is not a folder; checkpoints need one", dir);
    }
    if (access(dir, W_OK | X_OK))
        return pl_fail(why, PL_EIO, "no files can be made in folder '%s': %s", dir,
                       strerror(errno));
    int rc = checkpoint_join(latest, sizeof latest, dir, "latest", why);
    if (!rc && lstat(latest, &st) == 0 && !S_ISLNK(st.st_mode))
        rc =
            pl_fail(why, PL_EUSAGE, "'%s' is in the way: it is not a link to a checkpoint", latest);
    return rc;
}

/* Somebody else may do the same at the same time, or have died doing it. */
static int checkpoint_link(const char *dir, const char *name, struct pl_why *why) {
    char latest[CHECKPOINT_PATH_MAX], temporary[CHECKPOINT_PATH_MAX];
    int rc = checkpoint_join(latest, sizeof latest, dir, "latest", why);
    if (!rc) rc = checkpoint_join(temporary, sizeof temporary, dir, "latest.tmp", why);
    if (rc) return rc;
    for (int i = 0; i < CHECKPOINT_TRIES; i++) {
        if (symlink(name, temporary) == 0) {
            if (rename(temporary, latest) == 0) return PL_OK;
            if (errno == ENOENT) continue;
            break;
        }
        struct stat st;
        /* a file system without links: the number in the name will do */
        if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return PL_OK;
        if (errno != EEXIST) break;
        if (lstat(temporary, &st) == 0 && !S_ISLNK(st.st_mode)) break;
        unlink(temporary);
    }
    return pl_fail(why, PL_EIO, "'%s' is written, but the link '%s' cannot be set: %s", name,
                   latest, strerror(errno));
}

/* What was written last stays, even where others in the folder have higher numbers. */
static int checkpoint_prune(const char *dir, size_t keep_n, uint64_t written, struct pl_why *why) {
    uint64_t *found = NULL;
    size_t n = 0;
    int rc = checkpoint_list(dir, true, &found, &n, why);
    if (rc) return rc;
    for (size_t i = 0, left = n; keep_n > 0 && i < n && left > keep_n && !rc; i++) {
        char name[CHECKPOINT_NAME_MAX], path[CHECKPOINT_PATH_MAX];
        if (found[i] == written) continue;
        checkpoint_name(found[i], name);
        rc = checkpoint_join(path, sizeof path, dir, name, why);
        if (!rc && unlink(path) && errno != ENOENT)
            rc = pl_fail(why, PL_EIO, "the old checkpoint '%s' cannot be removed: %s", path,
                         strerror(errno));
        left--;
    }
    free(found);
    return rc;
}

int pl_checkpoint_write(const char *dir, size_t keep_n, const struct pl_snapshot *s,
                        uint64_t updates, struct pl_why *why) {
    char name[CHECKPOINT_NAME_MAX], path[CHECKPOINT_PATH_MAX], count[24];
    if (s->failed) return pl_fail(why, PL_ENOMEM, "out of memory for a checkpoint");
    int rc = pl_checkpoint_folder(dir, why);
    checkpoint_name(updates, name);
    if (!rc) rc = checkpoint_join(path, sizeof path, dir, name, why);
    if (rc) return rc;
    struct pl_meta *meta = malloc((s->n_text + 1) * sizeof *meta);
    if (!meta) return pl_fail(why, PL_ENOMEM, "out of memory");
    snprintf(count, sizeof count, "%llu", (unsigned long long)updates);
    meta[0] = (struct pl_meta){.key = "updates", .value = count};
    if (s->n_text > 0) memcpy(meta + 1, s->text, s->n_text * sizeof *meta);
    rc = pl_tensors_write(path, s->tensor, s->n, meta, s->n_text + 1, why);
    free(meta);
    if (!rc) rc = checkpoint_link(dir, name, why);
    if (!rc) rc = checkpoint_prune(dir, keep_n, updates, why);
    return rc;
}

/* ---- finding ---- */

static int checkpoint_copy(char path[], size_t max, const char *from, struct pl_why *why) {
    size_t n = strlen(from);
    if (n >= max) return pl_fail(why, PL_EUSAGE, "the path %.60s… is too long", from);
    memcpy(path, from, n + 1);
    return PL_OK;
}

/* dir[max]: what stands before the last '/' of the path, "." where there is none. The rest is
 * returned; NULL where it is too long. */
static const char *checkpoint_split(const char *path, char dir[], size_t max) {
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n + 2 > max) return NULL;
    memcpy(dir, n ? path : slash ? "/" : ".", n ? n : 1);
    dir[n ? n : 1] = '\0';
    return slash ? slash + 1 : path;
}

/* A file is itself; of the link `latest`, the name of the file is told, so that others beside it
 * can be found. */
static int checkpoint_find_file(const char *file, char path[], size_t max, struct pl_why *why) {
    char dir[CHECKPOINT_PATH_MAX], target[CHECKPOINT_NAME_MAX];
    uint64_t updates;
    ssize_t n = readlink(file, target, sizeof target - 1);
    if (n <= 0) return checkpoint_copy(path, max, file, why);
    target[n] = '\0';
    if (!checkpoint_is_ours(target, &updates) || !checkpoint_split(file, dir, sizeof dir))
        return checkpoint_copy(path, max, file, why);
    return checkpoint_join(path, max, dir, target, why);
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
    int rc = checkpoint_list(where, false, &found, &n, why);
    if (rc) return rc;
    if (n == 0) {
        free(found);
        return pl_fail(why, PL_EMISSING,
                       "folder '%s' has no checkpoint; one is called "
                       "checkpoint-0000000100.safetensors",
                       where);
    }
    checkpoint_name(found[n - 1], name);
    free(found);
    return checkpoint_join(path, max, where, name, why);
}

/* ---- reading ---- */

struct pl_saved {
    struct pl_tensors *tensors;
    char path[CHECKPOINT_PATH_MAX];
};

static bool checkpoint_is_whole(const char *path) {
    struct pl_tensors *t = NULL;
    bool whole = !pl_tensors_read(path, &t, NULL) && pl_tensors_checked(t);
    pl_tensors_free(t);
    return whole;
}

/* Whether that many updates in the folder of `path` are whole; their path to other[]. */
static bool checkpoint_try(const char *path, uint64_t updates, char other[CHECKPOINT_PATH_MAX]) {
    char name[CHECKPOINT_NAME_MAX];
    const char *slash = strrchr(path, '/');
    checkpoint_name(updates, name);
    int used = snprintf(other, CHECKPOINT_PATH_MAX, "%.*s%s", slash ? (int)(slash - path) + 1 : 0,
                        path, name);
    return used > 0 && used < CHECKPOINT_PATH_MAX && checkpoint_is_whole(other);
}

/* Adds to the sentence what else is in the folder of a damaged file: the nearest before it that is
 * whole, else the nearest behind it. */
static void checkpoint_offer(const char *path, struct pl_why *why) {
    char dir[CHECKPOINT_PATH_MAX], other[CHECKPOINT_PATH_MAX];
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
    const char *text = others ? "; no other is whole" : "; no other is there";
    bool whole = false;
    for (size_t i = before; i > 0 && !whole; i--)
        if ((whole = checkpoint_try(path, found[i - 1], other)))
            text = i == before ? "; the one before it is whole: --resume "
                               : "; the last whole one before it: --resume ";
    for (size_t i = before; i < n && !whole; i++)
        if (found[i] != own && (whole = checkpoint_try(path, found[i], other)))
            text = "; one after it is whole: --resume ";
    pl_append(why->text, sizeof why->text, "%s%s", text, whole ? other : "");
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

void pl_saved_free(struct pl_saved *s) {
    if (!s) return;
    pl_tensors_free(s->tensors);
    free(s);
}

static size_t saved_piece(void *ctx, const char *name, enum pl_dtype type, void *v, size_t n,
                          size_t size) {
    const struct pl_saved *s = ctx;
    char full[256];
    int used = snprintf(full, sizeof full, "%s%s", checkpoint_state, name);
    if (used < 0 || (size_t)used >= sizeof full) return 0;
    const struct pl_tensor *t = pl_tensors_find(s->tensors, full);
    if (!t || t->type != type || t->n_dims != 1) return 0;
    size_t kept = t->bytes / size;
    if (n > 0 && kept > 0) memcpy(v, t->data, (kept < n ? kept : n) * size);
    return kept;
}

static size_t saved_reals(void *ctx, const char *name, pl_real *v, size_t n) {
    return saved_piece(ctx, name, PL_F32, v, n, sizeof *v);
}

static size_t saved_wholes(void *ctx, const char *name, uint64_t *v, size_t n) {
    return saved_piece(ctx, name, PL_U64, v, n, sizeof *v);
}

static size_t saved_numbers(void *ctx, const char *name, double *v, size_t n) {
    return saved_piece(ctx, name, PL_F64, v, n, sizeof *v);
}

static size_t saved_bytes(void *ctx, const char *name, void *v, size_t n) {
    return saved_piece(ctx, name, PL_U8, v, n, 1);
}

struct pl_archive pl_saved_archive(const struct pl_saved *s) {
    return (struct pl_archive){.restoring = true,
                               .ctx = (void *)s, /* only read */
                               .reals = saved_reals,
                               .wholes = saved_wholes,
                               .numbers = saved_numbers,
                               .bytes = saved_bytes};
}

static void saved_shape(int n_dims, const uint64_t *shape, char out[128]) {
    out[0] = '\0';
    for (int d = 0; d < n_dims; d++)
        pl_append(out, 128, "%s%llu", d ? "," : "", (unsigned long long)shape[d]);
}

static int saved_fits(const struct pl_saved *s, const struct pl_model_tensor *part,
                      struct pl_why *why) {
    const struct pl_tensor *t = pl_tensors_find(s->tensors, part->name);
    if (!t)
        return pl_fail(why, PL_EUSAGE,
                       "checkpoint '%s' is of another model: it has no '%s'; give the model and "
                       "the data that it was made with",
                       s->path, part->name);
    if (t->type == PL_F32 && t->n_dims == part->n_dims &&
        !memcmp(t->shape, part->shape, (size_t)t->n_dims * sizeof *t->shape))
        return PL_OK;
    char is[128], wanted[128];
    saved_shape(t->n_dims, t->shape, is);
    saved_shape(part->n_dims, part->shape, wanted);
    return pl_fail(why, PL_EUSAGE,
                   "checkpoint '%s' is of another model: its '%s' is %s [%s], the model's is F32 "
                   "[%s]; give the model and the data that it was made with",
                   s->path, part->name, t->type == PL_F32 ? "F32" : "not F32", is, wanted);
}

/* Every part of the model is in the file, and no other weights are. */
static int saved_is_of(const struct pl_saved *s, const struct pl_model *m, struct pl_why *why) {
    struct pl_model_tensor part;
    size_t n_parts = 0, n_weights = 0;
    for (int i = 0; pl_model_tensor(m, i, &part); i++, n_parts++) {
        int rc = saved_fits(s, &part, why);
        if (rc) return rc;
    }
    for (size_t i = 0; i < pl_tensors_count(s->tensors); i++)
        n_weights += strncmp(pl_tensors_at(s->tensors, i)->name, checkpoint_state,
                             sizeof checkpoint_state - 1) != 0;
    if (n_weights != n_parts)
        return pl_fail(why, PL_EUSAGE,
                       "checkpoint '%s' is of another model: it has %zu arrays of weights, the "
                       "model has %zu; give the model and the data that it was made with",
                       s->path, n_weights, n_parts);
    return PL_OK;
}

int pl_saved_weights(const struct pl_saved *s, const struct pl_model *m, float *w,
                     struct pl_why *why) {
    struct pl_model_tensor part;
    int rc = saved_is_of(s, m, why);
    if (rc) return rc;
    for (int i = 0; pl_model_tensor(m, i, &part); i++) {
        const struct pl_tensor *t = pl_tensors_find(s->tensors, part.name);
        memcpy(w + part.offset, t->data, t->bytes);
    }
    return PL_OK;
}

const char *pl_saved_text(const struct pl_saved *s, const char *key) {
    return pl_tensors_meta(s->tensors, key);
}
