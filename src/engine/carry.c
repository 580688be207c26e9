/* Carrying plans out: the one place where a start, a take or a commit becomes vectors. */
#include <stdlib.h>

#include "engine/engine_state.h"

static int carry_memory(const struct pl_engine *e, const char *what, struct pl_why *why) {
    return pl_fail(why, PL_ENOMEM, "out of memory for %s at update %llu", what,
                   (unsigned long long)e->view->version);
}

/* --- starts -------------------------------------------------------------------------------- */

/* On the newest version, or on the one that the worker has. A worker writes into one vector until
 * a result of its is taken: if it was cancelled, it may be writing there still. */
static int carry_start_central(struct pl_engine *e, const struct pl_action *a,
                               struct pl_start *start) {
    struct engine_worker *w = &e->worker[a->worker];
    const struct pl_version *before = w->base;
    bool fetches = a->from == PL_FETCH;
    if (w->output == PL_NO_VECTOR && (w->output = pl_vector_add(e->vectors, a->worker)) < 0)
        return PL_ENOMEM;
    if (fetches) {
        w->base = pl_store_newest(e->store);
        pl_store_hold(e->store, w->base);
    }
    struct pl_combination input = {.n = 1, .term = {{w->base->lookahead_vector, 1}}};
    start->input = &input;
    start->output = w->output;
    start->version = w->base->id;
    start->lr = w->base->lr;
    int rc = e->conf.host.start(e->conf.host.ctx, start);
    if (fetches) pl_store_release(e->store, before);
    return rc;
}

/* On the worker's own model. */
static int carry_start_replica(struct pl_engine *e, const struct pl_action *a,
                               struct pl_start *start) {
    struct pl_replica_task t = pl_replica_task(e->replicas, a->worker);
    start->input = t.input;
    start->base = t.base_pending ? t.base : PL_NO_VECTOR;
    start->output = t.answer;
    start->version = e->progress.n_commits;
    start->lr = pl_rate_now(&e->rate, &e->progress, e->job->n_workers);
    return e->conf.host.start(e->conf.host.ctx, start);
}

static int carry_start(struct pl_engine *e, const struct pl_action *a, struct pl_why *why) {
    struct engine_worker *w = &e->worker[a->worker];
    w->part = (struct pl_part){a->row, a->col};
    struct pl_start start = {.worker = a->worker,
                             .task = a->task,
                             .version = a->version,
                             .base = PL_NO_VECTOR,
                             .output = PL_NO_VECTOR,
                             .sends = a->sends,
                             .part = w->part,
                             .acked = w->acked,
                             .applied = w->applied};
    int rc = e->store      ? carry_start_central(e, a, &start)
             : e->replicas ? carry_start_replica(e, a, &start)
                           : e->conf.host.start(e->conf.host.ctx, &start);
    return rc == PL_ENOMEM ? carry_memory(e, "a task", why) : rc;
}

/* --- the group ------------------------------------------------------------------------------ */

static bool carry_room(struct pl_engine *e) {
    if (e->n_group < e->room_group) return true;
    size_t room = e->room_group ? 2 * e->room_group : 64;
    struct pl_group_vector *group = realloc(e->group, room * sizeof *group);
    if (group) e->group = group;
    int *id = realloc(e->group_id, room * sizeof *id);
    if (id) e->group_id = id;
    if (!group || !id) return false;
    e->room_group = room;
    return true;
}

static int carry_take(struct pl_engine *e, const struct pl_action *a, struct pl_why *why) {
    struct engine_worker *w = &e->worker[a->worker];
    if (!e->store) return PL_OK; /* the replicas have taken it */
    const struct pl_member *m = pl_control_taken(e->control, a);
    if (e->conf.host.taken) e->conf.host.taken(e->conf.host.ctx, w->output);
    float *vector = pl_vector_at(e->vectors, w->output);
    struct pl_range range[PL_RANGES];
    int n = pl_part_ranges(e->job, w->part, range);
    if (!vector || !carry_room(e)) return carry_memory(e, "the group", why);
    int rc = pl_part_is(w->part) ? pl_store_take_part(e->store, m, range, n, vector)
                                 : pl_store_take(e->store, m, w->base, vector);
    if (rc == PL_EPOLICY)
        return pl_control_broke(e->control, why,
                                "it made a group of 2 for a rule that takes one at a time");
    if (rc) return carry_memory(e, "the group", why);
    pl_vector_complete(e->vectors, w->output);
    e->group[e->n_group] = (struct pl_group_vector){a->worker, vector};
    e->group_id[e->n_group++] = w->output;
    w->output = PL_NO_VECTOR;
    w->taken = a->task;
    if (e->job->spread) pl_drift_took(&e->out->drift, vector, e->job->model->dim);
    return PL_OK;
}

/* The replicas have applied the group; it is counted. */
static void carry_count(struct pl_engine *e) {
    size_t n;
    struct pl_tally t = {0};
    const struct pl_member *m = pl_control_group(e->control, &n);
    e->progress.n_commits++;
    for (size_t i = 0; i < n; i++) pl_tally_add(&t, m[i].samples, m[i].loss);
    pl_rate_commit(&e->rate, &e->progress, &t);
}

static int carry_commit_store(struct pl_engine *e, double factor, struct pl_measure *measure,
                              struct pl_why *why) {
    int rc = pl_task_forge(e->job, e->group, (int)e->n_group);
    if (!rc) rc = pl_store_commit(e->store, factor, measure);
    while (e->n_group > 0) {
        struct engine_worker *w = &e->worker[e->group[--e->n_group].worker];
        w->applied = w->taken;
        pl_vector_release(e->vectors, e->group_id[e->n_group]);
    }
    pl_job_tell_median(e->job, e->store, &e->told_median);
    if (rc == PL_ERUN)
        return pl_fail(why, rc, "a server did not answer at update %llu",
                       (unsigned long long)e->view->version);
    return rc ? carry_memory(e, "a version of the model", why) : PL_OK;
}

static int carry_commit(struct pl_engine *e, const struct pl_action *a, struct pl_measure *measure,
                        struct pl_why *why) {
    const struct pl_limits *l = &e->job->limits;
    int rc = PL_OK;
    e->n_rejected = 0;
    e->last_update_ns = e->view->now_ns;
    if (e->conf.host.update) e->conf.host.update(e->conf.host.ctx);
    if (e->store)
        rc = carry_commit_store(e, a->factor, measure, why);
    else if (e->replicas)
        carry_count(e);
    if ((l->updates > 0 && a->version >= l->updates) || (l->epochs > 0 && pl_engine_reached(e)))
        pl_engine_over(e);
    return rc;
}

/* The result of a finished task is not used. */
static void carry_unused(struct pl_engine *e, int worker) {
    if (e->conf.host.unused) e->conf.host.unused(e->conf.host.ctx, worker);
}

int pl_engine_carry(struct pl_engine *e, const struct pl_plan *plan, bool *committed,
                    struct pl_measure *measure, struct pl_why *why) {
    *committed = false;
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        int rc = PL_OK;
        switch (a->verb) {
        case PL_TAKE: rc = carry_take(e, a, why); break;
        case PL_DROP: carry_unused(e, a->worker); break;
        case PL_COMMIT:
            *committed = true;
            rc = carry_commit(e, a, measure, why);
            break;
        case PL_START: rc = carry_start(e, a, why); break;
        case PL_CANCEL: e->conf.host.cancel(e->conf.host.ctx, a->worker); break;
        case PL_STOP: pl_engine_over(e); break;
        default: break; /* a deferred result stays where it is; exchanges are the replicas' */
        }
        if (rc) return rc;
    }
    return PL_OK;
}
