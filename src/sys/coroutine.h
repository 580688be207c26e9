/* A function that can be left in the middle and continued later, on a stack of its own.
 *
 * Threads: the one that calls; a coroutine is continued by the thread that began it. */
#ifndef PL_SYS_COROUTINE_H
#define PL_SYS_COROUTINE_H

#include <stdbool.h>

struct pl_coroutine;

int pl_coroutine_new(struct pl_coroutine **out); /* 0 or PL_ENOMEM */
void pl_coroutine_free(struct pl_coroutine *c);  /* NULL is fine; it must not be in the middle */

/* Calls run(arg), or continues it; returns when it leaves or has returned: whether it has left. */
bool pl_coroutine_begin(struct pl_coroutine *c, void (*run)(void *arg), void *arg);
bool pl_coroutine_continue(struct pl_coroutine *c);

/* From inside run(): returns when the coroutine is continued. */
void pl_coroutine_leave(struct pl_coroutine *c);

#endif
