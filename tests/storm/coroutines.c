/* Workers of a storm as coroutines of one thread, and what all parts of a storm use. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storm.h"

#define STACK ((size_t)256 * 1024)

struct storm storm;
static ucontext_t world;

void storm_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "seed %llu at %.6f s, event %llu: ", (unsigned long long)storm.seed,
            (double)storm.now_ns * 1e-9, (unsigned long long)storm.n_events);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nto replay it: STORM_SEED=%llu test_storm\n", (unsigned long long)storm.seed);
    va_end(args);
    _Exit(1);
}

void storm_say(const char *format, ...) {
    if (!storm.verbose) return;
    va_list args;
    va_start(args, format);
    printf("%12.6f  ", (double)(storm.now_ns - storm.opened_ns) * 1e-9);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

bool storm_chance(double p) {
    return pl_rng_unit(&storm.rng) < p;
}

uint64_t storm_draw_ns(uint64_t mean_ns) {
    double x = pl_rng_exp(&storm.rng) * (double)mean_ns;
    return 1 + (uint64_t)(storm_chance(0.05) ? 10 * x : x);
}

uint64_t storm_hash(const float *v, size_t n) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, v + i, sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h | 1;
}

/* --- coroutines ----------------------------------------------------------------------------- */

static void coroutine_main(unsigned i) {
    struct storm_worker *w = &storm.worker[i];
    w->run(w->arg);
    w->made = false;
}

void storm_resume(struct storm_worker *w) {
    w->wake_ns = STORM_NEVER;
    swapcontext(&world, &w->context);
}

void storm_leave(struct storm_worker *w, uint64_t ns) {
    if (w->dead || storm.shutdown) return;
    w->wake_ns = ns == STORM_NEVER ? STORM_NEVER : storm.now_ns + ns * w->slow / 100;
    swapcontext(&w->context, &world);
}

void storm_begin_worker(int worker, int (*run)(void *arg), void *arg) {
    struct storm_worker *w = &storm.worker[worker];
    if (w->made) storm_fail("worker %d is started twice", worker + 1);
    if (!w->stack) w->stack = malloc(STACK);
    w->run = run;
    w->arg = arg;
    w->made = true;
    w->dead = w->failed_start = w->attached = w->waits = false;
    w->frozen_ns = 0;
    w->answered = 0;
    w->slow = storm_chance(0.2) ? 1000 : 100;
    w->last = (struct pl_result){0};
    w->wrote = NULL;
    getcontext(&w->context);
    w->context.uc_stack.ss_sp = w->stack;
    w->context.uc_stack.ss_size = STACK;
    w->context.uc_link = &world;
    makecontext(&w->context, (void (*)(void))coroutine_main, 1, (unsigned)worker);
    w->wake_ns = storm.now_ns + storm_draw_ns(storm.news_ns);
}

void storm_unwind(int worker) {
    struct storm_worker *w = &storm.worker[worker];
    static float trash[1 << 16];
    w->dead = true;
    atomic_store(&w->cancel, true);
    if (w->given) { /* a process that is dead writes nothing */
        w->given->out = trash;
        if (w->given->base) w->given->base = trash;
        for (int i = 0; i < PL_STRIPS; i++) w->given->strip[i].out = trash;
    }
    while (w->made) storm_resume(w);
    w->held.task = 0;
    w->given = NULL;
    w->wake_ns = STORM_NEVER;
    w->frozen_ns = 0;
}
