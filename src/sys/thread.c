#include "sys/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "base/status.h"
#include "sys/numerals.h"

struct pl_thread {
    pthread_t id;
    void (*run)(void *arg);
    void *arg;
};

static void *thread_main(void *arg) {
    struct pl_thread *t = arg;
    PL_NUMERALS;
    t->run(t->arg);
    return NULL;
}

int pl_thread_start(void (*run)(void *arg), void *arg, struct pl_thread **out) {
    struct pl_thread *t = malloc(sizeof *t);
    if (!t) return PL_ENOMEM;
    *t = (struct pl_thread){.run = run, .arg = arg};
    /* a thread inherits the signal mask; only its own faults stay unblocked */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&t->id, NULL, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(t);
        return PL_ENOMEM;
    }
    *out = t;
    return PL_OK;
}

void pl_thread_join(struct pl_thread *t) {
    if (!t) return;
    pthread_join(t->id, NULL);
    free(t);
}

void pl_yield(void) {
    sched_yield();
}
