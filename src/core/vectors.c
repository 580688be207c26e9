#include "core/vectors.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/status.h"

struct vectors_entry {
    pl_real *at;
    int n_readers; /* 0: the id is free */
    int writer;
    int next; /* the next free id, or PL_NO_VECTOR */
};

struct pl_vectors {
    struct vectors_entry *entry;
    int n;
    size_t room;
    int unused; /* first of the free ids, or PL_NO_VECTOR */
    size_t dim;
    struct pl_vector_memory memory;
    pl_real **spare; /* [n_spare] memory of our own that no vector has */
    int n_spare;
    size_t room_spare;
};

pl_real *pl_vector_new(size_t dim) {
    size_t bytes = (dim * sizeof(pl_real) + 63) & ~(size_t)63;
    void *v = aligned_alloc(64, bytes ? bytes : 64);
    if (v) memset(v, 0, bytes);
    return v;
}

/* --- memory of our own -------------------------------------------------------------------- */

static pl_real *vectors_get(void *ctx, int writer) {
    struct pl_vectors *t = ctx;
    (void)writer;
    return t->n_spare > 0 ? t->spare[--t->n_spare] : pl_vector_new(t->dim);
}

static void vectors_put(void *ctx, int id, int writer, pl_real *v) {
    struct pl_vectors *t = ctx;
    (void)id;
    (void)writer;
    if (!v) return;
    if (PL_GROW(t->spare, t->room_spare, t->n_spare + 1))
        t->spare[t->n_spare++] = v;
    else
        free(v);
}

/* --- the table ---------------------------------------------------------------------------- */

int pl_vectors_new(struct pl_vectors **out) {
    struct pl_vectors *t = calloc(1, sizeof *t);
    if (!t) return PL_ENOMEM;
    t->unused = PL_NO_VECTOR;
    *out = t;
    return PL_OK;
}

void pl_vectors_memory(struct pl_vectors *t, size_t dim, const struct pl_vector_memory *memory) {
    t->dim = dim;
    t->memory = memory ? *memory : (struct pl_vector_memory){vectors_get, vectors_put, t};
}

void pl_vectors_free(struct pl_vectors *t) {
    if (!t) return;
    for (int i = 0; i < t->n; i++)
        if (t->entry[i].at) t->memory.put(t->memory.ctx, i, t->entry[i].writer, t->entry[i].at);
    for (int i = 0; i < t->n_spare; i++) free(t->spare[i]);
    free(t->spare);
    free(t->entry);
    free(t);
}

int pl_vector_add(struct pl_vectors *t, int writer) {
    int id = t->unused;
    if (id != PL_NO_VECTOR) {
        t->unused = t->entry[id].next;
    } else {
        if (!PL_GROW(t->entry, t->room, t->n + 1)) return PL_NO_VECTOR;
        id = t->n++;
    }
    t->entry[id] = (struct vectors_entry){.n_readers = 1, .writer = writer, .next = PL_NO_VECTOR};
    return id;
}

void pl_vector_hold(struct pl_vectors *t, int id) {
    t->entry[id].n_readers++;
}

void pl_vector_release(struct pl_vectors *t, int id) {
    if (id == PL_NO_VECTOR || --t->entry[id].n_readers > 0) return;
    struct vectors_entry *v = &t->entry[id];
    if (t->memory.put) t->memory.put(t->memory.ctx, id, v->writer, v->at);
    v->at = NULL;
    v->next = t->unused;
    t->unused = id;
}

int pl_vector_writer(const struct pl_vectors *t, int id) {
    return t->entry[id].writer;
}

int pl_vector_n_readers(const struct pl_vectors *t, int id) {
    return t->entry[id].n_readers;
}

int pl_vectors_n(const struct pl_vectors *t) {
    return t->n;
}

pl_real *pl_vector_at(struct pl_vectors *t, int id) {
    struct vectors_entry *v = &t->entry[id];
    if (!v->at && t->memory.get) v->at = t->memory.get(t->memory.ctx, v->writer);
    return v->at;
}

void pl_vector_bind(struct pl_vectors *t, int id, pl_real *v) {
    t->entry[id].at = v;
}
