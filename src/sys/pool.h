/* Threads that work through a queue in order of urgency.
 *
 * The owner (one thread) submits pieces of work with a key, waits for a piece when it needs its
 * result, or drops one it no longer needs. Threads take the waiting piece with the smallest key,
 * but never run further ahead than the window: at most that many pieces are running or finished
 * and not yet collected. With one thread there are no others: waiting runs the piece at once.
 *
 * Threads: run() executes on pool threads, or on the owner inside pl_pool_wait. All else is called
 * by the owner. */
#ifndef PL_SYS_POOL_H
#define PL_SYS_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum pl_work_state { PL_WORK_NEW, PL_WORK_WAITING, PL_WORK_RUNNING, PL_WORK_DONE };

struct pl_work {
    void (*run)(struct pl_work *w, int thread); /* thread: 0 … pl_pool_size() - 1 */
    atomic_bool cancel;                         /* set when the result is no longer wanted */
    enum pl_work_state state;                   /* the pool's own from here on */
    uint64_t key, seq;
    size_t at;
};

struct pl_pool;
int pl_pool_new(int n_threads, struct pl_pool **out); /* 0 or PL_ENOMEM */
void pl_pool_free(struct pl_pool *p);                 /* nothing may be submitted any more */

/* Number of distinct thread indices that run() may see. */
int pl_pool_size(const struct pl_pool *p);

void pl_pool_window(struct pl_pool *p, int n);
int pl_pool_submit(struct pl_pool *p, struct pl_work *w, uint64_t key); /* 0 or PL_ENOMEM */
void pl_pool_wait(struct pl_pool *p, struct pl_work *w);
void pl_pool_drop(struct pl_pool *p, struct pl_work *w); /* any state; NEW afterwards */

/* Runs job(arg, i, thread) for i in 0 … n-1, in any order, on all threads; returns when all are
 * done. Goes before everything that waits. */
void pl_pool_each(struct pl_pool *p, int n, void (*job)(void *arg, int i, int thread), void *arg);

/* The same for a job that does not ask which thread it is on; `pool` is a struct pl_pool. */
void pl_pool_team(void *pool, int n, void (*job)(void *arg, int i), void *arg);

int pl_cores(void);     /* cores this process may use */
double pl_memory(void); /* bytes of memory the machine has */

#endif
