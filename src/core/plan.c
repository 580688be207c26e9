#include "core/plan.h"

static void plan_say(struct pl_plan *p, struct pl_action a) {
    if (p->n == p->room)
        p->overflow = true;
    else
        p->action[p->n++] = a;
}

void pl_take(struct pl_plan *p, double factor) {
    plan_say(p, (struct pl_action){.verb = PL_TAKE, .factor = factor});
}

void pl_drop(struct pl_plan *p) {
    plan_say(p, (struct pl_action){.verb = PL_DROP});
}

void pl_commit(struct pl_plan *p, double factor) {
    plan_say(p, (struct pl_action){.verb = PL_COMMIT, .factor = factor});
}

void pl_start(struct pl_plan *p, int worker, enum pl_from from) {
    plan_say(p, (struct pl_action){.verb = PL_START, .worker = worker, .from = from});
}

void pl_cancel(struct pl_plan *p, int worker) {
    plan_say(p, (struct pl_action){.verb = PL_CANCEL, .worker = worker});
}

void pl_stop(struct pl_plan *p) {
    plan_say(p, (struct pl_action){.verb = PL_STOP});
}

void pl_start_idle(struct pl_plan *p, const struct pl_view *v) {
    for (int i = v->idle; i >= 0; i = pl_next(v, i)) pl_start(p, i, PL_FETCH);
}

void pl_restart_busy(struct pl_plan *p, const struct pl_view *v) {
    for (int i = v->busy; i >= 0; i = pl_next(v, i)) {
        pl_cancel(p, i);
        pl_start(p, i, PL_FETCH);
    }
}
