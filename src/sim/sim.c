#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>

#include "base/seconds.h"
#include "sim/sim_state.h"
#include "sys/clock.h"
#include "sys/fpu.h"

#define SIM_TICK 256           /* events between calls of the watch, without a model */
#define SIM_LOOK_NS 250000000u /* between its calls while something is computed */
#define SIM_STILL 1000000      /* events at one time before the run counts as stuck */
#define SIM_CACHED 1024        /* workers that fit into the caches */
#define SIM_QUEUE 4096         /* length up to which the event queue is not cleaned up */

/* --- watching ---------------------------------------------------------------------------- */

void pl_sim_evaluate(struct sim *s) {
    struct pl_model_now m;
    if (s->stepped && !pl_engine_is_scored(s->engine, s->clock.now_ns))
        pl_stepped_evaluate(s->stepped);
    if (!s->prefetch || pl_engine_is_scored(s->engine, s->clock.now_ns)) return;
    if (pl_engine_score_again(s->engine, s->clock.now_ns)) return;
    if (pl_engine_model(s->engine, s->room, &m)) return;
    struct pl_score score;
    s->unscored = !pl_prefetch_score(s->prefetch, m.w, &score);
    if (s->unscored) {
        pl_engine_let_go(s->engine, &m);
        return;
    }
    struct pl_point p = pl_engine_point(s->engine, s->clock.now_ns);
    p.consensus = isnan(m.consensus) ? pl_prefetch_consensus(s->prefetch) : m.consensus;
    pl_engine_let_go(s->engine, &m);
    pl_engine_scored(s->engine, &score, &p);
}

static void sim_tick(struct sim *s) {
    if (!s->conf->watch.tick) return;
    struct pl_point p = pl_engine_point(s->engine, s->clock.now_ns);
    if (s->prefetch) s->ticked_ns = pl_now_ns();
    if (!s->conf->watch.tick(s->conf->watch.ctx, &p)) return;
    s->interrupted = true;
    pl_engine_end(s->engine);
    if (s->prefetch) pl_prefetch_end(s->prefetch);
}

/* An evaluation, or the gradient of a large mini-batch, may take long. */
static void sim_look(void *ctx) {
    struct sim *s = ctx;
    if (pl_now_ns() - s->ticked_ns >= SIM_LOOK_NS) sim_tick(s);
}

/* --- recordings -------------------------------------------------------------------------- */

/* Queues the next event of the recording. Only one is queued at a time, so that events of the same
 * time keep their order. */
static int sim_recall(struct sim *s) {
    s->recording.next = pl_replay_next(s->recording.replay);
    if (!s->recording.next) return PL_OK;
    return pl_sim_push(s, s->recording.next->now_ns, SIM_RECORDED, s->recording.next->worker,
                       s->recording.next->task);
}

static int sim_recorded(struct sim *s) {
    struct pl_event e = *s->recording.next;
    int rc = PL_OK;
    if (e.kind == PL_JOIN || e.kind == PL_LEAVE)
        rc = pl_sim_move(s, e.kind, e.worker);
    else if (e.kind == PL_BASE_READY)
        rc = pl_sim_base_ready(s, e.worker, e.task);
    else if (e.kind == PL_TIMER || e.kind == PL_SCORED)
        rc = pl_engine_event(s->engine, &e, NULL, s->why);
    else if (pl_is_current(s->view, e.worker, e.task))
        rc = pl_sim_bring(s, &e);
    return rc ? rc : sim_recall(s);
}

/* --- the queue --------------------------------------------------------------------------- */

static bool sim_awaits(const void *ctx, const struct pl_timed *t) {
    const struct sim *s = ctx;
    return (t->what != SIM_ARRIVE && t->what != SIM_COMPUTED && t->what != SIM_BASE_READY) ||
           pl_is_current(s->view, t->who, t->task) || pl_engine_awaits(s->engine, t->who, t->task);
}

/* Entries of cancelled and lost tasks stay in the queue until their time comes. When they are most
 * of it (every K-sync update leaves P - K of them), they are removed. */
static void sim_tidy(struct sim *s) {
    size_t n_left = (size_t)pl_engine_n(s->engine, PL_SUSPENDED);
    size_t n_awaited = (size_t)pl_n_busy(s->view) + n_left + s->n_script + 1;
    if (s->clock.heap.n / 2 > n_awaited) pl_heap_keep(&s->clock.heap, sim_awaits, s);
}

/* Prefetches what the next event will probably read: with many workers it is not in the caches. */
static void sim_foresee(const struct sim *s) {
    const struct pl_timed *t = &s->clock.heap.item[1]; /* item[0] is being handled */
    for (size_t i = 2; i < 5; i++)
        if (s->clock.heap.item[i].when_ns < t->when_ns) t = &s->clock.heap.item[i];
    __builtin_prefetch(&s->worker[t->who]);
    __builtin_prefetch(&s->view->worker[t->who]);
}

/* Fails if virtual time stands still in a run that only time can end, or in one without updates:
 * one that waits for a frozen worker, for example, while the others' tasks take no time. */
static int sim_stands(struct sim *s) {
    const struct pl_limits *l = &s->job->limits;
    bool limited = l->updates > 0 || l->epochs > 0;
    if (s->recording.replay || s->clock.n_still < SIM_STILL + 10 * (uint64_t)s->job->n_workers)
        return PL_OK;
    bool moves = limited && s->view->version > s->clock.still_version;
    s->clock.still_version = s->view->version;
    if (moves) {
        s->clock.n_still = 0;
        return PL_OK;
    }
    return pl_fail(s->why, PL_ERUN,
                   "virtual time stands still at %g s because tasks take no time%s",
                   pl_seconds(s->clock.now_ns),
                   limited ? ", and the model is no longer updated; set a --delay"
                           : "; set a --delay or limit the run with --updates");
}

/* When the clock stops. */
static uint64_t sim_until(const struct sim *s) {
    return s->recording.replay ? pl_replay_until(s->recording.replay) : SIM_END_NS;
}

/* When the engine wants to know the time. That is not queued: it often changes, and comes after
 * everything else at its time. In a replay the recording has what follows from it. */
static uint64_t sim_due(const struct sim *s) {
    if (s->recording.replay) return UINT64_MAX;
    uint64_t timer_ns = s->view->timer_ns, next_ns = s->due->next_ns;
    return timer_ns < next_ns ? timer_ns : next_ns;
}

/* Finds what happens next. Returns false if nothing does. */
static bool sim_peek(struct sim *s, struct pl_timed *out) {
    const struct pl_timed *t = pl_heap_top(&s->clock.heap);
    uint64_t due_ns = sim_due(s);
    if (t && t->when_ns <= due_ns)
        *out = *t;
    else
        *out = (struct pl_timed){.when_ns = due_ns, .what = SIM_TIME};
    return out->when_ns != UINT64_MAX;
}

/* Evaluates the model, and queues the next evaluation. In the recording of a run that stood still,
 * nothing may happen for a long time. */
static int sim_score(struct sim *s) {
    struct pl_timed t;
    uint64_t end_ns = sim_until(s);
    if (pl_engine_score_due(s->engine, s->clock.now_ns)) pl_sim_evaluate(s);
    uint64_t next_ns = sim_peek(s, &t) && t.when_ns < end_ns ? t.when_ns : end_ns;
    pl_engine_score_quiet(s->engine, s->clock.now_ns, next_ns);
    return pl_sim_push(s, s->due->score_ns, SIM_EVAL, 0, 0);
}

static int sim_handle(struct sim *s, const struct pl_timed *t) {
    switch ((enum sim_what)t->what) {
    case SIM_ARRIVE:
    case SIM_COMPUTED: return pl_sim_arrive(s, t);
    case SIM_RECORDED: return sim_recorded(s);
    case SIM_BASE_READY: return pl_sim_base_ready(s, t->who, t->task);
    case SIM_TIME: return pl_engine_time(s->engine, s->clock.now_ns, s->why);
    case SIM_SCRIPT: return pl_sim_script(s, &s->conf->script->line[t->task]);
    case SIM_EVAL: return sim_score(s);
    }
    return PL_OK;
}

static inline int sim_after(struct sim *s) {
    if (s->view->n_alive == 0 && s->n_script == 0 && !s->recording.replay &&
        pl_engine_n(s->engine, PL_SUSPENDED) == 0)
        return pl_fail(s->why, PL_ERUN, "all workers have left at %g s, and none will join",
                       pl_seconds(s->clock.now_ns));
    if (s->prefetch) pl_prefetch_need(s->prefetch, pl_sim_sure(s));
    if (s->clock.heap.n > SIM_QUEUE) sim_tidy(s);
    if (s->prefetch || s->clock.n_events % SIM_TICK == 0) sim_tick(s);
    return s->crossing ? pl_crossing_check(s, false) : PL_OK;
}

int pl_sim_after(struct sim *s) {
    return sim_after(s);
}

int pl_sim_loop(struct sim *s) {
    uint64_t end_ns = sim_until(s);
    struct pl_timed t;
    while (!pl_engine_ended(s->engine) && sim_peek(s, &t)) {
        if (t.when_ns > end_ns) {
            s->clock.now_ns = end_ns;
            if (end_ns == SIM_END_NS)
                return pl_fail(s->why, PL_ERUN,
                               "the virtual clock ran out after 285 years; use shorter delays");
            break;
        }
        if (t.what != SIM_TIME) pl_heap_pop(&s->clock.heap);
        if (s->clock.heap.n > SIM_CACHED) sim_foresee(s);
        s->clock.n_still = t.when_ns == s->clock.now_ns ? s->clock.n_still + 1 : 0;
        s->clock.now_ns = t.when_ns;
        s->clock.n_events++;
        int rc = s->clock.n_still >= SIM_STILL ? sim_stands(s) : PL_OK;
        if (!rc) rc = sim_handle(s, &t);
        if (!rc && s->stepped && pl_stepped_waits(s->stepped)) return PL_OK;
        if (!rc) rc = sim_after(s);
        if (rc) return rc;
    }
    if (s->recording.replay && !pl_engine_ended(s->engine)) s->clock.now_ns = end_ns;
    return PL_OK;
}

/* --- beginning and end ------------------------------------------------------------------- */

/* The workers join that are present at the start: those whose first line in the script, if any, is
 * not a join. */
static int sim_joins(struct sim *s) {
    int n_workers = s->job->n_workers, rc = PL_OK;
    bool *absent = calloc((size_t)n_workers, sizeof *absent);
    if (!absent) return pl_fail(s->why, PL_ENOMEM, "out of memory for %d workers", n_workers);
    for (size_t i = s->n_script; i-- > 0;) { /* backwards, so that the first line decides */
        const struct pl_script_line *line = &s->conf->script->line[i];
        absent[line->worker] = line->verb == PL_SCRIPT_JOIN;
    }
    for (int i = 0; !rc && i < n_workers; i++)
        if (!absent[i]) rc = pl_sim_move(s, PL_JOIN, i);
    free(absent);
    return rc;
}

static int sim_engine(struct sim *s) {
    const struct pl_job *job = s->job;
    struct pl_engine_conf conf = {.job = job,
                                  .watch = s->conf->watch,
                                  .replays = s->conf->replay != NULL,
                                  .host = pl_sim_host(s)};
    const struct pl_sim_from *from = s->conf->from;
    int rc = pl_engine_new(&conf, from ? from->weights : NULL, s->out, &s->engine, s->why);
    if (rc) return rc;
    s->ticked_ns = pl_now_ns();
    if (s->prefetch && s->conf->watch.tick) pl_prefetch_look(s->prefetch, sim_look, s);
    s->view = pl_engine_view(s->engine);
    s->due = pl_engine_due(s->engine);
    if (from) rc = pl_job_restored(pl_engine_archive(s->engine, &from->archive), s->why);
    if (from) s->clock.now_ns = s->view->now_ns;
    return rc;
}

static int sim_make(struct sim *s) {
    const struct pl_job *job = s->job;
    s->server.update_ns = pl_delay_ns(job->update_time);
    s->worker = calloc((size_t)job->n_workers, sizeof *s->worker);
    if (!s->worker ||
        pl_ahead_init(&s->delays.ahead, job->delay, job->n_workers, job->seed, pl_job_steps(job)))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for %d workers", job->n_workers);
    bool computes = job->model && !s->stepped;
    int rc = computes ? pl_prefetch_new(job, &s->prefetch, s->why) : PL_OK;
    for (int i = 0; !rc && i < job->n_workers; i++) {
        s->worker[i].size = s->worker[i].work = 1;
        if (s->prefetch) s->worker[i].now = &pl_prefetch_tasks(s->prefetch)[i];
    }
    if (!rc && computes && !(s->room = pl_vector_new(job->model->dim)))
        rc = pl_fail(s->why, PL_ENOMEM, "out of memory for the model");
    if (!rc && computes && (job->limits.target_loss > 0 || job->limits.target_accuracy > 0))
        rc = pl_crossing_new(job, &s->crossing, s->why);
    if (!rc) rc = sim_engine(s);
    if (!rc && s->conf->replay)
        rc = pl_replay_new(s->conf->replay, job->n_workers, s->conf->check, &s->recording.replay,
                           s->why);
    if (rc) return rc;
    struct pl_control *control = pl_engine_control(s->engine);
    if ((s->conf->events && pl_control_on_event(control, s->conf->events, s->conf->events_ctx)) ||
        (s->recording.replay && pl_control_on_event(control, pl_replay_event, s->recording.replay)))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the event log");
    return PL_OK;
}

static int sim_begin(struct sim *s) {
    const struct pl_job *job = s->job;
    int rc = PL_OK;
    pl_net_init(&s->delays.net, &s->conf->net, job->model ? job->model->dim : 0);
    s->delays.net_matters = pl_net_matters(&s->delays.net);
    s->n_script = s->conf->script && !s->recording.replay ? s->conf->script->n : 0;
    for (size_t i = 0; !rc && i < s->n_script; i++)
        rc = pl_sim_push(s, s->conf->script->line[i].when_ns, SIM_SCRIPT, 0, i);
    if (!rc && s->due->score_ns != UINT64_MAX && !s->crossing)
        rc = pl_sim_push(s, s->due->score_ns, SIM_EVAL, 0, 0);
    if (s->prefetch) pl_prefetch_need(s->prefetch, 0);
    if (!rc) rc = s->recording.replay ? sim_recall(s) : sim_joins(s);
    if (s->prefetch) pl_prefetch_need(s->prefetch, pl_sim_sure(s));
    return !rc && s->crossing ? pl_crossing_check(s, false) : rc;
}

int pl_sim_open(struct sim *s) {
    int rc = sim_make(s);
    return rc ? rc : sim_begin(s);
}

static int sim_end(struct sim *s) {
    struct pl_model_now m = {.w = NULL};
    int rc = s->prefetch ? pl_engine_model(s->engine, s->room, &m) : PL_OK;
    if (s->prefetch) s->out->computed = pl_prefetch_computed(s->prefetch);
    if (!rc) rc = pl_engine_finish(s->engine, m.w, s->clock.now_ns);
    if (s->prefetch) pl_engine_let_go(s->engine, &m);
    if (rc) return pl_fail(s->why, PL_ENOMEM, "out of memory for the weights");
    if (s->recording.replay && s->interrupted)
        pl_replay_interrupt(s->recording.replay);
    else if (s->recording.replay)
        pl_replay_end(s->recording.replay, s->out->updates, s->out->weights,
                      s->prefetch ? s->job->model->dim : 0);
    return PL_OK;
}

void pl_sim_close(struct sim *s) {
    pl_engine_free(s->engine);
    pl_crossing_free(s->crossing);
    pl_prefetch_free(s->prefetch);
    pl_replay_free(s->recording.replay);
    pl_heap_free(&s->clock.heap);
    pl_ahead_free(&s->delays.ahead);
    free(s->worker);
    free(s->room);
}

int pl_sim_run(const struct pl_sim_conf *conf, struct pl_outcome *out, struct pl_why *why) {
    struct sim s = {.conf = conf, .job = conf->job, .why = why, .out = out};
    *out = pl_outcome_none();
    uint64_t fpu = pl_fpu_flush();
    int rc = pl_sim_open(&s);
    if (!rc) rc = pl_sim_loop(&s);
    for (int i = 0; s.prefetch && i < conf->job->n_workers; i++)
        if (s.worker[i].now) pl_prefetch_drop(s.prefetch, s.worker[i].now);
    if (!rc && s.crossing) rc = pl_crossing_check(&s, true);
    if (!rc) pl_sim_evaluate(&s);
    if (!rc && s.unscored) pl_outcome_unscored(out, &conf->job->log);
    if (!rc) rc = sim_end(&s);
    pl_sim_close(&s);
    pl_fpu_restore(fpu);
    return rc;
}
