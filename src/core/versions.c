#include "core/versions.h"

#include <stdlib.h>
#include <string.h>

pl_real *pl_vector_new(size_t dim) {
    size_t bytes = (dim * sizeof(pl_real) + 63) & ~(size_t)63;
    void *v = aligned_alloc(64, bytes ? bytes : 64);
    if (v) memset(v, 0, bytes);
    return v;
}

static pl_real *versions_placed(const struct pl_versions *all) {
    const struct pl_vector_alloc *alloc = &all->alloc;
    return alloc->vector ? alloc->vector(alloc->ctx) : pl_vector_new(all->dim);
}

static void versions_forget(const struct pl_versions *all, struct pl_version *v) {
    if (!all->alloc.vector) {
        if (v->lookahead != v->model) free(v->lookahead);
        free(v->model);
    }
    free(v);
}

struct pl_version *pl_versions_spare(struct pl_versions *all) {
    for (int i = 0; i < all->n; i++)
        if (all->version[i]->n_holders == 0) return all->version[i];
    if (all->n == all->room) {
        int room = all->room ? 2 * all->room : 8;
        struct pl_version **grown = realloc(all->version, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        all->version = grown;
        all->room = room;
    }
    struct pl_version *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->model = versions_placed(all);
    v->lookahead = all->looks_ahead ? versions_placed(all) : v->model;
    if (!v->model || !v->lookahead) {
        versions_forget(all, v);
        return NULL;
    }
    all->version[all->n++] = v;
    return v;
}

void pl_version_pin(struct pl_version *v) {
    v->n_holders++;
    v->n_pinned++;
}

void pl_version_unpin(struct pl_version *v) {
    if (!v) return;
    v->n_holders--;
    v->n_pinned--;
}

struct pl_version *pl_versions_alone(struct pl_versions *all, struct pl_version *newest) {
    if (newest->n_pinned == 0) return newest;
    struct pl_version *copy = pl_versions_spare(all);
    if (!copy) return NULL;
    memcpy(copy->model, newest->model, all->dim * sizeof *copy->model);
    copy->n_holders = 1;
    newest->n_holders--;
    return copy;
}

void pl_versions_free(struct pl_versions *all) {
    for (int i = 0; i < all->n; i++) versions_forget(all, all->version[i]);
    free(all->version);
    *all = (struct pl_versions){0};
}
