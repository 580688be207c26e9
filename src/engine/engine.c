#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/seconds.h"
#include "engine/engine_state.h"

#define ENGINE_LOSS 1e100         /* no loss of a run that still learns is larger */
#define ENGINE_SAMPLES (1u << 30) /* in a task of a program with a model of its own */
#define ENGINE_STUCK_X                                                                             \
    10 /* times what a filter may reject in a row, if some worker has had no turn */

/* --- making --------------------------------------------------------------------------------- */

static int engine_control(struct pl_engine *e, struct pl_why *why) {
    const struct pl_job *job = e->job;
    struct pl_control_conf conf = pl_job_control(job);
    int rc = pl_control_new(&conf, &e->control, why);
    if (rc) return rc;
    e->view = pl_control_view(e->control);
    e->replicas = pl_control_replicas(e->control);
    e->lives.gathers = e->conf.gathers;
    if (pl_life_new(e))
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", job->n_workers);
    if (!e->replicas && !job->model) return PL_OK; /* timing alone: nothing is kept for workers */
    e->models = e->replicas         ? pl_engine_own
                : job->grid         ? pl_engine_blocks
                : job->attack.entry ? pl_engine_forged()
                                    : pl_engine_central;
    e->worker = calloc((size_t)job->n_workers, sizeof *e->worker);
    e->trust.standing = calloc((size_t)job->n_workers, sizeof *e->trust.standing);
    if (!e->worker || !e->trust.standing)
        return pl_fail(why, PL_ENOMEM, "out of memory for %d workers", job->n_workers);
    for (int i = 0; i < job->n_workers; i++) e->worker[i].output = PL_NO_VECTOR;
    return PL_OK;
}

static int engine_filter(struct pl_engine *e, struct pl_why *why) {
    struct pl_filter_conf conf = {.filter = e->job->filter,
                                  .dim = e->job->model->dim,
                                  .ranges = e->job->ranges,
                                  .n_workers = e->job->n_workers};
    if (e->conf.follows) return PL_OK;
    int rc = pl_reference_new(e->job, &e->reference);
    conf.ctx = e->reference;
    conf.trusted = e->reference ? pl_reference_gradient : NULL;
    if (!rc) rc = pl_filter_new(&conf, &e->filter);
    return rc ? pl_fail(why, rc, "out of memory for the filter") : PL_OK;
}

/* The initial model: w0, or the model's own initial weights. */
static int engine_first(struct pl_engine *e, const float *w0, struct pl_why *why) {
    size_t dim = e->conf.slice.whole > 0 ? e->conf.slice.n : e->job->model->dim;
    bool makes = !w0 && !e->conf.host.offload;
    float *made = makes ? pl_vector_new(dim) : NULL;
    if (makes && !made) return pl_fail(why, PL_ENOMEM, "out of memory for the model");
    if (made) pl_job_first(e->job, made);
    int rc = e->models.first(e, w0 ? w0 : made, dim, why);
    free(made);
    return rc;
}

int pl_engine_new(const struct pl_engine_conf *conf, const float *w0, struct pl_outcome *out,
                  struct pl_engine **engine, struct pl_why *why) {
    struct pl_engine *e = calloc(1, sizeof *e);
    if (!e) return pl_fail(why, PL_ENOMEM, "out of memory");
    e->conf = *conf;
    e->job = conf->job;
    e->out = out;
    e->scores.scored_ns = e->last_update_ns = UINT64_MAX;
    e->last_version = e->job->limits.updates > 0 ? e->job->limits.updates : UINT64_MAX;
    e->start = (struct pl_start){.base = PL_NO_VECTOR, .output = PL_NO_VECTOR};
    int rc = engine_control(e, why);
    if (!rc) pl_due_begin(e);
    if (!rc && e->job->model) rc = engine_first(e, w0, why);
    if (!rc && e->job->model) rc = engine_filter(e, why);
    e->measures = !rc && e->store && !conf->follows && pl_control_measures(e->control);
    if (rc)
        pl_engine_free(e);
    else
        *engine = e;
    return rc;
}

void pl_engine_forget(struct pl_engine *e, int worker) {
    if (e->models.forget) e->models.forget(e, worker);
    if (e->worker) free(e->worker[worker].absent);
    if (e->worker) e->worker[worker] = (struct engine_worker){.output = PL_NO_VECTOR};
}

void pl_engine_free(struct pl_engine *e) {
    if (!e) return;
    if (e->control) pl_control_end(e->control, e->view->now_ns); /* if it did not finish */
    for (int i = 0; e->vectors && i < e->job->n_workers; i++) pl_engine_forget(e, i);
    for (size_t i = 0; i < e->open.n_group; i++) pl_vector_release(e->vectors, e->open.group_id[i]);
    pl_store_free(e->store);
    pl_blocks_free(e->blocks);
    pl_filter_free(e->filter);
    pl_reference_free(e->reference);
    if (e->owns_vectors) pl_vectors_free(e->vectors);
    pl_life_free(e);
    pl_control_free(e->control);
    free(e->worker);
    free(e->trust.standing);
    free(e->open.group);
    free(e->open.group_id);
    free(e->mean.needed);
    free(e->best.w);
    free(e);
}

int pl_engine_own_vectors(struct pl_engine *e, size_t dim) {
    if (pl_vectors_new(&e->vectors)) return PL_ENOMEM;
    e->owns_vectors = true;
    pl_vectors_memory(e->vectors, dim, e->conf.host.memory.get ? &e->conf.host.memory : NULL);
    return PL_OK;
}

/* --- results -------------------------------------------------------------------------------- */

void pl_engine_result_used(struct pl_engine *e, int worker, bool taken) {
    const struct pl_host_ops *h = &e->conf.host;
    if (h->result && e->models.output)
        h->result(h->ctx, worker, e->models.output(e, worker), taken);
}

int pl_engine_lacks(struct pl_engine *e, int worker, const uint64_t *absent, uint32_t n) {
    struct engine_worker *w = &e->worker[worker];
    if (!PL_GROW(w->absent, w->room_absent, n)) return PL_ENOMEM;
    memcpy(w->absent, absent, n * sizeof *absent);
    w->n_absent = n;
    return PL_OK;
}

static void engine_reject(struct pl_engine *e, struct pl_event *event, const char *defect) {
    pl_standing_failed(e, event, defect);
    event->kind = PL_REJECT;
    event->samples = 0;
    pl_engine_result_used(e, event->worker, false);
}

/* What a worker claims about its result is compared with what it was asked for. Returns NULL if the
 * claim is possible. Programs with a model of their own choose their mini-batches; a loss of NAN is
 * unknown. */
static const char *engine_claim(const struct pl_engine *e, const struct pl_event *event) {
    bool own = e->job->model && e->job->model->kind->by_clients;
    uint32_t ordered =
        own ? ENGINE_SAMPLES : pl_part_samples(e->job, e->worker[event->worker].part);
    if (event->samples > ordered || (event->samples == 0 && ordered > 0))
        return "claims another number of samples than its task has";
    if (fabs(event->loss) > ENGINE_LOSS) return "sent a loss that is not finite";
    return NULL;
}

/* If a vector is read more than once, or by other workers, and its own worker can still write to
 * it, it is first copied to where it cannot, and judged there. A commit that reads every element
 * once judges what it reads. */
static int engine_settle(struct pl_engine *e, int vector, bool used, enum pl_finite *finite) {
    const struct pl_host_ops *h = &e->conf.host;
    if (*finite != PL_FINITE_WRITABLE || !e->judges_on_arrival) return PL_OK;
    int rc = h->sharing->settle(h->ctx, vector, used);
    if (rc) return rc;
    bool yes = pl_vec_finite(pl_vector_at(e->vectors, vector), e->job->model->dim);
    *finite = yes ? PL_FINITE_YES : PL_FINITE_NO;
    return PL_OK;
}

/* The filter has rejected so many consecutive results that it will accept no more: each worker that
 * is present has had a turn, unless its turn takes far too long. */
static bool engine_stuck(const struct pl_engine *e) {
    if (!pl_filter_stuck(e->filter, 1)) return false;
    if (pl_filter_stuck(e->filter, ENGINE_STUCK_X)) return true;
    for (int i = 0; i < e->job->n_workers; i++)
        if (e->view->worker[i].state != PL_GONE && !e->worker[i].doubted) return false;
    return true;
}

/* Asks the filter whether to accept a result that can be used. */
static int engine_judge(struct pl_engine *e, struct pl_event *event, struct pl_why *why) {
    struct engine_worker *w = &e->worker[event->worker];
    bool believed = true;
    pl_standing_arrived(e, event->worker);
    if (e->judges_on_arrival) pl_standing_good(e, event->worker);
    w->acked = event->task;
    if (!e->filter) return PL_OK;
    int rc = pl_filter_see(e->filter, event->worker, pl_store_newest(e->store), w->base,
                           pl_vector_at(e->vectors, w->output), &believed);
    if (rc == PL_ENOMEM) return pl_fail(why, rc, "out of memory for the filter");
    if (rc)
        return pl_fail(why, rc < 0 ? rc : PL_EUSAGE,
                       "the gradient of the filter's own samples failed with status %d", rc);
    for (int i = 0; believed && i < e->job->n_workers; i++) e->worker[i].doubted = false;
    if (believed) return PL_OK;
    w->doubted = true;
    event->kind = PL_REJECT;
    pl_engine_result_used(e, event->worker, false);
    if (engine_stuck(e)) {
        pl_filter_trouble(e->filter, pl_seconds(event->now_ns), &e->out->trouble);
        pl_engine_limit_reached(e);
    }
    return PL_OK;
}

bool pl_engine_give_reference(struct pl_engine *e, const float *g) {
    return pl_filter_give(e->filter, pl_store_newest(e->store)->id, g);
}

/* --- events --------------------------------------------------------------------------------- */

static int engine_arrive(struct pl_engine *e, struct pl_event *event, const char *defect,
                         struct pl_why *why) {
    enum pl_finite *finite = &e->worker[event->worker].finite;
    int rc = PL_OK;
    if (!defect) defect = engine_claim(e, event);
    if (!defect) rc = engine_settle(e, pl_engine_output(e, event->worker), false, finite);
    if (rc) return pl_engine_memory(e, "a result", why);
    if (!defect && *finite == PL_FINITE_NO) defect = "sent a gradient that is not finite";
    if (!defect) return engine_judge(e, event, why);
    engine_reject(e, event, defect);
    return PL_OK;
}

/* A base that other workers may read from now on. Returns whether it can be used; one that is not
 * awaited is left to control. */
static bool engine_base(struct pl_engine *e, const struct pl_event *event) {
    if (!e->replicas || !pl_is_current(e->view, event->worker, event->task)) return true;
    struct pl_replica_task t = pl_replica_task(e->replicas, event->worker);
    if (!t.base_pending) return true;
    enum pl_finite *result = &e->worker[event->worker].finite, base = *result;
    int rc = engine_settle(e, t.base, true, &base);
    if (!rc && base != PL_FINITE_NO) return true;
    *result = PL_FINITE_NO;
    return false;
}

/* What follows for workers whose results could not be used. */
static inline int engine_verdicts(struct pl_engine *e, const struct pl_event *event, int rc,
                                  struct pl_why *why) {
    return !rc && e->trust.n_due > 0 ? pl_life_verdicts(e, event->now_ns, why) : rc;
}

/* A result of a run with a model. */
static PL_NOINLINE int engine_vector(struct pl_engine *e, struct pl_event *event,
                                     const char *defect, struct pl_why *why) {
    int rc = PL_OK;
    if (event->kind == PL_ARRIVE && !e->conf.follows) rc = engine_arrive(e, event, defect, why);
    if (!rc) rc = pl_engine_step(e, event, why);
    return engine_verdicts(e, event, rc, why);
}

/* A result of the worker's current task. */
static inline int engine_current(struct pl_engine *e, struct pl_event *event, const char *defect,
                                 struct pl_why *why) {
    return e->job->model ? engine_vector(e, event, defect, why) : pl_engine_step(e, event, why);
}

/* No task so far took longer. */
static void engine_longest(struct pl_engine *e, const struct pl_event *event, uint64_t spent_ns) {
    if (e->conf.beat_ns > 0) spent_ns = pl_life_spent(e, event->worker, spent_ns);
    bool first = e->lives.longest_ns == 0;
    if (spent_ns > e->lives.longest_ns) e->lives.longest_ns = spent_ns;
    if (first && e->lives.n_suspects > 0) pl_life_check_by(e, event->now_ns); /* now it is known */
}

/* A result that tells something about workers, too: that this one is there, how long tasks take. */
static PL_NOINLINE int engine_telling(struct pl_engine *e, struct pl_event *event,
                                      const char *defect, uint64_t spent_ns, struct pl_why *why) {
    if (e->lives.n_suspects > 0) pl_life_seen(e, event->worker, event->now_ns);
    if (spent_ns > e->lives.longest_ns) engine_longest(e, event, spent_ns);
    return engine_current(e, event, defect, why);
}

/* A result of an earlier task. */
static PL_NOINLINE int engine_late(struct pl_engine *e, const struct pl_event *event,
                                   struct pl_why *why) {
    if (e->lives.n_suspects > 0) pl_life_seen(e, event->worker, event->now_ns);
    bool left = e->lives.n_life[PL_SUSPENDED] > 0 || e->lives.n_life[PL_EVICTED] > 0;
    return left ? pl_life_answered(e, event, why) : PL_OK;
}

/* A result; `event` has its worker. */
static inline int engine_result(struct pl_engine *e, struct pl_event *event, const char *defect,
                                struct pl_why *why) {
    const struct pl_worker *w = &e->view->worker[event->worker];
    uint64_t spent_ns = event->now_ns - w->since_ns;
    if (!pl_is_current(e->view, event->worker, event->task)) return engine_late(e, event, why);
    if (spent_ns > e->lives.longest_ns || e->lives.n_suspects > 0)
        return engine_telling(e, event, defect, spent_ns, why);
    return engine_current(e, event, defect, why);
}

/* Everything but results. */
static PL_NOINLINE int engine_other(struct pl_engine *e, struct pl_event *event,
                                    struct pl_why *why) {
    bool known = event->worker >= 0 && event->worker < e->view->n_workers;
    if (!known && pl_event_has_worker(event)) /* control says which workers there are */
        return pl_engine_step(e, event, why);
    if (event->kind == PL_BASE_READY && e->vectors && !e->conf.follows && !engine_base(e, event))
        return PL_OK;
    bool moves = event->kind == PL_JOIN || event->kind == PL_LEAVE;
    int rc = moves ? pl_life_moved(e, event, why) : pl_engine_step(e, event, why);
    return engine_verdicts(e, event, rc, why);
}

int pl_engine_event(struct pl_engine *e, struct pl_event *event, const char *defect,
                    struct pl_why *why) {
    bool known = event->worker >= 0 && event->worker < e->view->n_workers;
    bool result = known && (event->kind == PL_ARRIVE || event->kind == PL_REJECT);
    return result ? engine_result(e, event, defect, why) : engine_other(e, event, why);
}

int pl_engine_memory(const struct pl_engine *e, const char *what, struct pl_why *why) {
    return pl_fail(why, PL_ENOMEM, "out of memory for %s at update %llu", what,
                   (unsigned long long)e->view->version);
}

void pl_engine_limit_reached(struct pl_engine *e) {
    if (!e->conf.replays && !e->conf.follows) e->ended = true;
}

void pl_engine_end(struct pl_engine *e) {
    e->ended = true;
}

bool pl_engine_answered(struct pl_engine *e, int worker) {
    struct engine_worker *w = &e->worker[worker];
    if (!e->frees_base_early || !w->base) return false;
    pl_store_release(e->store, w->base);
    w->base = NULL;
    return true;
}

void pl_engine_set_lr(struct pl_engine *e, double lr) {
    if (e->store) pl_store_set_lr(e->store, lr);
    pl_rate_set(&e->rate, lr);
}

bool pl_engine_ended(const struct pl_engine *e) {
    return e->ended;
}

bool pl_engine_reached(const struct pl_engine *e) {
    const struct pl_limits *l = &e->job->limits;
    const struct pl_progress *p = pl_engine_progress(e);
    return (l->updates > 0 && e->view->version >= l->updates) ||
           (l->epochs > 0 && p && pl_progress_epochs(p) >= l->epochs);
}
