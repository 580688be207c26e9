#include "run/suspension.h"

#include "run/server_state.h"

/* The worker leaves. Its order is not cancelled: what it answers shows that it is alive, and until
 * then its vectors are not used for anything else. */
static int suspension_begin(struct server *s, int worker, uint64_t until_ns) {
    struct pl_suspension *a = &s->suspension[worker];
    bool busy = s->view->worker[worker].state == PL_BUSY;
    *a = (struct pl_suspension){.away = true,
                                .answered = !busy,
                                .task = s->view->worker[worker].task,
                                .until_ns = until_ns};
    s->n_suspended++;
    if (busy) pl_leases_suspend(s->leases, worker);
    return pl_server_move(s, PL_LEAVE, worker);
}

static void suspension_over(struct server *s, int worker) {
    if (!s->suspension[worker].away) return;
    s->suspension[worker] = (struct pl_suspension){.away = false};
    s->n_suspended--;
}

static int suspension_evict(struct server *s, int worker) {
    int rc = suspension_begin(s, worker, UINT64_MAX);
    s->suspension[worker].evicted = true;
    if (!pl_membership_end(&s->membership, worker) &&
        !pl_membership_hang_up(&s->membership, worker, false,
                               "this worker was evicted, because its results could not be used"))
        pl_membership_expel(&s->membership, worker);
    return rc;
}

int pl_suspension_verdicts(struct server *s) {
    struct pl_verdict v;
    int rc = PL_OK;
    while (!rc && pl_engine_verdict(s->engine, &v))
        rc = v.evicted ? suspension_evict(s, v.worker) : suspension_begin(s, v.worker, v.until_ns);
    return rc;
}

bool pl_suspension_result(struct server *s, int worker, uint64_t task) {
    struct pl_suspension *a = &s->suspension[worker];
    if (!a->away) return false;
    if (task == a->task) a->answered = true;
    return true;
}

int pl_suspension_look(struct server *s, uint64_t now) {
    int rc = PL_OK;
    for (int i = 0; !rc && s->n_suspended > 0 && i < s->job->n_workers; i++) {
        const struct pl_suspension *a = &s->suspension[i];
        if (!a->away || a->evicted || !a->answered || now < a->until_ns) continue;
        suspension_over(s, i);
        pl_leases_resume(s->leases, i);
        rc = pl_server_join(s, i);
    }
    return rc;
}

/* A worker that can be restarted is ended, and a guest is hung up on; another one is waited for,
 * without the run. */
static int suspension_freeze(struct server *s, int worker, bool ends) {
    bool leaves = !ends && pl_membership_hang_up(&s->membership, worker, true,
                                                 "this worker did not answer for too long");
    pl_engine_frozen(s->engine, worker, pl_server_now(s),
                     ends     ? "; it is ended and will be restarted"
                     : leaves ? "; its place is free"
                              : "; the run continues without it until it does");
    int rc = suspension_begin(s, worker, 0);
    if (ends) pl_membership_end(&s->membership, worker);
    return rc;
}

int pl_suspension_frozen(struct server *s, uint64_t now) {
    int rc = PL_OK;
    for (int i = 0; !rc && i < s->job->n_workers; i++) {
        bool ends = s->conf->respawn && pl_membership_is_process(&s->membership, i);
        if (now >= pl_engine_deadline(s->engine, i, s->awake_ns, ends))
            rc = suspension_freeze(s, i, ends);
    }
    return rc;
}

void pl_suspension_gone(struct server *s, int worker) {
    suspension_over(s, worker);
}
