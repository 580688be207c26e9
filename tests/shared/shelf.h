/* An archive in memory: pieces by name. */
#ifndef PL_TESTS_SHELF_H
#define PL_TESTS_SHELF_H

#include "core/archive.h"
#include "test.h"

#define SHELF_PIECES 64

struct shelf {
    struct {
        char name[64];
        void *bytes;
        size_t n;
    } piece[SHELF_PIECES];
    int n;
    bool restoring;
};

static inline size_t shelf_piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
                                 size_t n) {
    struct shelf *s = ctx;
    size_t size = pl_archive_size(kind);
    for (int i = 0; s->restoring && i < s->n; i++) {
        if (strcmp(s->piece[i].name, name) != 0) continue;
        memcpy(v, s->piece[i].bytes, (s->piece[i].n < n ? s->piece[i].n : n) * size);
        return s->piece[i].n;
    }
    if (s->restoring) return 0;
    assert_true(s->n < SHELF_PIECES);
    snprintf(s->piece[s->n].name, sizeof s->piece[s->n].name, "%s", name);
    s->piece[s->n].bytes = malloc(n * size + 1);
    assert_non_null(s->piece[s->n].bytes);
    memcpy(s->piece[s->n].bytes, v, n * size);
    s->piece[s->n++].n = n;
    return n;
}

static inline struct pl_archive shelf_archive(struct shelf *s, bool restoring) {
    s->restoring = restoring;
    return (struct pl_archive){restoring, s, shelf_piece};
}

static inline void shelf_clear(struct shelf *s) {
    for (int i = 0; i < s->n; i++) free(s->piece[i].bytes);
    *s = (struct shelf){0};
}

#endif
