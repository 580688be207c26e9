/* Virtual workers: what the engine asks them to do, and what happens when a task is due. */
#include <math.h>
#include <string.h>

#include "core/filter.h"
#include "learn/replica_mean.h"
#include "sim/sim_state.h"

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
    if (!s->delays.net_matters) return at;
    if (start->stays)
        return pl_net_ask(&s->delays.net, workers_n_foreign(s, start),
                          pl_net_tell(&s->delays.net, at));
    return start->sends
               ? pl_net_send_part(&s->delays.net, PL_DOWN, at, s->worker[start->worker].size)
               : pl_net_tell(&s->delays.net, at);
}

/* How long the task computes. */
static uint64_t workers_duration(struct sim *s, const struct pl_start *start, double work) {
    uint32_t worker = (uint32_t)start->worker;
    if (work == 1) return pl_ahead_ns(&s->delays.ahead, worker, start->task);
    return pl_delay_ns(work * pl_delay_draw(s->job->delay, s->job->seed, worker, start->task,
                                            s->delays.ahead.steps));
}

/* Decides when a task that starts now is done, and queues that. */
static int workers_schedule(struct sim *s, const struct pl_start *start, uint64_t *finish) {
    struct sim_worker *w = &s->worker[start->worker];
    uint64_t at = s->clock.now_ns > s->server.ready_ns ? s->clock.now_ns : s->server.ready_ns;
    if (s->recording.replay) { /* the recording decides */
        *finish = pl_replay_finish(s->recording.replay, start->worker, start->task);
        return PL_OK;
    }
    at = workers_input_ns(s, start, at);
    w->comm_ns = at - s->clock.now_ns;
    /* an order to a frozen worker arrives, and is read when the worker continues */
    if (w->frozen_until_ns > at) {
        pl_engine_suspect(s->engine, start->worker, s->clock.now_ns);
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
    return pl_sim_push(s, *finish, s->delays.net_matters ? SIM_COMPUTED : SIM_ARRIVE, start->worker,
                       start->task);
}

/* The input of a task. A base is computed here, and is complete at an event of its own. */
static const float *workers_input(struct sim *s, const struct pl_start *start) {
    struct pl_vectors *v = pl_engine_vectors(s->engine);
    if (!start->input) return NULL; /* it is in strips */
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
    w->checks = start->checks;
    if (t->state.n == 0 && pl_local_state_new(&s->job->local, s->job->model->dim, &t->state))
        return PL_ENOMEM;
    if (t->sent > 0 && t->sent == start->acked) pl_local_state_acked(&t->state);
    t->sent = 0;
    t->state.applied = start->applied;
    t->at = (struct pl_task_at){.worker = (uint32_t)start->worker,
                                .task = start->task,
                                .part = start->part,
                                .w = workers_input(s, start),
                                .n_strips = start->n_strips,
                                .version = start->version,
                                .lr = start->lr};
    memcpy(t->at.strip, start->strip, sizeof t->at.strip);
    if (!t->at.w && t->at.n_strips == 0) return PL_ENOMEM;
    return pl_prefetch_start(s->prefetch, t, finish);
}

static void workers_cancel(void *ctx, int worker) {
    struct sim *s = ctx;
    if (s->prefetch) pl_prefetch_drop(s->prefetch, s->worker[worker].now);
}

/* The memory of a result that is not used can be used again at once. */
static void workers_result(void *ctx, int worker, int id, bool taken) {
    struct sim *s = ctx;
    if (taken || (!s->prefetch && !s->stepped)) return;
    struct pl_vectors *v = pl_engine_vectors(s->engine);
    const struct sim_worker *w = &s->worker[worker];
    if (w->stays || id == PL_NO_VECTOR || (w->now && w->now->at.n_strips > 0))
        return; /* released with the replica's task, or the memory of a block */
    if (s->stepped)
        pl_stepped_put(s->stepped, id, worker, pl_vector_at(v, id));
    else
        pl_prefetch_put(s->prefetch, id, worker, pl_vector_at(v, id));
    pl_vector_bind(v, id, NULL);
}

/* The worker leaves; what it had is lost. */
static void workers_leave(struct sim *s, int worker) {
    struct sim_worker *w = &s->worker[worker];
    if (s->prefetch && s->view->worker[worker].state == PL_BUSY)
        pl_prefetch_drop(s->prefetch, w->now);
    if (!w->now) return;
    w->now->sent = 0;
    pl_local_state_forget(&w->now->state);
}

/* A virtual worker cannot be ended: if it is frozen or quarantined, it goes on with its task. */
static enum pl_removal workers_end(void *ctx, int worker, enum pl_life_event event, bool last) {
    struct sim *s = ctx;
    if (event == PL_LIFE_EVICTS) s->worker[worker].frozen_until_ns = 0;
    if (!last) workers_leave(s, worker);
    return PL_REMAINS;
}

static void workers_update(void *ctx, const struct pl_action *after, size_t n) {
    struct sim *s = ctx;
    (void)after;
    (void)n;
    s->server.ready_ns = s->clock.now_ns + s->server.update_ns;
    if (s->prefetch && pl_sim_cancels(s)) pl_prefetch_need(s->prefetch, 0);
}

struct pl_host_ops pl_sim_host(struct sim *s) {
    return (struct pl_host_ops){
        .ctx = s,
        .start = workers_start,
        .cancel = workers_cancel,
        .end = workers_end,
        .result = workers_result,
        .update = workers_update,
        .offload = s->stepped ? pl_stepped_offload(s->stepped) : NULL,
        .memory = s->stepped ? pl_stepped_memory(s->stepped)
                             : (struct pl_vector_memory){s->prefetch ? pl_prefetch_get : NULL,
                                                         pl_prefetch_put, s->prefetch}};
}

/* --- events ------------------------------------------------------------------------------ */

int pl_sim_sure(const struct sim *s) {
    const struct pl_view *v = s->view;
    if (!pl_sim_cancels(s)) return v->n_workers;
    return v->knobs.k > v->n_taken ? v->knobs.k - v->n_taken : 1;
}

/* Waits for the gradient of a task whose result arrives, and puts it into its vector. */
static int workers_collect(struct sim *s, struct pl_event *e, const char **defect) {
    struct sim_worker *w = &s->worker[e->worker];
    /* a recorded reject by the filter has samples, and the filter will reject it again */
    bool bad = e->kind == PL_REJECT && (e->samples == 0 || !pl_filter_any(&s->job->filter));
    /* real workers may leave it to the commit to look whether a result is finite */
    bool judged = s->recording.replay && e->kind == PL_ARRIVE && !w->checks &&
                  pl_recording_is_real(s->conf->replay);
    e->kind = PL_ARRIVE;
    e->samples = pl_part_samples(s->job, w->now->at.part);
    /* the place of this one must not go to a task that may be cancelled */
    if (pl_sim_cancels(s)) pl_prefetch_need(s->prefetch, pl_sim_sure(s) - 1);
    int rc = pl_prefetch_collect(s->prefetch, w->now);
    if (rc == PL_ECANCELLED && s->interrupted) return rc;
    if (rc == PL_ENOMEM) return pl_fail(s->why, rc, "out of memory for a gradient");
    if (rc) /* only a gradient function of the embedding program can fail otherwise */
        return pl_fail(s->why, rc < 0 ? rc : PL_EUSAGE,
                       "the gradient of worker %d, task %llu, failed with status %d", e->worker + 1,
                       (unsigned long long)e->task, rc);
    e->loss = w->now->loss;
    bool finite = w->now->finite || (judged && isfinite(e->loss));
    *defect = !finite ? "sent a gradient that is not finite" : bad ? "" : NULL;
    if (!*defect) w->now->sent = e->task;
    if (w->now->at.n_strips == 0)
        pl_vector_bind(pl_engine_vectors(s->engine), pl_engine_output(s->engine, e->worker),
                       w->now->vector);
    w->now->vector = NULL;
    /* the memory of the input, which was just read, can hold the next version */
    pl_engine_answered(s->engine, e->worker);
    return PL_OK;
}

int pl_sim_bring(struct sim *s, struct pl_event *e) {
    const char *defect = NULL;
    e->loss = NAN;
    if (s->stepped) return pl_stepped_bring(s, e);
    int rc = s->prefetch ? workers_collect(s, e, &defect) : PL_OK;
    if (rc == PL_ECANCELLED && s->interrupted) return PL_OK; /* the run ends before this event */
    return rc ? rc : pl_engine_event(s->engine, e, defect, s->why);
}

int pl_sim_arrive(struct sim *s, const struct pl_timed *t) {
    struct sim_worker *w = &s->worker[t->who];
    bool late = !pl_is_current(s->view, t->who, t->task); /* it has left, and shows that it lives */
    if (late && !pl_engine_awaits(s->engine, t->who, t->task)) return PL_OK;
    if (w->late_ns > 0) { /* it was frozen meanwhile */
        uint64_t when = t->when_ns + w->late_ns;
        w->late_ns = 0;
        return pl_sim_push(s, when, (enum sim_what)t->what, t->who, t->task);
    }
    if (t->what == SIM_COMPUTED) {
        uint64_t when = w->stays
                            ? pl_net_tell(&s->delays.net, s->clock.now_ns)
                            : pl_net_send_part(&s->delays.net, PL_UP, s->clock.now_ns, w->size);
        w->comm_ns += when - s->clock.now_ns;
        return pl_sim_push(s, when, SIM_ARRIVE, t->who, t->task);
    }
    if (!late && s->clock.now_ns < s->server.ready_ns) { /* the server is busy */
        w->comm_ns += s->server.ready_ns - s->clock.now_ns;
        return pl_sim_push(s, s->server.ready_ns, SIM_ARRIVE, t->who, t->task);
    }
    struct pl_event e = {.kind = PL_ARRIVE,
                         .now_ns = s->clock.now_ns,
                         .worker = t->who,
                         .task = t->task,
                         .comm_ns = w->comm_ns,
                         .loss = NAN};
    bool brings = s->job->model && !late;
    return brings ? pl_sim_bring(s, &e) : pl_engine_event(s->engine, &e, NULL, s->why);
}

/* The base of a worker is complete: its peers may read it. */
int pl_sim_base_ready(struct sim *s, int worker, uint64_t task) {
    struct pl_event e = {
        .kind = PL_BASE_READY, .now_ns = s->clock.now_ns, .worker = worker, .task = task};
    return pl_is_current(s->view, worker, task) ? pl_engine_event(s->engine, &e, NULL, s->why)
                                                : PL_OK;
}

int pl_sim_move(struct sim *s, enum pl_event_kind kind, int worker) {
    struct pl_event e = {.kind = kind, .now_ns = s->clock.now_ns, .worker = worker};
    if (kind == PL_LEAVE) {
        s->worker[worker].frozen_until_ns = 0; /* a worker that returns is not frozen */
        workers_leave(s, worker);
    }
    return pl_engine_event(s->engine, &e, NULL, s->why);
}

/* A worker joins; one that has left and is still there ends first. */
static int workers_join(struct sim *s, int worker) {
    enum pl_life life = pl_engine_life(s->engine, worker);
    bool left = life == PL_SUSPENDED || life == PL_EVICTED;
    int rc = left ? pl_sim_move(s, PL_LEAVE, worker) : PL_OK;
    return rc ? rc : pl_sim_move(s, PL_JOIN, worker);
}

int pl_sim_script(struct sim *s, const struct pl_script_line *line) {
    struct sim_worker *w = &s->worker[line->worker];
    s->n_script--;
    switch (line->verb) {
    case PL_SCRIPT_FREEZE: {
        /* a worker that is already frozen stays so until the later of the two times */
        uint64_t until = s->clock.now_ns + line->for_ns, from = s->clock.now_ns;
        if (w->frozen_until_ns > from) from = w->frozen_until_ns;
        if (until <= from) return PL_OK;
        bool busy = s->view->worker[line->worker].state == PL_BUSY;
        bool late = pl_engine_life(s->engine, line->worker) == PL_SUSPENDED;
        if (busy || late) w->late_ns += until - from;
        w->frozen_until_ns = until;
        if (busy) pl_engine_suspect(s->engine, line->worker, s->clock.now_ns);
        return PL_OK;
    }
    case PL_SCRIPT_LEAVE: return pl_sim_move(s, PL_LEAVE, line->worker);
    case PL_SCRIPT_JOIN: return workers_join(s, line->worker);
    }
    return PL_OK;
}
