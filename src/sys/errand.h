/* A thread that does one thing at a time on somebody's behalf, while that one goes on: writing a
 * checkpoint, scoring a version.
 *
 * Threads: all but `run` and `done` is called by the owner. */
#ifndef PL_SYS_ERRAND_H
#define PL_SYS_ERRAND_H

#include <stdbool.h>

struct pl_errand;

/* `done` is called on the errand's thread after each errand; NULL: not. 0 or PL_ENOMEM. */
int pl_errand_new(void (*done)(void *ctx), void *ctx, struct pl_errand **out);
void pl_errand_free(struct pl_errand *e); /* waits for what is under way; NULL is fine */

bool pl_errand_busy(struct pl_errand *e);
void pl_errand_send(struct pl_errand *e, void (*run)(void *arg), void *arg); /* not while busy */
void pl_errand_wait(struct pl_errand *e);

#endif
