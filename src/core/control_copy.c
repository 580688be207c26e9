/* A copy of control, on which events can be tried: what it decides has no effect on the run.
 *
 * Prefix: copy_ */
#include <stdlib.h>
#include <string.h>

#include "core/control_state.h"

/* Memory for a copy of c, without its groups. */
static struct pl_control *copy_new(const struct pl_control *c) {
    size_t n = (size_t)c->view.n_workers;
    struct pl_control *to = calloc(1, sizeof *to);
    if (!to) return NULL;
    to->policy_state = malloc(c->policy_size + 1);
    to->tuner_state = malloc(c->tuner->state_size + 1);
    to->worker = malloc(n * sizeof *to->worker);
    to->arrival = malloc(n * sizeof *to->arrival);
    to->plan.action = malloc(c->plan.room * sizeof *to->plan.action);
    if (to->policy_state && to->tuner_state && to->worker && to->arrival && to->plan.action)
        return to;
    pl_control_free(to);
    return NULL;
}

static bool copy_groups(struct pl_control *to, const struct pl_control *from) {
    size_t n = pl_control_n_members(from);
    if (n > to->room) {
        struct pl_member *grown = realloc(to->member, n * sizeof *grown);
        if (!grown) return false;
        to->member = grown;
        to->room = n;
    }
    if (n > 0) memcpy(to->member, from->member, n * sizeof *to->member);
    return true;
}

int pl_control_copy(const struct pl_control *c, struct pl_control **out) {
    size_t n = (size_t)c->view.n_workers;
    if (c->replicas || c->grid_locks.side > 0) return PL_EUSAGE;
    if (!*out && !(*out = copy_new(c))) return PL_ENOMEM;
    struct pl_control *to = *out;
    if (!copy_groups(to, c)) return PL_ENOMEM;
    const struct pl_control own = *to;
    *to = *c;
    to->policy_state = memcpy(own.policy_state, c->policy_state, c->policy_size + 1);
    to->tuner_state = memcpy(own.tuner_state, c->tuner_state, c->tuner->state_size + 1);
    to->worker = memcpy(own.worker, c->worker, n * sizeof *own.worker);
    to->arrival = memcpy(own.arrival, c->arrival, n * sizeof *own.arrival);
    to->plan.action = own.plan.action;
    to->plan.n = 0;
    to->member = own.member;
    to->room = own.room;
    to->view.worker = to->worker;
    to->view.rng = &to->rng;
    to->n_listeners = 0;
    return PL_OK;
}
