/* A thread of one's own, for code that blocks. Work that only computes goes to a pool. */
#ifndef PL_SYS_THREAD_H
#define PL_SYS_THREAD_H

struct pl_thread;

/* All signals stay with the threads that were there before. 0 or PL_ENOMEM. */
int pl_thread_start(void (*run)(void *arg), void *arg, struct pl_thread **out);
void pl_thread_join(struct pl_thread *t); /* NULL is fine; frees it */

void pl_yield(void); /* lets somebody else have the core, where somebody wants it */

#endif
