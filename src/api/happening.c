#include "api/happening.h"

#include <math.h>

#include "base/grow.h"

/* The decision of an action; the worker of a verb that has none is not one. */
static struct pl_decision happening_decision(const struct pl_control *c,
                                             const struct pl_action *a) {
    struct pl_decision d = {.what = pl_verb_word(a->verb),
                            .worker = a->worker,
                            .peer = -1,
                            .task = -1,
                            .version = -1,
                            .row = -1,
                            .col = -1};
    const struct pl_member *taken = a->verb == PL_TAKE ? pl_control_taken(c, a) : NULL;
    if (a->verb == PL_COMMIT || a->verb == PL_STOP) d.worker = -1;
    if (a->verb <= PL_DEFER || a->verb == PL_START || a->verb == PL_CANCEL)
        d.task = (int64_t)a->task;
    if (a->verb == PL_BLEND || a->verb == PL_PAIR || a->verb == PL_PUSH) d.peer = a->peer;
    if (a->verb == PL_START || a->verb == PL_COMMIT) d.version = (int64_t)a->version;
    if (a->verb == PL_START) d.row = a->row, d.col = a->col;
    if (taken) d.version = (int64_t)taken->base;
    return d;
}

/* Those of a plan. A commit is followed by the members that it left out. */
static size_t happening_decisions(const struct pl_control *c, const struct pl_plan *plan,
                                  struct pl_decision *out) {
    size_t n = 0, n_group;
    const struct pl_member *group = pl_control_group(c, &n_group);
    for (size_t i = 0; i < plan->n; i++) {
        out[n++] = happening_decision(c, &plan->action[i]);
        if (plan->action[i].verb != PL_COMMIT) continue;
        for (size_t m = 0; m < n_group; m++)
            if (group[m].left_out)
                out[n++] = (struct pl_decision){"reject",
                                                group[m].worker,
                                                -1,
                                                (int64_t)group[m].task,
                                                (int64_t)group[m].base,
                                                -1,
                                                -1};
    }
    return n;
}

int pl_happenings_event(struct pl_happenings *h, const struct pl_control *c,
                        const struct pl_event *e, const struct pl_plan *plan) {
    size_t n_group;
    pl_control_group(c, &n_group);
    if (!PL_GROW(h->decision, h->room, plan->n + n_group)) return PL_ENOMEM;
    bool of_task = e->kind == PL_ARRIVE || e->kind == PL_REJECT || e->kind == PL_BASE_READY;
    struct pl_happening now = {.what = pl_event_word(e->kind),
                               .time_ns = e->now_ns,
                               .worker = pl_event_has_worker(e) ? e->worker : -1,
                               .task = of_task ? (int64_t)e->task : -1,
                               .loss = e->kind == PL_ARRIVE || e->kind == PL_SCORED ? e->loss
                                                                                    : (double)NAN,
                               .decision = h->decision,
                               .n_decisions = happening_decisions(c, plan, h->decision)};
    if (e->kind == PL_SWITCH) {
        pl_control_policy(c, h->policy, sizeof h->policy);
        now.policy = h->policy;
        now.returned = e->samples != 0;
    }
    h->event(h->ctx, &now);
    return PL_OK;
}
