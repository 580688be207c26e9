/* Virtual workers: what the engine asks them to do, and what happens when a task is due. */
#include <math.h>

#include "core/filter.h"
#include "learn/replica_mean.h"
#include "sim/sim_state.h"

#define WORKERS_LOOKS 16 /* at a frozen worker, as long as its deadline is not known */

/* --- the host of an engine ---------------------------------------------------------------- */

/* Vectors of other workers that the worker reads before it can begin. */
static int workers_n_foreign(const struct sim *s, const struct pl_start *start) {
    const struct pl_vectors *v = pl_replicas_vectors(s->view->replicas);
    int n = 0;
    for (int i = 0; i < start->input->n; i++)
        n += pl_vector_writer(v, start->input->term[i].vector) != start->worker;
    return n;
}

/* When the worker has its input. */
static uint64_t workers_input_ns(struct sim *s, const struct pl_start *start, uint64_t at) {
    if (!s->net_matters) return at;
    if (start->stays)
        return pl_net_ask(&s->net, workers_n_foreign(s, start), pl_net_tell(&s->net, at));
    return start->sends ? pl_net_send_part(&s->net, PL_DOWN, at, s->worker[start->worker].size)
                        : pl_net_tell(&s->net, at);
}

/* How long the task computes. */
static uint64_t workers_duration(struct sim *s, const struct pl_start *start, double work) {
    uint32_t worker = (uint32_t)start->worker;
    if (work == 1) return pl_ahead_ns(&s->ahead, worker, start->task);
    return pl_delay_ns(
        work * pl_delay_draw(s->job->delay, s->job->seed, worker, start->task, s->ahead.steps));
}

/* Decides when a task that starts now is done, and queues that. */
static int workers_schedule(struct sim *s, const struct pl_start *start, uint64_t *finish) {
    struct sim_worker *w = &s->worker[start->worker];
    uint64_t at = s->now_ns > s->ready_ns ? s->now_ns : s->ready_ns;
    if (s->replay) { /* the recording decides */
        *finish = pl_replay_finish(s->replay, start->worker, start->task);
        return PL_OK;
    }
    at = workers_input_ns(s, start, at);
    w->comm_ns = at - s->now_ns;
    /* an order to a frozen worker arrives, and is read when the worker continues */
    if (w->frozen_until_ns > at) {
        int rc = pl_sim_push(s, s->now_ns, SIM_OVERDUE, start->worker, start->task);
        if (rc) return rc;
        at = w->frozen_until_ns;
    }
    if (at > SIM_END_NS)
        at = SIM_END_NS; /* a queue that never empties; the sum below must not wrap */
    w->late_ns = 0;
    *finish = at + workers_duration(s, start, w->work);
    if (start->base != PL_NO_VECTOR) {
        int rc = pl_sim_push(s, at, SIM_BASE_READY, start->worker, start->task);
        if (rc) return rc;
    }
    return pl_sim_push(s, *finish, s->net_matters ? SIM_COMPUTED : SIM_ARRIVE, start->worker,
                       start->task);
}

/* The input of a task. A base is computed here, and is complete at an event of its own. */
static const float *workers_input(struct sim *s, const struct pl_start *start) {
    struct pl_vectors *v = pl_engine_vectors(s->engine);
    struct pl_mixture m = {.n = start->input->n};
    if (start->base == PL_NO_VECTOR) return pl_vector_at(v, start->input->term[0].vector);
    for (int i = 0; i < m.n; i++) {
        m.c[i] = start->input->term[i].c;
        m.v[i] = pl_vector_at(v, start->input->term[i].vector);
    }
    float *base = pl_vector_at(v, start->base);
    if (base) pl_mixture_make(&m, 0, s->job->model->dim, base);
    return base;
}

static int workers_start(void *ctx, const struct pl_start *start) {
    struct sim *s = ctx;
    struct sim_worker *w = &s->worker[start->worker];
    uint64_t finish;
    w->stays = start->stays;
    if (pl_part_is(start->part)) {
        w->size = pl_part_size(s->job, start->part);
        w->work = pl_part_work(s->job, start->part);
    }
    int rc = workers_schedule(s, start, &finish);
    if (rc || !s->prefetch) return rc;
    struct pl_prefetch_task *t = w->now;
    if (t->state.n == 0 && pl_local_state_new(s->job, &t->state)) return PL_ENOMEM;
    if (t->sent > 0 && t->sent == start->acked) pl_local_state_acked(&t->state);
    t->sent = 0;
    t->state.applied = start->applied;
    t->at = (struct pl_task_at){.worker = (uint32_t)start->worker,
                                .task = start->task,
                                .part = start->part,
                                .w = workers_input(s, start),
                                .version = start->version,
                                .lr = start->lr};
    return t->at.w ? pl_prefetch_start(s->prefetch, t, finish) : PL_ENOMEM;
}

static void workers_cancel(void *ctx, int worker) {
    struct sim *s = ctx;
    if (s->prefetch) pl_prefetch_drop(s->prefetch, s->worker[worker].now);
}

/* The result is in its vector, whose memory can be used again at once. */
static void workers_unused(void *ctx, int worker) {
    struct sim *s = ctx;
    if (!s->prefetch && !s->stepped) return;
    struct pl_vectors *v = pl_engine_vectors(s->engine);
    int id = pl_engine_output(s->engine, worker);
    if (s->worker[worker].stays || id == PL_NO_VECTOR)
        return; /* released with the replica's task */
    if (s->stepped)
        pl_stepped_put(s->stepped, id, worker, pl_vector_at(v, id));
    else
        pl_prefetch_put(s->prefetch, id, worker, pl_vector_at(v, id));
    pl_vector_bind(v, id, NULL);
}

static void workers_update(void *ctx) {
    struct sim *s = ctx;
    s->ready_ns = s->now_ns + s->update_ns;
    if (s->prefetch && s->cancels == PL_CANCELS_ALL) pl_prefetch_need(s->prefetch, 0);
}

struct pl_host_ops pl_sim_host(struct sim *s) {
    return (struct pl_host_ops){
        .ctx = s,
        .start = workers_start,
        .cancel = workers_cancel,
        .unused = workers_unused,
        .update = workers_update,
        .offload = s->stepped ? pl_stepped_offload(s->stepped) : NULL,
        .memory = s->stepped ? pl_stepped_memory(s->stepped)
                             : (struct pl_vector_memory){s->prefetch ? pl_prefetch_get : NULL,
                                                         pl_prefetch_put, s->prefetch}};
}

/* --- events ------------------------------------------------------------------------------ */

int pl_sim_sure(const struct sim *s) {
    const struct pl_view *v = s->view;
    if (s->cancels != PL_CANCELS_ALL) return v->n_workers;
    return v->knobs.k > v->n_taken ? v->knobs.k - v->n_taken : 1;
}

/* Waits for the gradient of a task whose result arrives, and puts it into its vector. */
static int workers_collect(struct sim *s, struct pl_event *e, const char **defect) {
    struct sim_worker *w = &s->worker[e->worker];
    /* a recorded reject by the filter has samples, and the filter will reject it again */
    bool bad = e->kind == PL_REJECT && (e->samples == 0 || !pl_filter_any(&s->job->filter));
    /* real workers may leave it to the commit to look whether a result is finite */
    bool judged = s->replay && e->kind == PL_ARRIVE && pl_engine_judges(s->engine) &&
                  pl_recording_is_real(s->conf->replay);
    e->kind = PL_ARRIVE;
    e->samples = pl_part_samples(s->job, w->now->at.part);
    /* the place of this one must not go to a task that may be cancelled */
    if (s->cancels == PL_CANCELS_ALL) pl_prefetch_need(s->prefetch, pl_sim_sure(s) - 1);
    int rc = pl_prefetch_collect(s->prefetch, w->now);
    if (rc == PL_ENOMEM) return pl_fail(s->why, rc, "out of memory for a gradient");
    if (rc) /* only a gradient function of the embedding program can fail otherwise */
        return pl_fail(s->why, rc < 0 ? rc : PL_EUSAGE,
                       "the gradient of worker %d, task %llu, failed with status %d", e->worker + 1,
                       (unsigned long long)e->task, rc);
    e->loss = w->now->loss;
    bool finite = w->now->finite || (judged && isfinite(e->loss));
    *defect = !finite ? "that is not finite" : bad ? "" : NULL;
    if (!*defect) w->now->sent = e->task;
    pl_vector_bind(pl_engine_vectors(s->engine), pl_engine_output(s->engine, e->worker),
                   w->now->vector);
    w->now->vector = NULL;
    /* the memory of the input, which was just read, can hold the next version; the drift still
     * looks at what workers computed on */
    if (!s->job->spread) pl_engine_answered(s->engine, e->worker);
    return PL_OK;
}

int pl_sim_bring(struct sim *s, struct pl_event *e) {
    const char *defect = NULL;
    e->loss = NAN;
    if (s->stepped) return pl_stepped_bring(s, e);
    int rc = s->prefetch ? workers_collect(s, e, &defect) : PL_OK;
    return rc ? rc : pl_engine_event(s->engine, e, defect, s->why);
}

int pl_sim_arrive(struct sim *s, const struct pl_timed *t) {
    struct sim_worker *w = &s->worker[t->who];
    bool late = w->away && w->away_task == t->task; /* its result comes, and has its fate */
    if (!late && !pl_sim_is_current(s, t->who, t->task)) return PL_OK;
    if (w->late_ns > 0) { /* it was frozen meanwhile */
        uint64_t when = t->when_ns + w->late_ns;
        w->late_ns = 0;
        return pl_sim_push(s, when, (enum sim_what)t->what, t->who, t->task);
    }
    if (t->what == SIM_COMPUTED) {
        uint64_t when = w->stays ? pl_net_tell(&s->net, s->now_ns)
                                 : pl_net_send_part(&s->net, PL_UP, s->now_ns, w->size);
        w->comm_ns += when - s->now_ns;
        return pl_sim_push(s, when, SIM_ARRIVE, t->who, t->task);
    }
    if (late) {
        w->away_task = 0;
        return pl_sim_rejoin(s, t->who);
    }
    if (s->now_ns < s->ready_ns) { /* the server is busy */
        w->comm_ns += s->ready_ns - s->now_ns;
        return pl_sim_push(s, s->ready_ns, SIM_ARRIVE, t->who, t->task);
    }
    struct pl_event e = {.kind = PL_ARRIVE,
                         .now_ns = s->now_ns,
                         .worker = t->who,
                         .task = t->task,
                         .comm_ns = w->comm_ns,
                         .loss = NAN};
    return s->job->model ? pl_sim_bring(s, &e) : pl_engine_event(s->engine, &e, NULL, s->why);
}

/* The base of a worker is complete: its peers may read it. */
int pl_sim_base_ready(struct sim *s, int worker, uint64_t task) {
    struct pl_event e = {
        .kind = PL_BASE_READY, .now_ns = s->now_ns, .worker = worker, .task = task};
    return pl_sim_is_current(s, worker, task) ? pl_engine_event(s->engine, &e, NULL, s->why)
                                              : PL_OK;
}

static int workers_leave(struct sim *s, int worker) {
    struct sim_worker *w = &s->worker[worker];
    struct pl_event e = {.kind = PL_LEAVE, .now_ns = s->now_ns, .worker = worker};
    w->frozen_until_ns = 0; /* a worker that returns is not frozen and has no state */
    if (s->prefetch && s->view->worker[worker].state == PL_BUSY)
        pl_prefetch_drop(s->prefetch, w->now);
    if (w->now) {
        w->now->sent = 0;
        pl_local_state_forget(&w->now->state);
    }
    return pl_engine_event(s->engine, &e, NULL, s->why);
}

/* A worker that is away is so no longer, and does not return by itself. */
static void workers_back(struct sim *s, int worker) {
    struct sim_worker *w = &s->worker[worker];
    if (!w->away) return;
    w->away = false;
    w->away_task = 0;
    s->n_away--;
}

int pl_sim_move(struct sim *s, enum pl_event_kind kind, int worker) {
    struct pl_event e = {.kind = kind, .now_ns = s->now_ns, .worker = worker};
    workers_back(s, worker);
    return kind == PL_LEAVE ? workers_leave(s, worker)
                            : pl_engine_event(s->engine, &e, NULL, s->why);
}

/* --- workers that leave and are still there ------------------------------------------------- */

/* The worker leaves and goes on with its task; see run/suspension.h. */
static int workers_suspend(struct sim *s, int worker, uint64_t until_ns) {
    struct sim_worker *w = &s->worker[worker];
    const struct pl_worker *v = &s->view->worker[worker];
    uint64_t frozen_until_ns = w->frozen_until_ns;
    w->away = true;
    w->away_task = v->state == PL_BUSY ? v->task : 0;
    w->away_until_ns = until_ns;
    s->n_away++;
    int rc = workers_leave(s, worker);
    w->frozen_until_ns = frozen_until_ns;
    return rc ? rc : pl_sim_push(s, until_ns, SIM_REJOIN, worker, 0);
}

int pl_sim_rejoin(struct sim *s, int worker) {
    struct sim_worker *w = &s->worker[worker];
    if (!w->away || w->away_task != 0 || s->now_ns < w->away_until_ns) return PL_OK;
    workers_back(s, worker);
    return pl_sim_move(s, PL_JOIN, worker);
}

int pl_sim_verdicts(struct sim *s) {
    struct pl_verdict v;
    int rc = PL_OK;
    while (!rc && pl_engine_verdict(s->engine, &v))
        rc = v.evicted ? pl_sim_move(s, PL_LEAVE, v.worker)
                       : workers_suspend(s, v.worker, v.until_ns);
    return rc;
}

/* A frozen worker is looked at when its task is overdue, as far as is known now. */
int pl_sim_overdue(struct sim *s, int worker, uint64_t task) {
    const struct sim_worker *w = &s->worker[worker];
    if (!pl_sim_is_current(s, worker, task) || w->frozen_until_ns <= s->now_ns) return PL_OK;
    uint64_t when = pl_engine_deadline(s->engine, worker, 0, false);
    if (when > w->frozen_until_ns) {
        /* nothing may have been learnt yet, or nobody else may be there: look again later */
        uint64_t next = s->now_ns + (w->frozen_until_ns - s->now_ns) / WORKERS_LOOKS + 1;
        if (when == UINT64_MAX && s->job->evict != 0)
            return pl_sim_push(s, next, SIM_OVERDUE, worker, task);
        return PL_OK;
    }
    if (when > s->now_ns) return pl_sim_push(s, when, SIM_OVERDUE, worker, task);
    pl_engine_frozen(s->engine, worker, s->now_ns, "; the run continues without it until it does");
    return workers_suspend(s, worker, s->now_ns);
}

int pl_sim_script(struct sim *s, const struct pl_script_line *line) {
    struct sim_worker *w = &s->worker[line->worker];
    s->n_script--;
    switch (line->verb) {
    case PL_SCRIPT_FREEZE: {
        /* a worker that is already frozen stays so until the later of the two times */
        uint64_t until = s->now_ns + line->for_ns, from = s->now_ns;
        if (w->frozen_until_ns > from) from = w->frozen_until_ns;
        if (until <= from) return PL_OK;
        bool busy = s->view->worker[line->worker].state == PL_BUSY;
        if (busy || w->away) w->late_ns += until - from;
        w->frozen_until_ns = until;
        if (!busy) return PL_OK;
        return pl_sim_push(s, s->now_ns, SIM_OVERDUE, line->worker,
                           s->view->worker[line->worker].task);
    }
    case PL_SCRIPT_LEAVE: return pl_sim_move(s, PL_LEAVE, line->worker);
    case PL_SCRIPT_JOIN: return pl_sim_move(s, PL_JOIN, line->worker);
    }
    return PL_OK;
}
