/* A dedicated thread, for code that blocks. Work that only computes goes to a pool. */
#ifndef PL_SYS_THREAD_H
#define PL_SYS_THREAD_H

struct pl_thread;

/* The new thread blocks all signals except faults. Returns 0 or PL_ENOMEM. */
int pl_thread_start(void (*run)(void *arg), void *arg, struct pl_thread **out);
void pl_thread_join(struct pl_thread *t); /* frees it; NULL is allowed */

void pl_yield(void); /* gives the core to another runnable thread */

#endif
