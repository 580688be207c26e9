/* The table of vectors. Every vector that a run refers to (a version of the model, a result, the
 * base that a worker computes on) has an id, one writer, and counted readers.
 *
 * A vector is written once, by its writer, and is complete before anybody else reads it. Code that
 * refers to a vector holds it; when the last reader lets go, its memory and its id are used again.
 * So nothing is written while somebody may read it, and nothing is read before it is there.
 *
 * The table counts; it owns no memory. The host supplies memory when the address of a vector is
 * first asked for, and gets it back when nothing holds the vector any more. A run without vectors
 * (timing alone) uses ids without ever asking for an address. */
#ifndef PL_CORE_VECTORS_H
#define PL_CORE_VECTORS_H

#include "core/rule.h"

#define PL_NO_VECTOR (-1)
#define PL_SERVER (-1) /* as a writer: not a worker */

/* Where vectors live. get() returns memory for a vector that `writer` will write, aligned to 64
 * bytes, or NULL if there is no more. put() is called when nothing holds vector `id` any more, and
 * takes its memory back; v is NULL if the address was never asked for. */
struct pl_vector_memory {
    pl_real *(*get)(void *ctx, int writer);
    void (*put)(void *ctx, int id, int writer, pl_real *v);
    void *ctx;
};

struct pl_vectors;

int pl_vectors_new(struct pl_vectors **out); /* 0 or PL_ENOMEM; no memory yet */
/* Sets the memory. With memory NULL the table allocates vectors [dim] itself. */
void pl_vectors_memory(struct pl_vectors *t, size_t dim, const struct pl_vector_memory *memory);
/* Puts back what is still in use, then forgets everything. */
void pl_vectors_free(struct pl_vectors *t);

/* A new vector, held once by the caller. PL_NO_VECTOR: out of memory. */
int pl_vector_add(struct pl_vectors *t, int writer);
void pl_vector_hold(struct pl_vectors *t, int id);
void pl_vector_release(struct pl_vectors *t, int id); /* PL_NO_VECTOR is fine */

int pl_vector_writer(const struct pl_vectors *t, int id);
int pl_vector_n_readers(const struct pl_vectors *t, int id);
int pl_vectors_n(const struct pl_vectors *t); /* ids are below this */

/* The address; memory is obtained when it is first asked for. It is NULL if there is no more. */
pl_real *pl_vector_at(struct pl_vectors *t, int id);
/* Sets the address to memory that the host obtained itself, or to NULL when the host takes it back.
 */
void pl_vector_bind(struct pl_vectors *t, int id, pl_real *v);

/* A vector of zeros, aligned to 64 bytes, for free(). It is NULL if there is no memory. */
pl_real *pl_vector_new(size_t dim);

#endif
