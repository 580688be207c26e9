#define _GNU_SOURCE
#include "sys/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/grow.h"
#include "base/status.h"
#include "sys/fpu.h"

#define POOL_IDLE_NS 100000000 /* between two calls of idle() */

struct pool_thread {
    struct pl_pool *pool;
    int index;
    pthread_t id;
};

struct pl_pool {
    pthread_mutex_t lock;
    pthread_cond_t more, done; /* for threads; for the owner */
    struct pl_work **heap;     /* waiting work, smallest (key, seq) first */
    size_t n, room;
    uint64_t seq;
    int window, ahead; /* ahead: running, or done and not collected */
    bool quit;
    void (*idle)(void *ctx); /* NULL: nothing to do */
    void *idle_ctx;

    struct { /* the current pl_pool_each */
        void (*job)(void *arg, int i, int thread);
        void *arg;
        int next, n, n_left;
    } each;

    struct pool_thread *thread;
    int n_threads; /* started, beside the owner; 0: the owner runs everything */
};

/* --- the queue: an indexed binary heap --------------------------------------------------- */

static bool pool_before(const struct pl_work *a, const struct pl_work *b) {
    return a->key != b->key ? a->key < b->key : a->seq < b->seq;
}

static void pool_set(struct pl_pool *p, size_t at, struct pl_work *w) {
    p->heap[at] = w;
    w->at = at;
}

static void pool_place(struct pl_pool *p, size_t at, struct pl_work *w) {
    for (; at > 0 && pool_before(w, p->heap[(at - 1) / 2]); at = (at - 1) / 2)
        pool_set(p, at, p->heap[(at - 1) / 2]);
    for (size_t c; (c = 2 * at + 1) < p->n; at = c) {
        if (c + 1 < p->n && pool_before(p->heap[c + 1], p->heap[c])) c++;
        if (!pool_before(p->heap[c], w)) break;
        pool_set(p, at, p->heap[c]);
    }
    pool_set(p, at, w);
}

static void pool_remove(struct pl_pool *p, struct pl_work *w) {
    size_t at = w->at;
    struct pl_work *last = p->heap[--p->n];
    if (last != w) pool_place(p, at, last);
}

/* --- threads ----------------------------------------------------------------------------- */

/* Runs the most urgent waiting work, if there is any and the window lets it begin. Like the next
 * function it is called with the lock, and leaves it while it runs. */
static bool pool_run_next(struct pl_pool *p, int thread) {
    if (p->n == 0 || p->ahead >= p->window) return false;
    struct pl_work *w = p->heap[0];
    pool_remove(p, w);
    w->state = PL_WORK_RUNNING;
    p->ahead++;
    pthread_mutex_unlock(&p->lock);
    w->run(w, thread);
    pthread_mutex_lock(&p->lock);
    w->state = PL_WORK_DONE;
    return true;
}

/* Runs the next piece of the current pl_pool_each, if there is one. */
static bool pool_run_each(struct pl_pool *p, int thread) {
    if (p->each.next >= p->each.n) return false;
    int i = p->each.next++;
    pthread_mutex_unlock(&p->lock);
    p->each.job(p->each.arg, i, thread);
    pthread_mutex_lock(&p->lock);
    p->each.n_left--;
    return true;
}

/* The owner waits until a thread has finished something, or it is time to call idle(). */
static void pool_wait_done(struct pl_pool *p) {
    struct timespec until;
    if (!p->idle) {
        pthread_cond_wait(&p->done, &p->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POOL_IDLE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&p->done, &p->lock, &until) == 0) return;
    pthread_mutex_unlock(&p->lock);
    p->idle(p->idle_ctx);
    pthread_mutex_lock(&p->lock);
}

static void *pool_main(void *arg) {
    struct pool_thread *t = arg;
    struct pl_pool *p = t->pool;
    pl_fpu_flush();
    pthread_mutex_lock(&p->lock);
    while (!p->quit) {
        if (pool_run_each(p, t->index) || pool_run_next(p, t->index))
            pthread_cond_signal(&p->done);
        else
            pthread_cond_wait(&p->more, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int pl_pool_new(int n_threads, struct pl_pool **out) {
    struct pl_pool *p = calloc(1, sizeof *p);
    if (!p) return PL_ENOMEM;
    p->window = 4 * n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->done, &clock);
    pthread_condattr_destroy(&clock);
    *out = p;
    if (n_threads <= 1) return PL_OK;
    p->thread = calloc((size_t)n_threads, sizeof *p->thread);
    for (int i = 0; p->thread && i < n_threads - 1; i++) {
        /* the owner has index 0, and is one of the threads */
        p->thread[i] = (struct pool_thread){.pool = p, .index = i + 1};
        if (pthread_create(&p->thread[i].id, NULL, pool_main, &p->thread[i])) break;
        p->n_threads++;
    }
    return PL_OK; /* fewer threads than requested are slower but still correct */
}

void pl_pool_free(struct pl_pool *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++) pthread_join(p->thread[i].id, NULL);
    pthread_cond_destroy(&p->more);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p->thread);
    free(p->heap);
    free(p);
}

int pl_pool_size(const struct pl_pool *p) {
    return p->n_threads + 1;
}

void pl_pool_idle(struct pl_pool *p, void (*idle)(void *ctx), void *ctx) {
    p->idle = idle;
    p->idle_ctx = ctx;
}

void pl_pool_window(struct pl_pool *p, int n) {
    pthread_mutex_lock(&p->lock);
    bool wider = n > p->window;
    p->window = n;
    if (wider) pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
}

int pl_pool_submit(struct pl_pool *p, struct pl_work *w, uint64_t key) {
    pthread_mutex_lock(&p->lock);
    if (!PL_GROW(p->heap, p->room, p->n + 1)) {
        pthread_mutex_unlock(&p->lock);
        return PL_ENOMEM;
    }
    atomic_store(&w->cancel, false);
    w->key = key;
    w->seq = p->seq++;
    w->state = PL_WORK_WAITING;
    pool_place(p, p->n++, w);
    if (p->ahead < p->window) pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
    return PL_OK;
}

void pl_pool_wait(struct pl_pool *p, struct pl_work *w) {
    pthread_mutex_lock(&p->lock);
    if (w->state == PL_WORK_WAITING) {
        pool_remove(p, w);
        w->state = PL_WORK_RUNNING;
        p->ahead++;
        pthread_mutex_unlock(&p->lock);
        w->run(w, 0);
        pthread_mutex_lock(&p->lock);
        w->state = PL_WORK_DONE;
    }
    /* another thread is at it: in the meantime this one does what will be needed next */
    while (w->state != PL_WORK_DONE)
        if (!pool_run_next(p, 0)) pool_wait_done(p);
    w->state = PL_WORK_NEW;
    p->ahead--;
    if (p->n > 0) pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
}

void pl_pool_drop(struct pl_pool *p, struct pl_work *w) {
    pthread_mutex_lock(&p->lock);
    if (w->state == PL_WORK_WAITING) {
        pool_remove(p, w);
    } else if (w->state != PL_WORK_NEW) {
        atomic_store(&w->cancel, true);
        while (w->state != PL_WORK_DONE) pthread_cond_wait(&p->done, &p->lock);
        p->ahead--;
        if (p->n > 0) pthread_cond_signal(&p->more);
    }
    w->state = PL_WORK_NEW;
    pthread_mutex_unlock(&p->lock);
}

void pl_pool_each(struct pl_pool *p, int n, void (*job)(void *arg, int i, int thread), void *arg) {
    if (p->n_threads == 0) {
        for (int i = 0; i < n; i++) job(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->each.job = job;
    p->each.arg = arg;
    p->each.next = 0;
    p->each.n = p->each.n_left = n;
    for (int i = 0; i < p->n_threads && i + 1 < n; i++) pthread_cond_signal(&p->more);
    while (p->each.n_left > 0)
        if (!pool_run_each(p, 0)) pool_wait_done(p);
    p->each.n = 0;
    pthread_mutex_unlock(&p->lock);
}

struct pool_call {
    void (*job)(void *arg, int i);
    void *arg;
};

static void pool_call(void *arg, int i, int thread) {
    const struct pool_call *call = arg;
    (void)thread;
    call->job(call->arg, i);
}

void pl_pool_team(void *pool, int n, void (*job)(void *arg, int i), void *arg) {
    struct pool_call call = {job, arg};
    pl_pool_each(pool, n, pool_call, &call);
}

int pl_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

double pl_memory(void) {
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}
