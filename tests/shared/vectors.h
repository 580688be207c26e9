/* What tests ask about a table of vectors. */
#ifndef PL_TESTS_VECTORS_H
#define PL_TESTS_VECTORS_H

#include "core/vectors.h"

/* The number of vectors that somebody holds. */
static inline int vectors_in_use(const struct pl_vectors *t) {
    int n = 0;
    for (int id = 0; id < pl_vectors_n(t); id++) n += pl_vector_n_readers(t, id) > 0;
    return n;
}

#endif
