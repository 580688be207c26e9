#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "core/filter.h"
#include "learn/reference_gradient.h"
#include "sim/peers.h"
#include "sim/prefetch.h"
#include "sys/fpu.h"

#define SIM_END_NS 9000000000000000000u /* the clock stops here: 285 years */
#define SIM_TICK 256                    /* events between two looks at the watch, timing alone */
#define SIM_STILL 1000000               /* events at one moment that are still a run */
#define SIM_QUEUE 4096                  /* entries of the event queue that are never too many */

enum sim_what {
    SIM_ARRIVE,
    SIM_COMPUTED,
    SIM_EVAL,
    SIM_SCRIPT,
    SIM_RECORDED,
    SIM_TIMER,
    SIM_BASE_READY
};

struct sim_worker {
    struct pl_version *held;  /* what its task computes on */
    uint64_t frozen_until_ns; /* it does nothing before */
    uint64_t late_ns;         /* by how much its task was held up since it was scheduled */
    uint64_t comm_ns;         /* its task's time on the network so far */
    uint64_t taken, applied, n_rejected; /* its last task in a group, committed; in a row */
    struct pl_prefetch_task *now;        /* NULL for timing alone */
};

struct sim {
    const struct pl_sim_conf *conf;
    const struct pl_job *job;
    struct pl_why *why;
    struct pl_heap heap;
    struct pl_net net;
    bool net_matters;
    struct pl_control *control;
    struct pl_store *store; /* NULL: timing alone, like `ahead` */
    struct pl_prefetch *prefetch;
    struct pl_sim_peers *peers;     /* NULL: there is one model */
    struct pl_reference *reference; /* of the filter; NULL: it needs none */
    struct pl_filter *filter;       /* NULL: everybody is believed */
    struct sim_worker *worker;
    struct pl_group_vector *group; /* the open one: who, and the vectors */
    size_t n_group, room_group;
    uint64_t now_ns, eval_ns, n_events;
    uint64_t ready_ns;   /* when the server has made the last update */
    float *mean;         /* [dim] to work in, where the spread is looked at */
    uint64_t n_rejected; /* in a row */
    uint64_t n_still;    /* events at this very moment */
    bool warned;         /* of a gradient that is not finite */
    bool told_median;
    enum pl_cancels cancels;
    uint32_t steps;
    size_t n_script;                 /* lines that have not happened yet */
    struct pl_replay *replay;        /* NULL: a run of its own */
    const struct pl_event *recorded; /* the one that is queued */
    bool ended;
    uint64_t scored_ns; /* when the last evaluation was; UINT64_MAX: never */
    uint64_t scored;    /* which version that was */
    struct pl_outcome *out;
};

static uint64_t sim_ns(double seconds) {
    double ns = seconds * 1e9;
    return ns < 1e18 ? (uint64_t)llround(ns) : (uint64_t)1e18;
}

static double sim_seconds(uint64_t ns) {
    return (double)ns * 1e-9;
}

static int sim_push(struct sim *s, uint64_t when_ns, enum sim_what what, int who, uint64_t task) {
    if (pl_heap_push(&s->heap, when_ns, (int32_t)what, who, task))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the event queue");
    return PL_OK;
}

/* Something came about that ends a run. A replay ends where its recording does. */
static void sim_over(struct sim *s) {
    if (!s->replay) s->ended = true;
}

/* --- watching ---------------------------------------------------------------------------- */

/* The model: the newest version, or the mean of all; NULL: out of memory. */
static const float *sim_model_now(struct sim *s) {
    if (!s->peers) return pl_store_newest(s->store)->model;
    return pl_sim_peers_mean(s->peers, &s->out->consensus);
}

/* The models that workers compute on, at this moment. */
static void sim_spread(struct sim *s) {
    const struct pl_local *local = (const struct pl_local *)s->job->local.entry;
    const float *model[PL_DRIFT_MAX];
    int n = 0;
    if (!s->mean || s->peers || s->job->n_workers > PL_DRIFT_MAX) return;
    for (int i = 0; i < s->job->n_workers; i++) {
        const struct sim_worker *w = &s->worker[i];
        const struct pl_local_state *m = &w->now->memory;
        if (pl_control_view(s->control)->worker[i].state == PL_GONE || !w->held) continue;
        bool own = local->model_slot > 0 && m->any;
        model[n++] = own ? m->prev[local->model_slot - 1] : w->held->lookahead;
    }
    pl_drift_look(&s->out->spread, model, n, pl_store_newest(s->store)->model, s->mean,
                  s->job->model->dim);
}

static void sim_evaluate(struct sim *s) {
    if (!s->store) return;
    uint64_t newest = pl_store_newest(s->store)->id;
    if (s->scored_ns == s->now_ns && s->scored == newest) return;
    s->scored_ns = s->now_ns;
    s->scored = newest;
    sim_spread(s);
    const float *model = sim_model_now(s);
    if (!model) return;
    struct pl_score score = pl_prefetch_score(s->prefetch, model);
    struct pl_point p = pl_point_now(s->control, s->store, s->now_ns);
    p.consensus = s->out->consensus;
    bool reached = pl_outcome_score(s->out, &s->job->limits, &score, &p);
    if (s->conf->watch.point) s->conf->watch.point(s->conf->watch.ctx, &p);
    if (reached) sim_over(s);
}

static void sim_tick(struct sim *s) {
    if (!s->conf->watch.tick || (!s->store && s->n_events % SIM_TICK != 0)) return;
    struct pl_point p = pl_point_now(s->control, s->store, s->now_ns);
    if (s->conf->watch.tick(s->conf->watch.ctx, &p)) s->ended = true;
}

/* --- carrying out plans ------------------------------------------------------------------ */

/* The part that a worker's current task is on. */
static struct pl_part sim_part(const struct sim *s, int worker) {
    const struct pl_worker *w = &pl_control_view(s->control)->worker[worker];
    return s->job->grid ? (struct pl_part){w->row, w->col} : PL_WHOLE;
}

/* How much of a vector is sent for it. */
static double sim_size(const struct sim *s, int worker) {
    return pl_part_size(s->job, sim_part(s, worker));
}

/* Decides when a task that starts now is done, and queues that. */
static int sim_schedule(struct sim *s, const struct pl_action *a, uint64_t *finish) {
    struct sim_worker *w = &s->worker[a->worker];
    uint64_t at = s->now_ns > s->ready_ns ? s->now_ns : s->ready_ns;
    if (s->replay) { /* it was decided then, and comes with the recording */
        *finish = pl_replay_finish(s->replay, a->worker, a->task);
        return PL_OK;
    }
    const struct pl_replicas *replicas = pl_control_replicas(s->control);
    if (s->net_matters && replicas)
        at = pl_net_ask(&s->net, pl_peers_foreign(replicas, a->worker), pl_net_tell(&s->net, at));
    else if (s->net_matters)
        at = a->from == PL_FETCH ? pl_net_send_part(&s->net, PL_DOWN, at, sim_size(s, a->worker))
                                 : pl_net_tell(&s->net, at);
    w->comm_ns = at - s->now_ns;
    /* what is sent to a frozen worker gets there; it is read when the worker goes on */
    if (w->frozen_until_ns > at) at = w->frozen_until_ns;
    if (at > SIM_END_NS)
        at = SIM_END_NS; /* a queue that never empties; the sum below must not wrap */
    w->late_ns = 0;
    double seconds =
        pl_delay_draw(s->job->delay, s->job->seed, (uint32_t)a->worker, a->task, s->steps);
    *finish = at + sim_ns(seconds * pl_part_work(s->job, sim_part(s, a->worker)));
    if (replicas && pl_replica_task(replicas, a->worker).base_pending) {
        int rc = sim_push(s, at, SIM_BASE_READY, a->worker, a->task);
        if (rc) return rc;
    }
    return sim_push(s, *finish, s->net_matters ? SIM_COMPUTED : SIM_ARRIVE, a->worker, a->task);
}

static int sim_start(struct sim *s, const struct pl_action *a) {
    struct sim_worker *w = &s->worker[a->worker];
    uint64_t finish;
    int rc = sim_schedule(s, a, &finish);
    if (rc || !s->store) return rc;
    if (a->from == PL_FETCH) {
        pl_store_release(s->store, w->held);
        w->held = pl_store_newest(s->store);
        pl_store_hold(w->held);
    }
    w->now->base = s->peers ? pl_sim_peers_base(s->peers, a->worker) : NULL;
    if (w->now->memory.n == 0 && pl_local_state_new(s->job, &w->now->memory))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for what worker %d keeps", a->worker + 1);
    w->now->memory.applied = w->applied;
    if (pl_prefetch_start(s->prefetch, w->now, (uint32_t)a->worker, a->task, w->held,
                          (struct pl_part){a->row, a->col}, finish))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the work queue");
    return PL_OK;
}

static int sim_take(struct sim *s, const struct pl_action *a) {
    struct sim_worker *w = &s->worker[a->worker];
    if (s->peers) /* it counts; what it brought is its own */
        return pl_store_take(s->store, pl_control_taken(s->control, a), w->held, w->held->model)
                   ? pl_fail(s->why, PL_ENOMEM, "out of memory for the group")
                   : PL_OK;
    if (s->n_group == s->room_group) {
        size_t room = s->room_group ? 2 * s->room_group : 64;
        struct pl_group_vector *grown = realloc(s->group, room * sizeof *grown);
        if (!grown) return pl_fail(s->why, PL_ENOMEM, "out of memory for the group");
        s->group = grown;
        s->room_group = room;
    }
    const struct pl_member *m = pl_control_taken(s->control, a);
    struct pl_range range[PL_RANGES];
    int n = pl_part_ranges(s->job, w->now->part, range);
    int rc = pl_part_is(w->now->part) ? pl_store_take_part(s->store, m, range, n, w->now->vector)
                                      : pl_store_take(s->store, m, w->held, w->now->vector);
    if (rc) return pl_fail(s->why, PL_ENOMEM, "out of memory for the group");
    s->group[s->n_group++] = (struct pl_group_vector){a->worker, w->now->vector};
    w->taken = a->task;
    w->n_rejected = 0;
    if (s->mean) pl_drift_took(&s->out->spread, w->now->vector, s->job->model->dim);
    w->now->vector = NULL;
    return PL_OK;
}

static int sim_commit(struct sim *s, const struct pl_action *a, struct pl_measure *measure) {
    if (pl_task_forge(s->job, s->group, (int)s->n_group) ||
        pl_store_commit(s->store, a->factor, measure))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for version %llu of the model",
                       (unsigned long long)a->version);
    while (s->n_group > 0) {
        struct sim_worker *w = &s->worker[s->group[--s->n_group].worker];
        pl_prefetch_give_back(s->prefetch, s->group[s->n_group].vector);
        w->applied = w->taken;
    }
    pl_job_tell_median(s->job, s->store, &s->told_median);
    return PL_OK;
}

static int sim_event(struct sim *s, const struct pl_event *e);

static int sim_execute(struct sim *s, const struct pl_plan *plan) {
    struct pl_measure measure;
    bool committed = false;
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        int rc = PL_OK;
        switch (a->verb) {
        case PL_TAKE:
            if (s->store) rc = sim_take(s, a);
            break;
        case PL_DEFER: break;
        case PL_DROP:
            if (s->store) {
                pl_prefetch_give_back(s->prefetch, s->worker[a->worker].now->vector);
                s->worker[a->worker].now->vector = NULL;
            }
            break;
        case PL_COMMIT:
            committed = true;
            s->n_rejected = 0;
            s->out->last_update = sim_seconds(s->now_ns);
            s->ready_ns = s->now_ns + sim_ns(s->job->update_time);
            if (s->store && s->cancels == PL_CANCELS_ALL) pl_prefetch_need(s->prefetch, 0);
            if (s->store) rc = sim_commit(s, a, &measure);
            if (a->version == s->job->limits.updates) sim_over(s);
            break;
        case PL_START: rc = sim_start(s, a); break;
        case PL_CANCEL:
            if (s->store) pl_prefetch_drop(s->prefetch, s->worker[a->worker].now);
            break;
        case PL_STOP: sim_over(s); break;
        default: break;
        }
        if (rc) return rc;
    }
    if (committed && s->store && s->job->limits.epochs > 0 &&
        pl_store_epochs(s->store) >= s->job->limits.epochs)
        sim_over(s);
    if (committed && s->store && pl_control_measures(s->control)) {
        struct pl_event e = {.kind = PL_MEASURED, .now_ns = s->now_ns, .measure = measure};
        return sim_event(s, &e);
    }
    return PL_OK;
}

/* A plan holds at most one commit and PL_MEASURED leads to none, so this nests once at most. */
static int sim_event(struct sim *s, const struct pl_event *e) {
    const struct pl_plan *plan;
    int rc = pl_control_step(s->control, e, &plan, s->why);
    return rc ? rc : sim_execute(s, plan);
}

/* --- events ------------------------------------------------------------------------------ */

/* Tasks that will surely arrive: what the open group still waits for, where its end cancels all. */
static int sim_sure(const struct sim *s) {
    const struct pl_view *v = pl_control_view(s->control);
    if (s->cancels != PL_CANCELS_ALL) return v->n_workers;
    return v->knobs.k > v->n_taken ? v->knobs.k - v->n_taken : 1;
}

/* The vector of `e` is of no use: it is not finite, or it was rejected when it was recorded. */
static void sim_reject(struct sim *s, struct pl_event *e) {
    struct sim_worker *w = &s->worker[e->worker];
    e->kind = PL_REJECT;
    if (!s->warned && !w->now->finite)
        pl_log_warn(&s->job->log,
                    "worker %d brought a gradient that is not finite at %g s, task %llu; it is "
                    "rejected, as all such are from now on without a word",
                    e->worker + 1, sim_seconds(s->now_ns), (unsigned long long)e->task);
    s->warned = s->warned || !w->now->finite;
    pl_prefetch_drop(s->prefetch, w->now);
    /* the model itself is no longer finite: nobody will ever bring a sound gradient */
    if (pl_part_diverged(s->job, ++s->n_rejected, ++w->n_rejected)) {
        s->out->diverged = true;
        sim_over(s);
    }
}

/* A sound vector is sent, and believed or not. */
static int sim_judge(struct sim *s, struct pl_event *e) {
    struct sim_worker *w = &s->worker[e->worker];
    bool believed;
    pl_local_state_acked(&w->now->memory); /* whatever becomes of it */
    int rc = pl_filter_see(s->filter, e->worker, pl_store_newest(s->store), w->held, w->now->vector,
                           &believed);
    if (rc == PL_ENOMEM) return pl_fail(s->why, rc, "out of memory for the filter");
    if (rc)
        return pl_fail(s->why, rc < 0 ? rc : PL_EUSAGE,
                       "the gradient of the filter's own samples failed with status %d", rc);
    e->kind = believed ? PL_ARRIVE : PL_REJECT;
    if (believed) return PL_OK;
    pl_prefetch_give_back(s->prefetch, w->now->vector);
    w->now->vector = NULL;
    if (pl_filter_stuck(s->filter)) {
        pl_filter_trouble(s->filter, sim_seconds(s->now_ns), &s->out->trouble);
        sim_over(s);
    }
    return PL_OK;
}

/* A sound model stays with its worker, where its peers can read it. */
static int sim_keep(struct sim *s, struct pl_event *e) {
    e->kind = PL_ARRIVE;
    pl_local_state_acked(&s->worker[e->worker].now->memory);
    if (pl_sim_peers_answered(s->peers, e->worker, s->worker[e->worker].now))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the models of the workers");
    return PL_OK;
}

/* A task is back: `e` says whose and which. Its vector is looked at, and control hears of it. */
static int sim_bring(struct sim *s, struct pl_event *e) {
    struct sim_worker *w = &s->worker[e->worker];
    e->loss = NAN;
    if (s->store) {
        /* recorded as not believed, it has samples, and the filter says so again */
        bool bad = e->kind == PL_REJECT && (e->samples == 0 || !s->filter);
        e->samples = pl_part_samples(s->job, sim_part(s, e->worker));
        /* this one is one less; the place it leaves is not for a task that may be cancelled */
        if (s->cancels == PL_CANCELS_ALL) pl_prefetch_need(s->prefetch, sim_sure(s) - 1);
        int rc = pl_prefetch_collect(s->prefetch, w->now);
        if (rc == PL_ENOMEM) return pl_fail(s->why, rc, "out of memory for a gradient");
        if (rc) /* only a function of the embedding program fails in any other way */
            return pl_fail(s->why, rc < 0 ? rc : PL_EUSAGE,
                           "the gradient of worker %d, task %llu, failed with status %d",
                           e->worker + 1, (unsigned long long)e->task, rc);
        e->loss = w->now->loss;
        if (!w->now->finite || bad)
            sim_reject(s, e);
        else if (s->peers)
            rc = sim_keep(s, e);
        else
            rc = sim_judge(s, e);
        if (rc) return rc;
    }
    return sim_event(s, e);
}

static int sim_arrive(struct sim *s, const struct pl_timed *t) {
    struct sim_worker *w = &s->worker[t->who];
    if (!pl_control_is_current(s->control, t->who, t->task)) return PL_OK;
    if (w->late_ns > 0) { /* it was frozen on the way */
        uint64_t when = t->when_ns + w->late_ns;
        w->late_ns = 0;
        return sim_push(s, when, (enum sim_what)t->what, t->who, t->task);
    }
    if (t->what == SIM_COMPUTED) {
        uint64_t when = pl_control_replicas(s->control)
                            ? pl_net_tell(&s->net, s->now_ns)
                            : pl_net_send_part(&s->net, PL_UP, s->now_ns, sim_size(s, t->who));
        w->comm_ns += when - s->now_ns;
        return sim_push(s, when, SIM_ARRIVE, t->who, t->task);
    }
    if (s->now_ns < s->ready_ns) { /* the server is at work */
        w->comm_ns += s->ready_ns - s->now_ns;
        return sim_push(s, s->ready_ns, SIM_ARRIVE, t->who, t->task);
    }
    struct pl_event e = {.kind = PL_ARRIVE,
                         .now_ns = s->now_ns,
                         .worker = t->who,
                         .task = t->task,
                         .comm_ns = w->comm_ns};
    return sim_bring(s, &e);
}

/* What a worker computes on is whole: its peers may read it. */
static int sim_base_ready(struct sim *s, int worker, uint64_t task) {
    struct pl_event e = {
        .kind = PL_BASE_READY, .now_ns = s->now_ns, .worker = worker, .task = task};
    if (!pl_control_is_current(s->control, worker, task)) return PL_OK;
    if (s->peers && pl_sim_peers_base_ready(s->peers, worker))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the models of the workers");
    return sim_event(s, &e);
}

/* A worker comes or goes. */
static int sim_move(struct sim *s, enum pl_event_kind kind, int worker) {
    struct sim_worker *w = &s->worker[worker];
    struct pl_event e = {.kind = kind, .now_ns = s->now_ns, .worker = worker};
    if (kind == PL_LEAVE) {
        w->frozen_until_ns = 0; /* whoever comes back comes back awake, and remembers nothing */
        const struct pl_worker *known = &pl_control_view(s->control)->worker[worker];
        if (s->store && (known->state == PL_BUSY || known->deferred))
            pl_prefetch_drop(s->prefetch, w->now);
        if (w->now) pl_local_state_forget(&w->now->memory); /* nobody computes with it any more */
    }
    return sim_event(s, &e);
}

static int sim_script(struct sim *s, const struct pl_script_line *line) {
    struct sim_worker *w = &s->worker[line->worker];
    s->n_script--;
    switch (line->verb) {
    case PL_SCRIPT_FREEZE: {
        /* where it stands still already, only what is longer counts */
        uint64_t until = s->now_ns + line->for_ns, from = s->now_ns;
        if (w->frozen_until_ns > from) from = w->frozen_until_ns;
        if (until <= from) return PL_OK;
        if (pl_control_view(s->control)->worker[line->worker].state == PL_BUSY)
            w->late_ns += until - from;
        w->frozen_until_ns = until;
        return PL_OK;
    }
    case PL_SCRIPT_LEAVE: return sim_move(s, PL_LEAVE, line->worker);
    case PL_SCRIPT_JOIN: return sim_move(s, PL_JOIN, line->worker);
    }
    return PL_OK;
}

/* Queues the next event of the recording; one at a time, so that their order is the recorded one
 * also where they happened at the same moment. */
static int sim_recall(struct sim *s) {
    s->recorded = pl_replay_next(s->replay);
    if (!s->recorded) return PL_OK;
    return sim_push(s, s->recorded->now_ns, SIM_RECORDED, s->recorded->worker, s->recorded->task);
}

static int sim_recorded(struct sim *s) {
    struct pl_event e = *s->recorded;
    int rc = PL_OK;
    if (e.kind == PL_JOIN || e.kind == PL_LEAVE)
        rc = sim_move(s, e.kind, e.worker);
    else if (e.kind == PL_BASE_READY)
        rc = sim_base_ready(s, e.worker, e.task);
    else if (e.kind == PL_TIMER)
        rc = sim_event(s, &e);
    else if (pl_control_is_current(s->control, e.worker, e.task))
        rc = sim_bring(s, &e);
    return rc ? rc : sim_recall(s);
}

static bool sim_awaits(const void *ctx, const struct pl_timed *t) {
    const struct sim *s = ctx;
    return (t->what != SIM_ARRIVE && t->what != SIM_COMPUTED && t->what != SIM_BASE_READY) ||
           pl_control_is_current(s->control, t->who, t->task);
}

/* Entries of cancelled and lost tasks stay in the queue until their time comes; where they are most
 * of it (every K-sync update leaves P - K of them), they are thrown out. */
static void sim_tidy(struct sim *s) {
    size_t n_awaited = (size_t)pl_n_busy(pl_control_view(s->control)) + s->n_script + 1;
    if (s->heap.n > SIM_QUEUE && s->heap.n / 2 > n_awaited) pl_heap_keep(&s->heap, sim_awaits, s);
}

/* What the event after this one will most likely read: with many workers it is in no cache. */
static void sim_foresee(const struct sim *s) {
    const struct pl_timed *t = pl_heap_top(&s->heap);
    if (!t) return;
    __builtin_prefetch(&s->worker[t->who]);
    __builtin_prefetch(&pl_control_view(s->control)->worker[t->who]);
}

/* A run that only time can end must not stand still in time. */
static int sim_moves(const struct sim *s) {
    const struct pl_limits *l = &s->job->limits;
    if (s->replay || l->updates > 0 || l->epochs > 0 ||
        s->n_still < SIM_STILL + 10 * (uint64_t)s->job->n_workers)
        return PL_OK;
    return pl_fail(s->why, PL_ERUN,
                   "virtual time stands still at %g s, because tasks take none; give the delay a "
                   "length or the run a number of updates",
                   sim_seconds(s->now_ns));
}

/* When the clock ends the run. */
static uint64_t sim_until(const struct sim *s) {
    if (s->replay) return pl_replay_until(s->replay);
    return s->job->limits.seconds > 0 ? sim_ns(s->job->limits.seconds) : SIM_END_NS;
}

/* When the policy is to be woken. It is the one thing that is not queued: it is often set anew, and
 * comes after all else of its moment. In a replay it comes with the recording. */
static uint64_t sim_timer(const struct sim *s) {
    return s->replay ? PL_NO_TIMER : pl_control_view(s->control)->timer_ns;
}

/* When something happens next; UINT64_MAX: nothing does. */
static uint64_t sim_next(const struct sim *s) {
    const struct pl_timed *t = pl_heap_top(&s->heap);
    uint64_t timer_ns = sim_timer(s);
    return t && t->when_ns <= timer_ns ? t->when_ns : timer_ns;
}

static struct pl_timed sim_pop(struct sim *s) {
    const struct pl_timed *t = pl_heap_top(&s->heap);
    if (t && t->when_ns <= sim_timer(s)) return pl_heap_pop(&s->heap);
    return (struct pl_timed){.when_ns = sim_timer(s), .what = SIM_TIMER};
}

static int sim_wake(struct sim *s) {
    struct pl_event e = {.kind = PL_TIMER, .now_ns = s->now_ns};
    return sim_event(s, &e);
}

static int sim_loop(struct sim *s) {
    uint64_t end_ns = sim_until(s);
    while (sim_next(s) != UINT64_MAX && !s->ended) {
        if (sim_next(s) > end_ns) {
            s->now_ns = end_ns;
            if (end_ns == SIM_END_NS)
                return pl_fail(s->why, PL_ERUN,
                               "the virtual clock ran out after 285 years; use shorter delays");
            break;
        }
        struct pl_timed t = sim_pop(s);
        sim_foresee(s);
        s->n_still = t.when_ns == s->now_ns ? s->n_still + 1 : 0;
        s->now_ns = t.when_ns;
        s->n_events++;
        int rc = sim_moves(s);
        if (rc) return rc;
        switch ((enum sim_what)t.what) {
        case SIM_ARRIVE:
        case SIM_COMPUTED: rc = sim_arrive(s, &t); break;
        case SIM_RECORDED: rc = sim_recorded(s); break;
        case SIM_BASE_READY: rc = sim_base_ready(s, t.who, t.task); break;
        case SIM_TIMER: rc = sim_wake(s); break;
        case SIM_SCRIPT: rc = sim_script(s, &s->conf->script->line[t.task]); break;
        case SIM_EVAL:
            sim_evaluate(s);
            rc = sim_push(s, s->now_ns + s->eval_ns, SIM_EVAL, 0, 0);
            break;
        }
        if (rc) return rc;
        if (pl_control_view(s->control)->n_alive == 0 && s->n_script == 0 && !s->replay)
            return pl_fail(s->why, PL_ERUN, "every worker has left at %g s and none will join",
                           sim_seconds(s->now_ns));
        if (s->store) pl_prefetch_need(s->prefetch, sim_sure(s));
        sim_tidy(s);
        sim_tick(s);
    }
    if (s->replay && !s->ended) s->now_ns = end_ns;
    return PL_OK;
}

/* --- beginning and end ------------------------------------------------------------------- */

/* Everybody joins who is there at first: whoever has no line in the script, or whose first line is
 * not a join. */
static int sim_joins(struct sim *s) {
    int n_workers = s->job->n_workers, rc = PL_OK;
    bool *absent = calloc((size_t)n_workers, sizeof *absent);
    if (!absent) return pl_fail(s->why, PL_ENOMEM, "out of memory for %d workers", n_workers);
    for (size_t i = s->n_script; i-- > 0;) { /* backwards, so that the first has the last word */
        const struct pl_script_line *line = &s->conf->script->line[i];
        absent[line->worker] = line->verb == PL_SCRIPT_JOIN;
    }
    for (int i = 0; !rc && i < n_workers; i++)
        if (!absent[i]) rc = sim_move(s, PL_JOIN, i);
    free(absent);
    return rc;
}

static int sim_begin(struct sim *s) {
    const struct pl_job *job = s->job;
    const struct pl_policy *policy = (const struct pl_policy *)job->policy.entry;
    s->cancels = policy->cancels ? policy->cancels(job->policy.conf) : PL_CANCELS_NONE;
    s->steps = pl_job_steps(job);
    int rc = pl_control_new(policy, job->policy.conf, (const struct pl_tuner *)job->tuner.entry,
                            job->tuner.conf, job->n_workers, job->seed, &s->control, s->why);
    if (!rc && s->conf->replay)
        rc = pl_replay_new(s->conf->replay, job->n_workers, s->conf->check, &s->replay, s->why);
    if (rc) return rc;
    if (s->conf->from) {
        rc = pl_job_restored(pl_control_archive(s->control, &s->conf->from->archive), s->why);
        if (rc) return rc;
        s->now_ns = pl_control_view(s->control)->now_ns;
    }
    pl_control_on_event(s->control, s->conf->events, s->conf->events_ctx);
    if (s->replay) pl_control_on_event(s->control, pl_replay_event, s->replay);
    s->worker = calloc((size_t)job->n_workers, sizeof *s->worker);
    if (!s->worker)
        return pl_fail(s->why, PL_ENOMEM, "out of memory for %d workers", job->n_workers);
    for (int i = 0; s->prefetch && i < job->n_workers; i++)
        s->worker[i].now = &pl_prefetch_tasks(s->prefetch)[i];
    pl_net_init(&s->net, &s->conf->net, job->model ? job->model->dim : 0);
    s->net_matters = pl_net_matters(&s->net);
    s->n_script = s->conf->script && !s->replay ? s->conf->script->n : 0;
    for (size_t i = 0; !rc && i < s->n_script; i++)
        rc = sim_push(s, s->conf->script->line[i].when_ns, SIM_SCRIPT, 0, i);
    if (!rc && s->store && job->eval_every > 0) {
        s->eval_ns = sim_ns(job->eval_every) > 0 ? sim_ns(job->eval_every) : 1;
        rc = sim_push(s, 0, SIM_EVAL, 0, 0);
    }
    const float *from = s->conf->from ? s->conf->from->weights : NULL;
    if (!rc && s->store && pl_sim_peers_new(job, s->control, s->prefetch, from, &s->peers))
        rc = pl_fail(s->why, PL_ENOMEM, "out of memory for the models of the workers");
    if (s->store) pl_prefetch_need(s->prefetch, 0);
    if (!rc) rc = s->replay ? sim_recall(s) : sim_joins(s);
    if (s->store) pl_prefetch_need(s->prefetch, sim_sure(s));
    return rc;
}

static int sim_filter(struct sim *s) {
    struct pl_filter_conf conf = {.filter = s->job->filter,
                                  .dim = s->job->model->dim,
                                  .n_workers = s->job->n_workers,
                                  .trusted = pl_reference_gradient};
    int rc = pl_reference_new(s->job, &s->reference);
    conf.ctx = s->reference;
    if (!rc) rc = pl_filter_new(&conf, &s->filter);
    if (!rc && s->conf->from) rc = pl_filter_archive(s->filter, &s->conf->from->archive);
    return rc ? pl_fail(s->why, rc, "out of memory for the filter") : PL_OK;
}

/* Version 0, the store and the threads. */
static int sim_model(struct sim *s) {
    const struct pl_job *job = s->job;
    float *w0 = malloc((job->model->dim + 1) * sizeof *w0);
    if (!w0) return pl_fail(s->why, PL_ENOMEM, "out of memory for the model");
    if (s->conf->from)
        memcpy(w0, s->conf->from->weights, job->model->dim * sizeof *w0);
    else
        job->model->kind->init(job->model, job->seed, w0);
    struct pl_store_conf conf = pl_job_store(job);
    int rc = pl_store_new(&conf, w0, &s->store, s->why);
    free(w0);
    if (!rc && s->conf->from)
        rc = pl_job_restored(pl_store_archive(s->store, &s->conf->from->archive), s->why);
    if (!rc) rc = sim_filter(s);
    if (!rc && job->spread && !(s->mean = pl_vector_new(job->model->dim)))
        rc = pl_fail(s->why, PL_ENOMEM, "out of memory for the spread");
    return rc ? rc : pl_prefetch_new(job, &s->prefetch, s->why);
}

static int sim_end(struct sim *s) {
    size_t dim = s->store ? s->job->model->dim : 0;
    const float *w = s->store ? sim_model_now(s) : NULL;
    if (s->store && !w) return pl_fail(s->why, PL_ENOMEM, "out of memory for the weights");
    if (s->store) s->out->computed = pl_prefetch_computed(s->prefetch);
    s->out->filtered = pl_filter_n(s->filter);
    return pl_outcome_end(s->out, s->control, s->store, w, dim, s->now_ns)
               ? pl_fail(s->why, PL_ENOMEM, "out of memory for the weights")
               : PL_OK;
}

int pl_sim_run(const struct pl_sim_conf *conf, struct pl_outcome *out, struct pl_why *why) {
    struct sim s = {
        .conf = conf, .job = conf->job, .why = why, .scored_ns = UINT64_MAX, .out = out};
    *out = pl_outcome_none();
    uint64_t fpu = pl_fpu_flush();
    int rc = conf->job->model ? sim_model(&s) : PL_OK;
    if (!rc) rc = sim_begin(&s);
    if (!rc) rc = sim_loop(&s);
    for (int i = 0; s.prefetch && s.worker && i < conf->job->n_workers; i++)
        pl_prefetch_drop(s.prefetch, s.worker[i].now);
    if (!rc) sim_evaluate(&s);
    if (!rc) rc = sim_end(&s);
    if (!rc && s.replay)
        pl_replay_end(s.replay, out->updates, out->weights, s.store ? s.job->model->dim : 0);
    for (size_t i = 0; i < s.n_group; i++) pl_prefetch_give_back(s.prefetch, s.group[i].vector);
    pl_sim_peers_free(s.peers);
    pl_prefetch_free(s.prefetch);
    pl_filter_free(s.filter);
    pl_reference_free(s.reference);
    pl_store_free(s.store);
    pl_control_free(s.control);
    pl_replay_free(s.replay);
    pl_heap_free(&s.heap);
    free(s.worker);
    free(s.group);
    free(s.mean);
    pl_fpu_restore(fpu);
    return rc;
}
