/* The pieces of a checkpoint that will be written.
 *
 * Threads: the one that decides collects the pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "run/checkpoint_state.h"

_Static_assert(_Generic((pl_real)0, float : 1, default : 0), "reals are saved as F32");

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

/* Makes room for one more of each. Returns false if out of memory. */
static bool snapshot_grow(struct pl_snapshot *s) {
    if (s->n < s->n_room) return true;
    size_t room = 2 * s->n_room + 16;
    if (!PL_RESIZE(s->tensor, room) || !PL_RESIZE(s->piece, room)) return false;
    s->n_room = room;
    return true;
}

/* Its name is prefix + t->name. Copies its data if `copied`. */
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

enum pl_dtype pl_snapshot_dtype(enum pl_archive_kind kind) {
    static const enum pl_dtype types[] = {
        [PL_REALS] = PL_F32, [PL_WHOLES] = PL_U64, [PL_NUMBERS] = PL_F64, [PL_BYTES] = PL_U8};
    return types[kind];
}

static size_t snapshot_piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                             size_t n) {
    struct pl_tensor t = {.name = name,
                          .type = pl_snapshot_dtype(kind),
                          .n_dims = 1,
                          .shape = {n},
                          .data = v,
                          .bytes = n * pl_archive_size(kind)};
    snapshot_add(ctx, PL_RUN_STATE, &t, true);
    return n;
}

struct pl_archive pl_snapshot_archive(struct pl_snapshot *s) {
    return (struct pl_archive){.ctx = s, .piece = snapshot_piece};
}

static size_t snapshot_tensor_n(const struct pl_model_tensor *part) {
    size_t n = 1;
    for (int d = 0; d < part->n_dims; d++) n *= (size_t)part->shape[d];
    return n;
}

/* A tensor in a type of its own; the vector is single precision. */
static void snapshot_narrow(struct pl_snapshot *s, struct pl_tensor *t, const float *w, size_t n) {
    void *copy = malloc(t->bytes + 1);
    if (!copy) {
        s->failed = true;
        return;
    }
    pl_dtype_narrow(t->type, w, n, copy);
    t->data = copy;
    snapshot_add(s, "", t, true);
    free(copy);
}

void pl_snapshot_weights(struct pl_snapshot *s, const struct pl_model *m, const float *w) {
    struct pl_model_tensor part;
    bool narrow = false;
    for (int i = 0; pl_model_tensor(m, i, &part); i++) {
        size_t n = snapshot_tensor_n(&part);
        struct pl_tensor t = {.name = part.name, .type = part.type, .n_dims = part.n_dims};
        memcpy(t.shape, part.shape, sizeof t.shape);
        t.bytes = n * pl_dtypes[part.type].size;
        t.data = w + part.offset;
        if (part.type == PL_F32)
            snapshot_add(s, "", &t, false);
        else
            snapshot_narrow(s, &t, w + part.offset, n);
        narrow |= part.type != PL_F32;
    }
    /* what the run continues from, bit by bit */
    struct pl_tensor all = {.name = PL_MASTER, .n_dims = 1, .shape = {m->dim}};
    all.data = w;
    all.bytes = m->dim * sizeof *w;
    if (narrow) snapshot_add(s, PL_RUN_STATE, &all, false);
}

bool pl_snapshot_finite(const struct pl_snapshot *s) {
    for (size_t i = 0; i < s->n; i++)
        if (!s->piece[i].copy && !pl_tensor_finite(&s->tensor[i])) return false;
    return true;
}

void pl_snapshot_text(struct pl_snapshot *s, const char *key, const char *value) {
    if (!PL_GROW(s->text, s->n_text_room, s->n_text + 1)) {
        s->failed = true;
        return;
    }
    struct pl_meta copy = {.key = strdup(key), .value = strdup(value)};
    if (!copy.key || !copy.value) s->failed = true;
    s->text[s->n_text++] = copy;
}

int pl_snapshot_pack(struct pl_snapshot *s, uint64_t updates, unsigned char **out, size_t *bytes,
                     struct pl_why *why) {
    char count[24];
    snprintf(count, sizeof count, "%llu", (unsigned long long)updates);
    pl_snapshot_text(s, "updates", count);
    if (s->failed) return pl_fail(why, PL_ENOMEM, "out of memory for a copy of the run");
    return pl_tensors_pack(s->tensor, s->n, s->text, s->n_text, out, bytes, why);
}
