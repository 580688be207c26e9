/* The pieces of a checkpoint that was read, and whether they fit the model.
 *
 * Threads: the one that reads the checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/checkpoint_state.h"

void pl_saved_free(struct pl_saved *s) {
    if (!s) return;
    pl_tensors_free(s->tensors);
    free(s);
}

const char *pl_saved_path(const struct pl_saved *s) {
    return s->path;
}

static bool saved_is_state(const struct pl_tensor *t) {
    return strncmp(t->name, PL_RUN_STATE, sizeof PL_RUN_STATE - 1) == 0;
}

int pl_saved_resumable(const struct pl_saved *s, struct pl_why *why) {
    bool finite = true, state = false;
    for (size_t i = 0; i < pl_tensors_count(s->tensors); i++) {
        const struct pl_tensor *t = pl_tensors_at(s->tensors, i);
        state = state || saved_is_state(t);
        finite = finite && (saved_is_state(t) || pl_tensor_finite(t));
    }
    if (!pl_saved_text(s, "setup"))
        return pl_fail(why, PL_EDATA, "checkpoint '%.200s' holds weights but no run to resume",
                       s->path);
    if (!state)
        return pl_fail(why, PL_EDATA,
                       "checkpoint '%.200s' holds weights without the state of their run, which "
                       "cannot be continued; resume from a folder with checkpoints, or evaluate "
                       "them with paceline eval %.200s",
                       s->path, s->path);
    return finite ? PL_OK
                  : pl_fail(why, PL_EDATA,
                            "checkpoint '%.200s' has weights that are not finite: its run had "
                            "diverged",
                            s->path);
}

static size_t saved_piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                          size_t n) {
    const struct pl_saved *s = ctx;
    char full[256];
    int used = snprintf(full, sizeof full, "%s%s", PL_RUN_STATE, name);
    if (used < 0 || (size_t)used >= sizeof full) return 0;
    const struct pl_tensor *t = pl_tensors_find(s->tensors, full);
    if (!t || t->type != pl_snapshot_dtype(kind) || t->n_dims != 1) return 0;
    size_t size = pl_archive_size(kind), n_saved = t->bytes / size;
    if (n > 0 && n_saved > 0) memcpy(v, t->data, (n_saved < n ? n_saved : n) * size);
    return n_saved;
}

struct pl_archive pl_saved_archive(const struct pl_saved *s) {
    return (struct pl_archive){.restoring = true,
                               .ctx = (void *)s, /* only read */
                               .piece = saved_piece};
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
                       "the data of its run",
                       s->path, part->name);
    if (t->type == part->type && t->n_dims == part->n_dims &&
        !memcmp(t->shape, part->shape, (size_t)t->n_dims * sizeof *t->shape))
        return PL_OK;
    char is[128], wanted[128];
    saved_shape(t->n_dims, t->shape, is);
    saved_shape(part->n_dims, part->shape, wanted);
    return pl_fail(why, PL_EUSAGE,
                   "checkpoint '%s' is of another model: its '%s' is %s [%s], the model's is %s "
                   "[%s]; give the model and the data of its run",
                   s->path, part->name, pl_dtypes[t->type].name, is, pl_dtypes[part->type].name,
                   wanted);
}

/* Checks that every part of the model is in the file, and no other weights. */
static int saved_suits(const struct pl_saved *s, const struct pl_model *m, struct pl_why *why) {
    struct pl_model_tensor part;
    size_t n_parts = 0, n_weights = 0;
    for (int i = 0; pl_model_tensor(m, i, &part); i++, n_parts++) {
        int rc = saved_fits(s, &part, why);
        if (rc) return rc;
    }
    for (size_t i = 0; i < pl_tensors_count(s->tensors); i++)
        n_weights += !saved_is_state(pl_tensors_at(s->tensors, i));
    if (n_weights != n_parts)
        return pl_fail(why, PL_EUSAGE,
                       "checkpoint '%s' is of another model: it has %zu arrays of weights, the "
                       "model has %zu; give the model and the data of its run",
                       s->path, n_weights, n_parts);
    return PL_OK;
}

int pl_saved_weights(const struct pl_saved *s, const struct pl_model *m, float *w,
                     struct pl_why *why) {
    struct pl_model_tensor part;
    int rc = saved_suits(s, m, why);
    if (rc) return rc;
    const struct pl_tensor *all = pl_tensors_find(s->tensors, PL_RUN_STATE PL_MASTER);
    if (all && all->type == PL_F32 && all->bytes == m->dim * sizeof *w) {
        memcpy(w, all->data, all->bytes);
        return PL_OK;
    }
    for (int i = 0; pl_model_tensor(m, i, &part); i++) {
        const struct pl_tensor *t = pl_tensors_find(s->tensors, part.name);
        pl_dtype_widen(t->type, t->data, t->bytes / pl_dtypes[t->type].size, w + part.offset);
    }
    return PL_OK;
}

const char *pl_saved_text(const struct pl_saved *s, const char *key) {
    return pl_tensors_meta(s->tensors, key);
}
