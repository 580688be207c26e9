/* A model in blocks: the policy has a grid, and a task is on one block of it (learn/part.h).
 *
 * The model is a strip for each segment of rows and of columns. A task reads two of them and
 * writes to two others, which no other task uses. A commit exchanges them: what was written is the
 * model's from then on, and what was replaced is where a later task writes. Nothing is copied.
 *
 * So no worker ever writes to a strip of the model. One that dies in the middle of a task, is
 * cancelled, or goes on after the server has given it up leaves the model as it was, and the model
 * is complete between any two events.
 *
 * A strip is judged and then used where it lies, so this is for workers that the server started
 * itself. Clients never work on blocks (api/fit.c).
 *
 * The two strips that a task writes belong to its output vector. Such vectors are never given back
 * to the host: when nothing else holds one, the next task writes to its strips. */
#ifndef PL_ENGINE_BLOCKS_H
#define PL_ENGINE_BLOCKS_H

#include "base/strip.h"
#include "core/vectors.h"
#include "learn/part.h"

struct pl_blocks;

/* Copies the model w [dim] into vectors of the table, which have pl_part_most() elements. 0 or
 * PL_ENOMEM. */
int pl_blocks_new(const struct pl_job *job, struct pl_vectors *vectors, const float *w,
                  struct pl_blocks **out);
void pl_blocks_free(struct pl_blocks *b); /* NULL is fine */

/* An output vector that is not in use, held for the caller. PL_NO_VECTOR: out of memory. */
int pl_blocks_output(struct pl_blocks *b, int worker);
/* Where a task on a part reads and writes, with this output vector. Returns the number of strips.
 */
int pl_blocks_strips(const struct pl_blocks *b, struct pl_part part, int output,
                     struct pl_strip strip[PL_STRIPS]);
/* What a task on a part has written becomes the model's. Returns false if it is not finite; then
 * the model stays as it is. A result that `is_finite` is not read. */
bool pl_blocks_adopt(struct pl_blocks *b, struct pl_part part, int output, bool is_finite);

void pl_blocks_model(const struct pl_blocks *b, float *w); /* copies the model to w [dim] */

#endif
