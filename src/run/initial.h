/* The weights that a run begins with, if they are not the model's own: from a safetensors file, a
 * checkpoint, or the program that runs.
 *
 * Threads: any one at a time; holders may be on several. */
#ifndef PL_RUN_INITIAL_H
#define PL_RUN_INITIAL_H

#include <stdatomic.h>

#include "model/model.h"
#include "run/checkpoint.h"

struct pl_initial {
    struct pl_layout layout; /* names, shapes and types, in the order of w */
    float *w;                /* [layout.dim] */
    char *rules;             /* lines for pl_layout_rules that were stored with them; or NULL */
    atomic_int n_holders;
};

/* Both copy everything. */
int pl_initial_tensors(const struct pl_tensor_info *tensor, size_t n, struct pl_initial **out,
                       struct pl_why *why);
int pl_initial_saved(const struct pl_saved *from, struct pl_initial **out, struct pl_why *why);

struct pl_initial *pl_initial_hold(struct pl_initial *i); /* NULL is fine, here and below */
void pl_initial_release(struct pl_initial *i);

/* Fills w [m->dim] in the order of the model. `what` names the weights in the message if names or
 * shapes are not the model's. */
int pl_initial_fit(const struct pl_initial *i, const char *what, const struct pl_model *m, float *w,
                   struct pl_why *why);

/* Writes tensors, and rules if they are not NULL, into a file that pl_checkpoint_read reads. */
int pl_initial_write(const char *path, const struct pl_tensor_info *tensor, size_t n,
                     const char *rules, struct pl_why *why);

#endif
