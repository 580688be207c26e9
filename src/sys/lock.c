#include "sys/lock.h"

#include <pthread.h>
#include <stdlib.h>

struct pl_lock {
    pthread_mutex_t mutex;
};

struct pl_lock *pl_lock_new(void) {
    struct pl_lock *l = malloc(sizeof *l);
    if (l) pthread_mutex_init(&l->mutex, NULL);
    return l;
}

void pl_lock_free(struct pl_lock *l) {
    if (!l) return;
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

void pl_lock_enter(struct pl_lock *l) {
    pthread_mutex_lock(&l->mutex);
}

void pl_lock_leave(struct pl_lock *l) {
    pthread_mutex_unlock(&l->mutex);
}
