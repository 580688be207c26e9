#include "sys/background.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/status.h"
#include "sys/thread.h"

struct pl_background {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct pl_thread *thread;
    void (*run)(void *arg); /* NULL: nothing to do */
    void *arg;
    bool over;
    void (*done)(void *ctx);
    void *ctx;
};

static void background_thread(void *arg) {
    struct pl_background *e = arg;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->run && !e->over) pthread_cond_wait(&e->changed, &e->lock);
        if (!e->run) break;
        pthread_mutex_unlock(&e->lock);
        e->run(e->arg);
        pthread_mutex_lock(&e->lock);
        e->run = NULL;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
        if (e->done) e->done(e->ctx);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
}

int pl_background_new(void (*done)(void *ctx), void *ctx, struct pl_background **out) {
    struct pl_background *e = calloc(1, sizeof *e);
    if (!e) return PL_ENOMEM;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->done = done;
    e->ctx = ctx;
    if (pl_thread_start(background_thread, e, &e->thread)) {
        free(e);
        return PL_ENOMEM;
    }
    *out = e;
    return PL_OK;
}

void pl_background_free(struct pl_background *e) {
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->over = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    pl_thread_join(e->thread);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
}

bool pl_background_busy(struct pl_background *e) {
    pthread_mutex_lock(&e->lock);
    bool busy = e->run != NULL;
    pthread_mutex_unlock(&e->lock);
    return busy;
}

void pl_background_send(struct pl_background *e, void (*run)(void *arg), void *arg) {
    pthread_mutex_lock(&e->lock);
    e->run = run;
    e->arg = arg;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

void pl_background_wait(struct pl_background *e) {
    pthread_mutex_lock(&e->lock);
    while (e->run) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}
