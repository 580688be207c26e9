#include "sys/coroutine.h"

#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>

#include "paceline.h"

#define COROUTINE_STACK ((size_t)256 * 1024)

struct pl_coroutine {
    ucontext_t caller, inside;
    void (*run)(void *arg);
    void *arg;
    bool left;
    char *stack;
};

int pl_coroutine_new(struct pl_coroutine **out) {
    struct pl_coroutine *c = calloc(1, sizeof *c);
    if (c) c->stack = malloc(COROUTINE_STACK);
    if (!c || !c->stack) {
        free(c);
        return PL_ENOMEM;
    }
    *out = c;
    return PL_OK;
}

void pl_coroutine_free(struct pl_coroutine *c) {
    if (!c) return;
    free(c->stack);
    free(c);
}

/* makecontext passes integers only. */
static void coroutine_main(unsigned high, unsigned low) {
    struct pl_coroutine *c = (void *)(((uintptr_t)high << 16 << 16) | (uintptr_t)low);
    c->run(c->arg);
    c->left = false;
}

static bool coroutine_enter(struct pl_coroutine *c) {
    swapcontext(&c->caller, &c->inside);
    return c->left;
}

bool pl_coroutine_begin(struct pl_coroutine *c, void (*run)(void *arg), void *arg) {
    uintptr_t at = (uintptr_t)c;
    c->run = run;
    c->arg = arg;
    getcontext(&c->inside);
    c->inside.uc_stack.ss_sp = c->stack;
    c->inside.uc_stack.ss_size = COROUTINE_STACK;
    c->inside.uc_link = &c->caller;
    makecontext(&c->inside, (void (*)(void))coroutine_main, 2, (unsigned)(at >> 16 >> 16),
                (unsigned)at);
    return coroutine_enter(c);
}

bool pl_coroutine_continue(struct pl_coroutine *c) {
    return coroutine_enter(c);
}

void pl_coroutine_leave(struct pl_coroutine *c) {
    c->left = true;
    swapcontext(&c->inside, &c->caller);
}
