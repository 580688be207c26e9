/* Threads that run a queue of work in order of urgency.
 *
 * The owner (one thread) submits work with a key, waits for it when it needs the result, or drops
 * it. Threads take the waiting work with the smallest key. At most `window` pieces of work are
 * running, or finished and not yet collected. The owner is one of the threads: while it waits, it
 * runs what it waits for, or else the most urgent work, so that a pool keeps as many cores busy as
 * it has threads and no more. With one thread it runs everything.
 *
 * Threads: run() executes on pool threads, or on the owner inside pl_pool_wait. The owner calls
 * everything else. */
#ifndef PL_SYS_POOL_H
#define PL_SYS_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum pl_work_state { PL_WORK_NEW, PL_WORK_WAITING, PL_WORK_RUNNING, PL_WORK_DONE };

struct pl_work {
    void (*run)(struct pl_work *w, int thread); /* thread: 0 … pl_pool_size() - 1 */
    atomic_bool cancel;                         /* set when the result is no longer wanted */
    enum pl_work_state state;                   /* from here on private to the pool */
    uint64_t key, seq;
    size_t at;
};

struct pl_pool;
/* `n_threads` with the owner. 0 or PL_ENOMEM. */
int pl_pool_new(int n_threads, struct pl_pool **out);
void pl_pool_free(struct pl_pool *p); /* the queue must be empty */

/* The number of distinct thread indices that run() may see. */
int pl_pool_size(const struct pl_pool *p);

/* While the owner has nothing to run and waits for the threads, it calls idle(ctx) a few times a
 * second. */
void pl_pool_idle(struct pl_pool *p, void (*idle)(void *ctx), void *ctx);

void pl_pool_window(struct pl_pool *p, int n);
int pl_pool_submit(struct pl_pool *p, struct pl_work *w, uint64_t key); /* 0 or PL_ENOMEM */
void pl_pool_wait(struct pl_pool *p, struct pl_work *w);
void pl_pool_drop(struct pl_pool *p, struct pl_work *w); /* any state; NEW afterwards */

/* Runs job(arg, i, thread) for i in 0 … n-1, in any order, on all threads, ahead of queued work.
 * Returns when all are done. */
void pl_pool_each(struct pl_pool *p, int n, void (*job)(void *arg, int i, int thread), void *arg);

/* The same for a job that does not need the thread index; `pool` is a struct pl_pool. */
void pl_pool_team(void *pool, int n, void (*job)(void *arg, int i), void *arg);

double pl_memory(void); /* physical memory of the machine in bytes */

#endif
