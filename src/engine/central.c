/* One model at the server: versions of a store, and the open group. */
#include <math.h>
#include <string.h>

#include "base/grow.h"
#include "engine/engine_state.h"

/* Whether a commit can be written again, and nothing else reads a result before it. */
static bool central_can_leave_out(const struct pl_engine *e) {
    return pl_store_can_leave_out(e->store) && !pl_filter_any(&e->job->filter) &&
           e->conf.slice.whole == 0;
}

/* Whether workers remember that their results came; those have to be finite. */
static bool central_is_remembered(const struct pl_job *job) {
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    return local->n_vectors && local->n_vectors(job->local.conf) > 0;
}

/* Whether the input of a task is of no use after it. */
static bool central_frees_base_early(const struct pl_engine *e) {
    const struct pl_job *job = e->job;
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    const struct pl_correct *correct = (const struct pl_correct *)job->correct.entry;
    return policy->fetches && policy->fetches(job->policy.conf) &&
           !pl_control_switches(e->control) && !(correct->id.needs & PL_NEEDS_BASE) &&
           !pl_filter_any(&job->filter);
}

static int central_first(struct pl_engine *e, const float *w0, size_t dim, struct pl_why *why) {
    struct pl_store_conf conf = pl_job_store(e->job);
    if (e->conf.slice.whole > 0) {
        conf.slice = e->conf.slice;
        conf.tensors = (struct pl_model_tensors){0}; /* no client has several servers */
    }
    conf.dim = dim;
    conf.parallel_for = e->conf.parallel_for;
    conf.writes = e->conf.writes;
    if (pl_engine_own_vectors(e, dim)) return pl_fail(why, PL_ENOMEM, "out of memory");
    conf.vectors = e->vectors;
    conf.offload = e->conf.host.offload;
    int rc = pl_store_new(&conf, w0, &e->store, why);
    if (rc) return rc;
    e->models.needs_room = pl_store_averages(e->store);
    e->workers_check = !central_can_leave_out(e) || central_is_remembered(e->job);
    e->judges_on_arrival = pl_filter_any(&e->job->filter) || pl_store_reads_twice(e->store);
    e->frees_base_early = central_frees_base_early(e);
    return PL_OK;
}

/* Starts a task on the newest version, or on the one that the worker has. A worker keeps its output
 * vector until a result is taken: after a cancel it may still be writing there. */
static int central_start(struct pl_engine *e, const struct pl_action *a, struct pl_start *start) {
    struct engine_worker *w = &e->worker[a->worker];
    const struct pl_version *before = w->base;
    bool fetches = a->from == PL_FETCH;
    if (w->output == PL_NO_VECTOR && (w->output = pl_vector_add(e->vectors, a->worker)) < 0)
        return PL_ENOMEM;
    if (fetches) {
        w->base = pl_store_newest(e->store);
        pl_store_hold(e->store, w->base);
        w->base_id = w->base->id;
    }
    if (!w->base) return PL_EPOLICY;
    struct pl_combination input = {.n = 1, .term = {{w->base->lookahead_vector, 1}}};
    start->input = &input;
    start->output = w->output;
    start->version = w->base->id;
    start->lr = w->base->lr;
    int rc = e->conf.host.start(e->conf.host.ctx, start);
    start->input = NULL;
    if (fetches) pl_store_release(e->store, before);
    return rc;
}

static bool central_room(struct pl_engine *e) {
    if (e->open.n_group < e->open.room_group) return true;
    size_t room = e->open.room_group ? 2 * e->open.room_group : 64;
    if (!PL_RESIZE(e->open.group, room) || !PL_RESIZE(e->open.group_id, room)) return false;
    e->open.room_group = room;
    return true;
}

static int central_take(struct pl_engine *e, const struct pl_action *a, struct pl_why *why) {
    struct engine_worker *w = &e->worker[a->worker];
    const struct pl_member *m = pl_control_taken(e->control, a);
    pl_engine_result_used(e, a->worker, true);
    float *vector = pl_vector_at(e->vectors, w->output);
    if (!vector || !central_room(e)) return pl_engine_memory(e, "the group", why);
    int rc = pl_store_take(e->store, m, w->base, vector, w->finite);
    if (rc == PL_EPOLICY)
        return pl_control_broke(e->control, why,
                                "it made a group of 2 for a rule that takes one at a time");
    if (!rc) rc = pl_store_lacks(e->store, w->absent, w->n_absent);
    if (rc) return pl_engine_memory(e, "the group", why);
    e->open.group[e->open.n_group] = (struct pl_group_vector){a->worker, vector};
    e->open.group_id[e->open.n_group++] = w->output;
    w->output = PL_NO_VECTOR;
    w->taken = a->task;
    return PL_OK;
}

static int central_commit(struct pl_engine *e, const struct pl_action *a,
                          struct pl_measure *measure, struct pl_why *why) {
    int rc = pl_store_commit(e->store, a->factor, measure);
    for (size_t i = 0; !rc && i < e->open.n_group; i++)
        pl_engine_judged(e, i, !pl_store_is_spoiled(e->store, (int)i));
    while (e->open.n_group > 0) {
        struct engine_worker *w = &e->worker[e->open.group[--e->open.n_group].worker];
        w->applied = w->taken;
        pl_vector_release(e->vectors, e->open.group_id[e->open.n_group]);
    }
    if (rc == PL_ERUN)
        return pl_fail(why, rc, "a server did not answer at update %llu",
                       (unsigned long long)e->view->version);
    return rc ? pl_engine_memory(e, "a version of the model", why) : PL_OK;
}

static void central_forget(struct pl_engine *e, int worker) {
    pl_store_release(e->store, e->worker[worker].base);
    pl_vector_release(e->vectors, e->worker[worker].output);
}

static int central_output(const struct pl_engine *e, int worker) {
    return e->worker[worker].output;
}

static int central_touches(const struct pl_engine *e, int worker, int vector[PL_TERMS + 2]) {
    const struct engine_worker *w = &e->worker[worker];
    vector[0] = w->output;
    vector[1] = w->base ? w->base->lookahead_vector : PL_NO_VECTOR;
    return 2;
}

static const struct pl_progress *central_progress(const struct pl_engine *e) {
    return pl_store_progress(e->store);
}

static int central_model(struct pl_engine *e, float *room, struct pl_model_now *out) {
    const struct pl_version *v = pl_store_newest(e->store);
    if (pl_store_averages(e->store)) {
        memcpy(room, pl_store_shown(e->store), e->job->model->dim * sizeof *room);
        return PL_OK;
    }
    pl_store_hold(e->store, v);
    out->held = v;
    out->w = v->model;
    return PL_OK;
}

static int central_archive(struct pl_engine *e, const struct pl_archive *k) {
    return pl_store_archive(e->store, k);
}

const struct pl_engine_models pl_engine_central = {.first = central_first,
                                                   .start = central_start,
                                                   .take = central_take,
                                                   .commit = central_commit,
                                                   .forget = central_forget,
                                                   .output = central_output,
                                                   .touches = central_touches,
                                                   .progress = central_progress,
                                                   .model = central_model,
                                                   .archive = central_archive};
