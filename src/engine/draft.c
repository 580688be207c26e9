/* Drafts: what the next update will be, if the results that are on their way arrive in the order in
 * which they were announced. Control and policy are asked on a copy, so that nothing is decided
 * before the results are complete. */
#include "engine/engine_state.h"

bool pl_engine_drafts(const struct pl_engine *e) {
    if (!e->rewrites || e->conf.replays || e->conf.follows) return false;
    /* a policy of another program may remember more than its state */
    for (const struct pl_entry *const *p = pl_policy_family.table; *p; p++)
        if (*p == e->job->policy.entry) return true;
    return false;
}

/* The index of the plan's commit, or its length. */
static size_t draft_commit(const struct pl_plan *plan) {
    size_t i = 0;
    while (i < plan->n && plan->action[i].verb != PL_COMMIT) i++;
    return i;
}

int pl_engine_foresee(struct pl_engine *e, const struct pl_event *event, int n) {
    struct pl_why why;
    e->foreseen = NULL;
    if (!pl_engine_drafts(e) || pl_control_copy(e->control, &e->copy)) return 0;
    for (int i = 0; i < n; i++) {
        const struct pl_plan *plan;
        if (!pl_control_is_current(e->copy, event[i].worker, event[i].task) ||
            pl_engine_claim(e, &event[i]) || pl_engine_writable(e, event[i].worker) ||
            pl_control_step(e->copy, &event[i], &plan, &why))
            return 0;
        if (draft_commit(plan) == plan->n) continue;
        e->foreseen = plan;
        return i + 1;
    }
    return 0;
}

/* The members that are new in the foreseen group join the open one. */
static int draft_take(struct pl_engine *e) {
    size_t n;
    const struct pl_member *m = pl_control_group(e->copy, &n);
    for (size_t i = e->n_group; i < n; i++) {
        const struct engine_worker *w = &e->worker[m[i].worker];
        const float *vector =
            w->output == PL_NO_VECTOR ? NULL : pl_vector_at(e->vectors, w->output);
        int rc = vector ? pl_store_take(e->store, &m[i], w->base, vector) : PL_ENOMEM;
        if (rc) return rc;
    }
    return PL_OK;
}

int pl_engine_draft(struct pl_engine *e) {
    const struct pl_plan *plan = e->foreseen;
    e->foreseen = NULL;
    if (!plan) return PL_EUSAGE;
    size_t commit = draft_commit(plan);
    int rc = draft_take(e);
    if (rc) {
        pl_store_take_back(e->store, (int)e->n_group);
        return rc;
    }
    pl_engine_upcoming(e, plan->action + commit, plan->action + plan->n);
    return pl_store_draft(e->store, (int)e->n_group, plan->action[commit].factor);
}

bool pl_engine_drop_draft(struct pl_engine *e) {
    return e->store && pl_store_drop_draft(e->store);
}
