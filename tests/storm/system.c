/* What the server calls of src/sys, on the virtual clock. The linker puts these in place of the
 * functions without __wrap_ (see CMakeLists.txt). */
#include <stdio.h>
#include <string.h>

#include "storm.h"
#include "sys/background.h"
#include "sys/clock.h"
#include "sys/process.h"

#define FIRST_PID 1000

uint64_t __wrap_pl_now_ns(void);
double __wrap_pl_wall_seconds(void);
void __wrap_pl_sleep_ns(uint64_t ns);
int __wrap_pl_process_start(const char *name, int (*run)(void *arg), void *arg);
void __wrap_pl_process_kill(int pid);
void __wrap_pl_process_end(int pid, char *how, size_t max);
void __wrap_pl_process_await(int pid, unsigned long wait_ns, char *how, size_t max);
bool __wrap_pl_process_stopped(int pid);
int __wrap_pl_background_new(void (*done)(void *ctx), void *ctx, struct pl_background **out);
void __wrap_pl_background_free(struct pl_background *b);
bool __wrap_pl_background_busy(struct pl_background *b);
void __wrap_pl_background_send(struct pl_background *b, void (*run)(void *arg), void *arg);
void __wrap_pl_background_wait(struct pl_background *b);
int __wrap_pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx);
int __real_pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx);

/* --- the clock ------------------------------------------------------------------------------ */

uint64_t __wrap_pl_now_ns(void) {
    return storm.now_ns;
}

double __wrap_pl_wall_seconds(void) {
    return 1e9 + (double)storm.now_ns * 1e-9;
}

/* The world goes on while the server sleeps; news wait. */
void __wrap_pl_sleep_ns(uint64_t ns) {
    uint64_t until = storm.now_ns + ns;
    storm_run_until(until);
    if (storm.now_ns < until) storm.now_ns = until;
}

/* --- processes ------------------------------------------------------------------------------ */

static int system_worker(int pid) {
    int worker = pid - FIRST_PID;
    if (worker < 0 || worker >= storm.n_workers) storm_fail("there is no process %d", pid);
    return worker;
}

int __wrap_pl_process_start(const char *name, int (*run)(void *arg), void *arg) {
    if (storm.faults[STORM_NO_START] && storm.n_events > 0 && storm.now_ns < storm.calm_ns &&
        storm_chance(0.1)) {
        storm.counts.failed_starts++;
        storm_say("no process for worker %d", storm.expecting + 1);
        return PL_ENOMEM;
    }
    storm_begin_worker(storm.expecting, run, arg);
    return FIRST_PID + storm.expecting;
}

void __wrap_pl_process_kill(int pid) {
    storm_kill(system_worker(pid));
}

static void system_how(int worker, char *how, size_t max) {
    snprintf(how, max, storm.worker[worker].dead ? "was killed by signal 9 (Killed)" : "left");
}

void __wrap_pl_process_end(int pid, char *how, size_t max) {
    int worker = system_worker(pid);
    if (storm.worker[worker].made) storm_unwind(worker);
    system_how(worker, how, max);
}

void __wrap_pl_process_await(int pid, unsigned long wait_ns, char *how, size_t max) {
    __wrap_pl_process_end(pid, how, max);
}

bool __wrap_pl_process_stopped(int pid) {
    return storm.worker[system_worker(pid)].frozen_ns != 0;
}

/* --- background threads --------------------------------------------------------------------- */

/* A job runs as late as it may: what it reads must not have changed by then. */
int __wrap_pl_background_new(void (*done)(void *ctx), void *ctx, struct pl_background **out) {
    for (size_t i = 0; i < sizeof storm.background / sizeof *storm.background; i++) {
        struct pl_background *b = &storm.background[i];
        if (b->used) continue;
        *b = (struct pl_background){.used = true, .done = done, .ctx = ctx};
        *out = b;
        return PL_OK;
    }
    return PL_ENOMEM;
}

void __wrap_pl_background_wait(struct pl_background *b) {
    void (*run)(void *arg) = b->run;
    if (!run) return;
    run(b->arg);
    b->run = NULL;
    if (b->done) b->done(b->ctx);
}

void __wrap_pl_background_free(struct pl_background *b) {
    if (!b) return;
    __wrap_pl_background_wait(b);
    b->used = false;
}

/* A server that sleeps and looks again sees the end of what it sent when that is due. */
bool __wrap_pl_background_busy(struct pl_background *b) {
    if (b->run && storm.now_ns >= b->at_ns) __wrap_pl_background_wait(b);
    return b->run != NULL;
}

void __wrap_pl_background_send(struct pl_background *b, void (*run)(void *arg), void *arg) {
    b->run = run;
    b->arg = arg;
    b->at_ns = storm.now_ns + storm_draw_ns(10 * storm.task_ns);
}

/* --- the event log -------------------------------------------------------------------------- */

/* The first listener of a run is the storm's. */
int __wrap_pl_control_on_event(struct pl_control *c, pl_control_log *log, void *ctx) {
    if (storm.open && storm.control != c) {
        storm.control = c;
        __real_pl_control_on_event(c, storm_event, NULL);
    }
    return __real_pl_control_on_event(c, log, ctx);
}
