/* The model of a run on blocks, in strips that workers write.
 *
 * If memory is shared, a commit need not copy what a worker has written. The model is a strip for
 * each segment of users and of items. A task on a block reads two of them and writes to two others,
 * which no other task uses. A commit exchanges them: what was written is the model's from then on,
 * and what was replaced is where a later task writes.
 *
 * So no worker ever writes to a strip of the model. One that dies in the middle of a task, is
 * cancelled, or goes on after the server has given it up leaves the model as it was, and the model
 * is complete between any two events.
 *
 * A strip is judged and then used where it lies, so this is for workers that the server started
 * itself: they have the whole segment anyway. Programs of others never work on blocks (api/fit.c).
 *
 * The two strips that a task writes belong to its output vector, for as long as that is held.
 *
 * Threads: all functions are called by the thread that decides. */
#ifndef PL_RUN_STRIPS_H
#define PL_RUN_STRIPS_H

#include "learn/part.h"
#include "transport/transport.h"

struct pl_strips;

/* The slots of a port that the strips of the model take up. */
int pl_strips_slots(const struct pl_job *job);

/* Copies the model w [dim] into strips of the port's memory. `judges`: workers are processes, and
 * the server looks itself whether what they wrote is finite; threads of its own have looked. 0 or
 * PL_ENOMEM. */
int pl_strips_new(const struct pl_job *job, const struct pl_port_ops *ops, struct pl_port *port,
                  const float *w, bool judges, struct pl_strips **out);
void pl_strips_free(struct pl_strips *p); /* NULL is fine */

/* An order for a task on a part, whose output vector is at v: where it reads and writes. 0 or
 * PL_ENOMEM. */
int pl_strips_order(struct pl_strips *p, struct pl_part part, float *v, struct pl_order *order);

/* The latest task whose output vector is at v is applied. Returns false if what it wrote is not
 * finite; then the model stays as it is. */
bool pl_strips_adopt(struct pl_strips *p, const float *v);

void pl_strips_model(const struct pl_strips *p, float *w); /* copies the model to w [dim] */

#endif
