/* Versions of the model: immutable, counted, and their memory used again when nobody holds them.
 * Where workers have parts of the model the newest changes in place, part by part: see store.h. */
#ifndef PL_CORE_VERSIONS_H
#define PL_CORE_VERSIONS_H

#include "core/rule.h"

struct pl_version {
    uint64_t id;    /* commits before it */
    double lr;      /* rate in force when it was made, for workers that take steps of their own */
    pl_real *model; /* [dim] what is evaluated */
    pl_real *lookahead; /* [dim] what workers compute on: model, or the optimizer's look-ahead */
    int n_holders;
    int n_pinned; /* of them, those who want it as it is: see pl_version_pin */
};

/* Where versions live when somebody else must see them: memory for one vector [dim], aligned to 64
 * bytes, or NULL where there is no more. It stays the host's. */
struct pl_vector_alloc {
    pl_real *(*vector)(void *ctx);
    void *ctx;
};

struct pl_versions {
    size_t dim;
    bool looks_ahead;             /* `handed` is another vector than `model` */
    struct pl_vector_alloc alloc; /* vector == NULL: memory of their own */
    struct pl_version **version;  /* every buffer there is */
    int n, room;
};

/* Holds it, and no commit of parts changes it meanwhile. NULL is let go of as well. */
void pl_version_pin(struct pl_version *v);
void pl_version_unpin(struct pl_version *v);

/* `newest`, to be changed in place where nobody has pinned it; else a copy of it that nobody has,
 * and it is released once. NULL: out of memory. */
struct pl_version *pl_versions_alone(struct pl_versions *all, struct pl_version *newest);

/* One that nobody holds; NULL: out of memory. */
struct pl_version *pl_versions_spare(struct pl_versions *all);
void pl_versions_free(struct pl_versions *all);

/* A vector of zeros, aligned to 64 bytes; NULL: out of memory. */
pl_real *pl_vector_new(size_t dim);

#endif
