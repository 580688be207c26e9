/* The scorer: evaluates a version while the run continues.
 *
 * Threads: the one that decides calls all functions; the scoring itself runs on the scorer's own
 * threads. */
#ifndef PL_RUN_SCORER_H
#define PL_RUN_SCORER_H

#include "learn/task.h"

struct pl_scorer;

/* `done` is called, on another thread, when a score is ready. */
int pl_scorer_new(const struct pl_job *job, void (*done)(void *ctx), void *ctx,
                  struct pl_scorer **out);
void pl_scorer_free(struct pl_scorer *s); /* NULL is fine */

bool pl_scorer_busy(struct pl_scorer *s);
void pl_scorer_send(struct pl_scorer *s, const float *w); /* w must not change until then */
struct pl_score pl_scorer_wait(struct pl_scorer *s);      /* of what was sent last */
void pl_scorer_give_up(struct pl_scorer *s); /* waits; what was sent last has no score */

#endif
