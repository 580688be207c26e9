/* The layout of a flat vector: named tensors, one after the other, and what applies to some of them
 * only (learning rate, weight decay, buffers). */
#ifndef PL_MODEL_LAYOUT_H
#define PL_MODEL_LAYOUT_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/status.h"

#define PL_SHAPE_MAX 8     /* dimensions of a tensor */
#define PL_TENSOR_NAME 256 /* bytes of its name, with the zero */
#define PL_LAYOUT_TENSORS (1 << 15)

struct pl_layout_tensor {
    char name[PL_TENSOR_NAME];
    enum pl_dtype type;
    int n_dims;
    uint64_t shape[PL_SHAPE_MAX];
    size_t offset, n; /* floats in the vector */
    double lr, decay; /* factors */
    bool buffer;      /* results have new values here, and the update averages them */
};

struct pl_layout {
    struct pl_layout_tensor *tensor;
    size_t n, room;
    size_t dim; /* of the vector */
};

static inline size_t pl_layout_elements(const struct pl_layout_tensor *t) {
    return t->n / pl_dtype_floats(t->type);
}

void pl_layout_free(struct pl_layout *l); /* its content; a zeroed one is fine */

/* Adds a tensor at the end. PL_EUSAGE: its name, type or shape is impossible, or the name is taken;
 * PL_ENOMEM. */
int pl_layout_add(struct pl_layout *l, const struct pl_tensor_info *info, struct pl_why *why);

/* Applies the lines of a text; see pl_setup_layout. */
int pl_layout_rules(struct pl_layout *l, const char *text, struct pl_why *why);

/* Whether a line changed anything. */
bool pl_layout_has_rules(const struct pl_layout *l);

/* The same number for the same names, types and shapes in the same order. Never 0. */
uint64_t pl_layout_fingerprint(const struct pl_layout *l);

#endif
