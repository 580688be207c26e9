/* Control driven by hand or at random, for tests of what listens to the event log. */
#ifndef PL_TESTS_LOG_RUNS_H
#define PL_TESTS_LOG_RUNS_H

#include "choices.h"
#include "core/recipe.h"

#define N_WORKERS 9 /* at most */

static struct pl_why why;

static struct pl_rng *leaves_out; /* if set, commits leave members out at random */

static inline void step(struct pl_control *c, struct pl_event e) {
    const struct pl_plan *plan;
    size_t n;
    if (pl_control_decide(c, &e, &plan, &why)) fail_msg("%s", why.text);
    for (size_t i = 0; leaves_out && i < plan->n; i++)
        if (plan->action[i].verb == PL_COMMIT) {
            pl_control_group(c, &n);
            if (pl_rng_below(leaves_out, 3) == 0)
                pl_control_leave_out(c, pl_rng_below(leaves_out, (uint32_t)n));
        }
    pl_control_carried_out(c, &e, plan);
}

/* Worker numbers from 1 and seconds, for stories. */
static inline void at(struct pl_control *c, double now, enum pl_event_kind kind, int worker,
                      double comm) {
    step(c, (struct pl_event){.kind = kind,
                              .now_ns = (uint64_t)llround(now * 1e9),
                              .worker = worker - 1,
                              .task = pl_control_view(c)->worker[worker - 1].task,
                              .comm_ns = (uint64_t)llround(comm * 1e9),
                              .samples = 8,
                              .loss = 0.5});
}

/* Anything that can happen next; returns its time. */
static inline uint64_t random_event(struct pl_control *c, struct pl_rng *r, uint64_t now_ns) {
    const struct pl_view *v = pl_control_view(c);
    if (pl_rng_below(r, 4)) now_ns += pl_rng_below(r, 1u << 30);
    struct pl_event e = {.now_ns = now_ns, .worker = (int)pl_rng_below(r, (uint32_t)v->n_workers)};
    const struct pl_worker *w = &v->worker[e.worker];
    e.task = w->task;
    e.comm_ns = pl_rng_below(r, 1u << 29);
    e.samples = 1 + pl_rng_below(r, 9);
    e.loss = 2 * pl_rng_unit(r);
    uint32_t dice = pl_rng_below(r, 20);
    e.kind = dice == 0 ? PL_LEAVE : dice == 1 ? PL_REJECT : PL_ARRIVE;
    if (w->state == PL_GONE) e.kind = dice < 10 ? PL_JOIN : PL_ARRIVE;
    uint64_t version = v->version;
    step(c, e);
    if (pl_control_measures(c) && v->version != version)
        step(c, (struct pl_event){.kind = PL_MEASURED, .now_ns = now_ns, .measure = {.dot = 0.1}});
    return now_ns;
}

/* Calls `run` with a new control for every method, a few times each. */
static inline void for_every_method(void (*run)(struct pl_control *c, int n, struct pl_rng *r)) {
    uint64_t nth = 0;
    for (const struct pl_entry *const *e = pl_recipe_family.table; *e; e++)
        for (int round = 0; round < (sanitized ? 3 : 20); round++) {
            size_t owned = n_owned();
            const struct pl_recipe *recipe;
            char spec[PL_N_COLUMNS][PL_SPEC_MAX];
            struct pl_rng r;
            pl_rng_init(&r, test_seed, PL_STREAM_TEST, 7, nth++);
            int n = 1 + (int)pl_rng_below(&r, N_WORKERS);
            assert_int_equal(pl_recipe_resolve((*e)->name, &recipe, spec, &why), 0);
            struct pl_control *c =
                control_of(spec[PL_COLUMN_POLICY], spec[PL_COLUMN_TUNER], n, test_seed);
            run(c, n, &r);
            release_owned(owned);
        }
}

static inline void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want)))) fail_msg("%.12g is not %.12g", got, want);
}

#endif
