/* A thread that does one thing at a time on somebody's behalf, while that one goes on: writing a
 * checkpoint, scoring a version.
 *
 * Threads: all but `run` and `done` is called by the owner. */
#ifndef PL_SYS_BACKGROUND_H
#define PL_SYS_BACKGROUND_H

#include <stdbool.h>

struct pl_background;

/* `done` is called on the background's thread after each background; NULL: not. 0 or PL_ENOMEM. */
int pl_background_new(void (*done)(void *ctx), void *ctx, struct pl_background **out);
void pl_background_free(struct pl_background *e); /* waits for what is under way; NULL is fine */

bool pl_background_busy(struct pl_background *e);
void pl_background_send(struct pl_background *e, void (*run)(void *arg),
                        void *arg); /* not while busy */
void pl_background_wait(struct pl_background *e);

#endif
