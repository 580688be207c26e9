#include "timing/ahead.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

#define AHEAD_WORKERS 1024 /* of more workers, tasks are drawn one by one */
/* Relative error of nanoseconds that are computed from PL_RNG_EXP_ERROR: four operations follow,
 * with half an ulp each, and as many in the exact computation. The rest is a margin. */
#define AHEAD_ERROR (10 * PL_RNG_EXP_ERROR)

int pl_ahead_init(struct pl_ahead *a, const struct pl_delay *delay, int n_workers, uint64_t seed,
                  uint32_t steps) {
    struct pl_delay_look look;
    bool together = steps == 1 && n_workers <= AHEAD_WORKERS;
    *a = (struct pl_ahead){.delay = delay, .seed = seed, .steps = steps};
    for (int i = 0; together && i < n_workers; i++) {
        pl_delay_look(delay, (uint32_t)i, &look);
        together = look.kind == PL_DELAY_EXP || look.kind == PL_DELAY_SHIFTEXP;
    }
    if (!together) return PL_OK;
    a->worker = malloc((size_t)n_workers * sizeof *a->worker);
    if (!a->worker) return PL_ENOMEM;
    for (int i = 0; i < n_workers; i++) a->worker[i].first = UINT64_MAX / 2; /* nothing is drawn */
    return PL_OK;
}

void pl_ahead_free(struct pl_ahead *a) {
    free(a->worker);
    a->worker = NULL;
}

/* The plain version. */
static uint64_t ahead_one(const struct pl_ahead *a, uint32_t worker, uint64_t task) {
    return pl_delay_ns(pl_delay_draw(a->delay, a->seed, worker, task, a->steps));
}

/* Approximate exponential numbers are rounded to nanoseconds. If the exact one might be rounded to
 * another, because a half is too near, it is computed too: about one in 50,000 if a task takes a
 * second. So no number depends on the approximation. */
uint64_t pl_ahead_draw(struct pl_ahead *a, uint32_t worker, uint64_t task) {
    struct pl_delay_look look;
    double x[PL_RNG_LANES];
    if (!a->worker) return ahead_one(a, worker, task);
    pl_delay_look(a->delay, worker, &look);
    double shift = look.kind == PL_DELAY_EXP ? 0 : look.a;
    double mean = look.kind == PL_DELAY_EXP ? look.a : look.b;
    struct pl_ahead_worker *w = &a->worker[worker];
    w->first = task;
    pl_rng_exps(a->seed, PL_STREAM_DELAY, worker, task, x);
    for (uint32_t i = 0; i < PL_RNG_LANES; i++) {
        double ns = look.speed * (shift + mean * x[i]) * 1e9;
        bool small = ns < 0.5e9 * PL_DELAY_MAX; /* longer draws may be cut */
        double whole = small ? (double)(int64_t)ns : 0;
        bool sure = small && fabs(ns - whole - 0.5) > AHEAD_ERROR * ns;
        w->ns[i] =
            sure ? (uint64_t)(int64_t)whole + (ns - whole >= 0.5) : ahead_one(a, worker, task + i);
    }
    return w->ns[0];
}
