#include "core/plan.h"

#define PLAN_DRAWS 64 /* random draws of a peer, before the next one that is alive is used */

/* Returns the new action, or NULL if there is no room. The caller writes what else its verb has. */
static struct pl_action *plan_add(struct pl_plan *p, enum pl_verb verb, int worker, double factor) {
    if (p->n == p->room) {
        p->overflow = true;
        return NULL;
    }
    struct pl_action *a = &p->action[p->n++];
    a->verb = verb;
    a->worker = worker;
    a->factor = factor;
    return a;
}

static void plan_start(struct pl_plan *p, int worker, enum pl_from from, int row, int col) {
    struct pl_action *a = plan_add(p, PL_START, worker, 0);
    if (!a) return;
    a->from = from;
    a->row = row;
    a->col = col;
}

void pl_take(struct pl_plan *p, double factor) {
    plan_add(p, PL_TAKE, PL_ARRIVED, factor);
}

void pl_take_deferred(struct pl_plan *p, int worker, double factor) {
    plan_add(p, PL_TAKE, worker, factor);
}

void pl_defer(struct pl_plan *p) {
    plan_add(p, PL_DEFER, PL_ARRIVED, 0);
}

void pl_drop(struct pl_plan *p) {
    plan_add(p, PL_DROP, PL_ARRIVED, 0);
}

void pl_commit(struct pl_plan *p, double factor) {
    plan_add(p, PL_COMMIT, 0, factor);
}

void pl_start(struct pl_plan *p, int worker, enum pl_from from) {
    plan_start(p, worker, from, -1, -1);
}

void pl_start_part(struct pl_plan *p, int worker, int row, int col) {
    plan_start(p, worker, PL_FETCH, row, col);
}

void pl_cancel(struct pl_plan *p, int worker) {
    plan_add(p, PL_CANCEL, worker, 0);
}

void pl_stop(struct pl_plan *p) {
    plan_add(p, PL_STOP, 0, 0);
}

void pl_timer(struct pl_plan *p, uint64_t when_ns) {
    p->timed = true;
    p->timer_ns = when_ns;
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

int pl_draw_peer(const struct pl_view *v, int worker, enum pl_draw among) {
    bool half = among == PL_OTHER_HALF;
    int n = v->n_workers, first = half ? 1 - worker % 2 : 0, at = 0;
    int n_others = half ? (n - first + 1) / 2 : n - 1;
    if (n_others == 0) return -1;
    for (int i = 0; i < PLAN_DRAWS + n_others; i++) {
        at = i < PLAN_DRAWS ? (int)pl_rng_below(v->rng, (uint32_t)n_others) : (at + 1) % n_others;
        int peer = half ? first + 2 * at : (worker + 1 + at) % n;
        if (pl_alive(v, peer)) return peer;
    }
    return -1;
}

static void plan_exchange(struct pl_plan *p, enum pl_verb verb, int worker, int peer, double keep,
                          double factor) {
    struct pl_action *a = plan_add(p, verb, worker, factor);
    if (!a) return;
    a->peer = peer;
    a->keep = keep;
}

void pl_blend(struct pl_plan *p, int worker, int peer, double a, double b) {
    plan_exchange(p, PL_BLEND, worker, peer, a, b);
}

void pl_pair(struct pl_plan *p, int worker, int peer, double a) {
    plan_exchange(p, PL_PAIR, worker, peer, 0, a);
}

void pl_push(struct pl_plan *p, int worker, int peer, double share) {
    plan_exchange(p, PL_PUSH, worker, peer, 0, share);
}

void pl_absorb(struct pl_plan *p, int worker) {
    plan_exchange(p, PL_ABSORB, worker, -1, 0, 0);
}
