/* A thread that runs one job at a time while its owner continues: writing a checkpoint, evaluating
 * a version.
 *
 * Threads: the owner calls everything; `run` and `done` execute on the background thread. */
#ifndef PL_SYS_BACKGROUND_H
#define PL_SYS_BACKGROUND_H

#include <stdbool.h>

struct pl_background;

/* `done`, if not NULL, runs on the background thread after each job. Returns 0 or PL_ENOMEM. */
int pl_background_new(void (*done)(void *ctx), void *ctx, struct pl_background **out);
void pl_background_free(struct pl_background *e); /* waits for the current job; NULL is allowed */

bool pl_background_busy(struct pl_background *e);
void pl_background_send(struct pl_background *e, void (*run)(void *arg),
                        void *arg); /* must not be busy */
void pl_background_wait(struct pl_background *e);

#endif
