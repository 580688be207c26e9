#include "core/twin.h"

#include <math.h>

#include "base/heap.h"
#include "base/seconds.h"
#include "core/control.h"

#define TWIN_WARM 20     /* updates before it counts */
#define TWIN_UPDATES 100 /* updates that count, */
#define TWIN_EVENTS 4000 /* but no more results than this; a few updates in any case */
#define TWIN_FEW 4

struct twin {
    const struct pl_twin_conf *conf;
    struct pl_control *control;
    struct pl_heap heap;
    uint64_t n_played;                         /* results so far */
    uint64_t n_updates, from_updates, from_ns; /* updates so far; when it began to count */
    double lag, members;                       /* of the updates that count */
};

static const struct pl_opt twin_opts[] = {PL_OPT_END};
static const struct pl_tuner twin_tuner = {.id = {"twin", "", "", twin_opts, 0, 0}};

static void twin_count(struct twin *t, uint64_t now_ns) {
    size_t n;
    const struct pl_member *member = pl_control_group(t->control, &n);
    t->n_updates++;
    if (t->n_updates <= t->from_updates) t->from_ns = now_ns;
    if (t->n_updates <= t->from_updates) return;
    for (size_t i = 0; i < n; i++) t->lag += (double)member[i].lag;
    t->members += (double)n;
}

/* One event, and the tasks that it starts. A result whose task was cancelled has no effect. */
static int twin_event(struct twin *t, const struct pl_event *e, struct pl_why *why) {
    const struct pl_plan *plan;
    int rc = pl_control_step(t->control, e, &plan, why);
    for (size_t i = 0; !rc && i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        if (a->verb == PL_COMMIT) twin_count(t, e->now_ns);
        if (a->verb != PL_START) continue;
        double ns = 1e9 * t->conf->draw(t->conf->ctx, a->worker);
        uint64_t when_ns = e->now_ns + (ns >= 0 && ns < 1e15 ? (uint64_t)ns : (uint64_t)1e15);
        if (pl_heap_push(&t->heap, when_ns, 0, a->worker, a->task))
            rc = pl_fail(why, PL_ENOMEM, "out of memory for a forecast");
    }
    return rc;
}

static int twin_loop(struct twin *t, uint64_t *now_ns, struct pl_why *why) {
    int rc = PL_OK;
    t->from_updates = TWIN_WARM;
    for (int i = 0; !rc && i < t->conf->n_workers; i++)
        rc = twin_event(t, &(struct pl_event){.kind = PL_JOIN, .worker = i}, why);
    for (; !rc && t->n_updates < t->from_updates + TWIN_UPDATES; t->n_played++) {
        uint64_t n = t->n_played;
        if (n >= TWIN_EVENTS && t->n_updates >= t->from_updates + TWIN_FEW) break;
        if (n == TWIN_EVENTS / 2 && t->n_updates < TWIN_WARM) { /* updates take many results */
            t->from_updates = t->n_updates;
            t->from_ns = *now_ns;
        }
        if (n >= 16 * TWIN_EVENTS || !pl_heap_top(&t->heap)) break;
        struct pl_timed next = pl_heap_pop(&t->heap);
        *now_ns = next.when_ns;
        struct pl_event e = {.kind = PL_ARRIVE,
                             .now_ns = next.when_ns,
                             .worker = next.who,
                             .task = next.task,
                             .samples = 1,
                             .loss = NAN};
        rc = twin_event(t, &e, why);
    }
    return rc;
}

int pl_twin_run(const struct pl_twin_conf *conf, struct pl_forecast *out, struct pl_why *why) {
    struct twin t = {.conf = conf};
    struct pl_control_conf control = {.policy = conf->policy,
                                      .tuner = &twin_tuner,
                                      .policy_conf = conf->policy_conf,
                                      .n_workers = conf->n_workers};
    uint64_t now_ns = 0;
    int rc = pl_control_new(&control, &t.control, why);
    if (!rc) rc = twin_loop(&t, &now_ns, why);
    double n = t.n_updates > t.from_updates ? (double)(t.n_updates - t.from_updates) : NAN;
    *out = (struct pl_forecast){pl_seconds(now_ns - t.from_ns) / n, t.lag / t.members,
                                t.members / n, t.n_played};
    pl_heap_free(&t.heap);
    pl_control_free(t.control);
    return rc;
}
