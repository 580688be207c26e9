#include "run/server.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/filter.h"
#include "learn/reference_gradient.h"
#include "observe/stragglers.h"
#include "run/leases.h"
#include "run/membership.h"
#include "run/saver.h"
#include "run/scorer.h"
#include "run/shards.h"
#include "sys/clock.h"
#include "sys/fpu.h"
#include "sys/pool.h"
#define SERVER_TICK 100000000u         /* ns between two looks at the watch */
#define SERVER_SECOND 1000000000u      /* ns between two looks at everything else */
#define SHUTDOWN_GRACE_NS 2000000000u  /* ns that workers have to leave at the end */
#define SERVER_SHARE 131072            /* parameters that are worth waking a thread for */
#define NO_WORKERS_GRACE_NS 200000000u /* ns without a worker that may be the end of all of us */
#define FILTER_STUCK_NS 10000000000u   /* ns without anybody believed that may be chance */
#define SERVER_NAMED 3                 /* workers named for bringing what will not do */

struct server_worker {
    uint64_t n_rejected; /* in a row */
    bool warned;         /* of a result that will not do */
};

struct server {
    const struct pl_server_conf *conf;
    const struct pl_job *job;
    const struct pl_transport *t;
    struct pl_why *why;
    struct pl_port *port;
    struct pl_membership membership;
    struct pl_control *control;
    struct pl_store *store;
    struct pl_reference *reference; /* of the filter; NULL: it needs none */
    struct pl_filter *filter;       /* NULL: everybody is believed */
    struct pl_leases *leases;
    struct pl_peers *peers;   /* where workers have models of their own; or NULL */
    float *mean;              /* [dim] of those, at the end */
    struct pl_shards shared;  /* what the servers share, and */
    struct pl_shards *shards; /* that where there are others; NULL: there are none */
    float *whole;             /* [dim] what is being scored, where there are others */
    struct pl_pool *pool;     /* commits are split over; NULL: none are */
    struct pl_scorer *scorer;
    struct pl_saver *saver; /* NULL: no checkpoints */
    struct pl_stragglers *stragglers;
    struct server_worker *worker;
    uint64_t zero_ns;            /* the run's clock began then, */
    uint64_t last_ns;            /* and its last event was then */
    uint64_t end_ns;             /* when the last was over, before anybody was waited for */
    uint64_t tick_ns, second_ns; /* when to look next */
    uint64_t n_rejected;         /* in a row */
    uint64_t believed_ns;        /* when the filter last believed somebody */
    struct pl_version *scored;   /* what is being scored; NULL: nothing */
    struct pl_point scored_at;
    uint64_t score_ns, scored_id; /* when to score next, what was scored last */
    int n_named;
    uint64_t alone_ns; /* when it is certain that nobody is left; 0: somebody is there */
    bool ended, left_alone, told_median, stuck;
    bool mean_kept; /* what is in `mean` is the end's */
    struct pl_outcome *out;
};

static uint64_t server_now(const struct server *s) {
    uint64_t now = pl_now_ns() - s->zero_ns;
    return now > s->last_ns ? now : s->last_ns;
}

/* --- commits on all cores ---------------------------------------------------------------- */

/* The pool is made after the store. */
static void server_team(void *ctx, int n, void (*job)(void *arg, int i), void *arg) {
    const struct server *s = ctx;
    pl_pool_team(s->pool, n, job, arg);
}

/* How many threads a commit is split over. */
static int server_threads(const struct server *s) {
    size_t most = s->job->model->dim / SERVER_SHARE;
    return most < (size_t)s->job->n_threads ? (int)most : s->job->n_threads;
}

static float *server_place(void *ctx) {
    struct server *s = ctx;
    return s->t->port.vector(s->port, -1);
}

/* --- carrying out plans ------------------------------------------------------------------ */

static int server_event(struct server *s, struct pl_event *e);

static int server_memory(const struct server *s) {
    return pl_fail(s->why, PL_ENOMEM, "out of memory at update %llu",
                   (unsigned long long)pl_control_view(s->control)->version);
}

static int server_unanswered(const struct server *s) {
    return pl_fail(s->why, PL_ERUN, "a server did not answer at update %llu",
                   (unsigned long long)pl_control_view(s->control)->version);
}

/* An update that takes its time, as --update-time wants it. */
static void server_linger(struct server *s) {
    uint64_t until = pl_now_ns() + (uint64_t)llround(s->job->update_time * 1e9);
    for (uint64_t now; (now = pl_now_ns()) < until && !s->ended;) {
        pl_sleep_ns(until - now < SERVER_TICK ? until - now : SERVER_TICK);
        struct pl_point p = pl_point_now(s->control, s->store, server_now(s));
        if (until - now > SERVER_TICK && s->conf->watch.tick &&
            s->conf->watch.tick(s->conf->watch.ctx, &p))
            s->ended = true;
    }
}

static int server_commit(struct server *s, const struct pl_action *a, struct pl_measure *measure) {
    if (s->job->update_time > 0) server_linger(s);
    pl_shards_commit(s->shards, a->factor);
    int rc = pl_leases_commit(s->leases, a->factor, measure);
    if (rc) return rc == PL_ERUN ? server_unanswered(s) : server_memory(s);
    pl_job_tell_median(s->job, s->store, &s->told_median);
    s->n_rejected = 0;
    s->out->last_update = (double)s->last_ns * 1e-9;
    const struct pl_limits *l = &s->job->limits;
    if (l->updates > 0 && a->version >= l->updates) s->ended = true;
    if (l->epochs > 0 && pl_store_epochs(s->store) >= l->epochs) s->ended = true;
    return PL_OK;
}

static int server_execute(struct server *s, const struct pl_plan *plan) {
    struct pl_measure measure;
    bool committed = false;
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        int rc = PL_OK;
        switch (a->verb) {
        case PL_TAKE: {
            const struct pl_member *m = pl_control_taken(s->control, a);
            pl_shards_take(s->shards, m);
            if (pl_leases_take(s->leases, m)) rc = server_memory(s);
            break;
        }
        case PL_DROP:
        case PL_DEFER: break;
        case PL_COMMIT:
            committed = true;
            rc = server_commit(s, a, &measure);
            break;
        case PL_START:
            pl_shards_start(s->shards, a->worker, a->task, a->from);
            if (pl_leases_start(s->leases, a->worker, a->task, a->from,
                                (struct pl_part){a->row, a->col}))
                rc = server_memory(s);
            break;
        case PL_CANCEL:
            pl_shards_cancel(s->shards, a->worker);
            s->t->port.cancel(s->port, a->worker);
            break;
        case PL_STOP: s->ended = true; break;
        default: break; /* exchanges between peers are control's alone */
        }
        if (rc) return rc;
    }
    if (!committed || !pl_control_measures(s->control)) return PL_OK;
    struct pl_event e = {.kind = PL_MEASURED, .now_ns = s->last_ns, .measure = measure};
    return server_event(s, &e);
}

/* Hands an event to control and carries out what comes back. A plan holds at most one commit and
 * PL_MEASURED leads to none, so this nests once at most. */
static int server_event(struct server *s, struct pl_event *e) {
    const struct pl_plan *plan;
    /* no two events at one time: their order can be read from their times */
    if (e->kind != PL_MEASURED) {
        uint64_t now = pl_now_ns() - s->zero_ns;
        e->now_ns = s->last_ns = now > s->last_ns ? now : s->last_ns + 1;
    }
    int rc = pl_control_step(s->control, e, &plan, s->why);
    return rc ? rc : server_execute(s, plan);
}

/* --- news -------------------------------------------------------------------------------- */

static int server_join(struct server *s, int worker) {
    struct pl_event e = {.kind = PL_JOIN, .worker = worker};
    return server_event(s, &e);
}

static const char *server_defect(enum pl_defect defect) {
    switch (defect) {
    case PL_NOT_FINITE: return "that is not finite";
    case PL_WRONG_SIZE: return "of the wrong size";
    default: return "that it could not compute";
    }
}

static int server_reject(struct server *s, int worker, const struct pl_result *r) {
    struct pl_event e = {.kind = PL_REJECT, .worker = worker, .task = r->task};
    struct server_worker *w = &s->worker[worker];
    if (!w->warned && ++s->n_named == SERVER_NAMED + 1)
        pl_log_warn(&s->job->log, "other workers bring gradients that will not do, too");
    if (!w->warned && s->n_named <= SERVER_NAMED)
        pl_log_warn(&s->job->log,
                    "worker %d brought a gradient %s, task %llu; it is rejected, as all such of "
                    "this worker are from now on without a word",
                    worker + 1, server_defect(r->defect), (unsigned long long)r->task);
    w->warned = true;
    /* the model itself is no longer finite: nobody will ever bring a sound gradient */
    if (pl_part_diverged(s->job, ++s->n_rejected, ++w->n_rejected))
        s->out->diverged = s->ended = true;
    return server_event(s, &e);
}

/* Whether a sound arrival is believed; if not, it is a reject, and has samples to tell it from one
 * that is not sound. */
static int server_judge(struct server *s, struct pl_event *e) {
    const struct pl_version *base;
    float *vector = pl_leases_answer(s->leases, e->worker, &base);
    bool believed;
    int rc =
        pl_filter_see(s->filter, e->worker, pl_store_newest(s->store), base, vector, &believed);
    if (rc == PL_ENOMEM) return server_memory(s);
    if (rc)
        return pl_fail(s->why, rc < 0 ? rc : PL_EUSAGE,
                       "the gradient of the filter's own samples failed with status %d", rc);
    if (!believed) e->kind = PL_REJECT;
    /* also long enough that everybody had a turn, however short their tasks are */
    if (believed) s->believed_ns = s->last_ns;
    s->stuck = pl_filter_stuck(s->filter) && s->last_ns >= s->believed_ns + FILTER_STUCK_NS;
    if (s->stuck) s->ended = true;
    return PL_OK;
}

/* Its base is complete: from now on others that mix with it can read it. */
static int server_base(struct server *s, int worker, uint64_t task) {
    struct pl_event e = {.kind = PL_BASE_READY, .worker = worker, .task = task};
    return s->peers && pl_control_is_current(s->control, worker, task) ? server_event(s, &e)
                                                                       : PL_OK;
}

static int server_result(struct server *s, int worker, const struct pl_result *r) {
    pl_membership_answered(&s->membership, worker);
    if (!pl_control_is_current(s->control, worker, r->task)) return PL_OK;
    s->out->computed++;
    if (r->defect != PL_NO_DEFECT) return server_reject(s, worker, r);
    s->worker[worker].n_rejected = 0;
    uint64_t now = pl_now_ns(), comm = now > r->pushed_ns ? now - r->pushed_ns : 0;
    /* its order may have waited for an update to be made */
    uint64_t began = s->zero_ns + pl_control_view(s->control)->worker[worker].since_ns;
    if (r->pulled_ns > began) comm += r->pulled_ns - began;
    struct pl_event e = {.kind = PL_ARRIVE,
                         .worker = worker,
                         .task = r->task,
                         .comm_ns = comm,
                         .samples = r->samples,
                         .loss = r->loss};
    pl_leases_acked(s->leases, worker, r->task);
    int rc = s->peers ? PL_OK : server_judge(s, &e);
    return rc ? rc : server_event(s, &e);
}

/* Makes those that are due. Not while a version is scored: a process that is forked while a thread
 * is inside the linear algebra library inherits its locks as they are, and may wait for one that
 * nobody gives back. */
static void server_make(struct server *s) {
    if (s->t->processes && s->scorer && pl_scorer_busy(s->scorer)) return;
    pl_membership_make(&s->membership);
}

static int server_gone(struct server *s, int worker) {
    s->worker[worker].warned = false;
    s->worker[worker].n_rejected = 0;
    struct pl_event e = {.kind = PL_LEAVE, .worker = worker};
    int rc = PL_OK;
    pl_shards_gone(s->shards, worker);
    pl_leases_gone(s->leases, worker);
    if (pl_control_view(s->control)->worker[worker].state != PL_GONE) rc = server_event(s, &e);
    pl_membership_gone(&s->membership, worker);
    return rc;
}

static int server_news(struct server *s, const struct pl_news *n) {
    switch (n->kind) {
    case PL_NEWS_NONE: return PL_OK;
    case PL_NEWS_JOINED:
        pl_membership_here(&s->membership, n->worker);
        return server_join(s, n->worker);
    case PL_NEWS_BASE: return server_base(s, n->worker, n->result.task);
    case PL_NEWS_RESULT: return server_result(s, n->worker, &n->result);
    case PL_NEWS_GONE: return server_gone(s, n->worker);
    }
    return PL_OK;
}

/* --- scoring and watching ---------------------------------------------------------------- */

static void server_scored(struct server *s) {
    struct pl_score score = pl_scorer_wait(s->scorer);
    bool reached = pl_outcome_score(s->out, &s->job->limits, &score, &s->scored_at);
    s->scored_id = s->scored->id;
    pl_version_unpin(s->scored);
    s->scored = NULL;
    if (s->conf->watch.point) s->conf->watch.point(s->conf->watch.ctx, &s->scored_at);
    if (reached) s->ended = true;
}

/* The mean of the workers' own models. One that does not come ends the run. */
static float *server_mean(struct server *s, float *out) {
    if (!s->mean_kept && pl_peers_mean(s->peers, out, &s->out->consensus)) s->ended = true;
    return out;
}

static int server_mean_to_save(void *ctx, float *out) {
    struct server *s = ctx;
    double consensus;
    return pl_peers_mean(s->peers, out, &consensus);
}

/* The newest version goes to the scorer; the score is that of this moment, whenever it comes. */
static void server_score(struct server *s) {
    uint64_t now = server_now(s);
    s->scored = pl_store_newest(s->store);
    pl_version_pin(s->scored);
    s->scored_at = pl_point_now(s->control, s->store, now);
    const float *model = s->scored->model;
    if (s->peers) {
        model = server_mean(s, s->mean_kept ? s->mean : s->whole);
        s->scored_at.consensus = s->out->consensus;
    } else if (s->shards) {
        /* a server that does not answer is missed at the next commit, and at the end */
        if (pl_shards_model(s->shards, s->scored, s->whole)) s->ended = s->shards->failed = true;
        model = s->whole;
    }
    pl_scorer_send(s->scorer, model);
}

static void server_look_at_scores(struct server *s, uint64_t now) {
    if (s->scored && !pl_scorer_busy(s->scorer)) {
        uint64_t took = now - (uint64_t)llround(s->scored_at.time * 1e9);
        server_scored(s);
        /* scoring takes at most half of the time, however often it is wanted */
        if (s->score_ns < now + took) s->score_ns = now + took;
    }
    if (s->scored || now < s->score_ns || !(s->job->eval_every > 0)) return;
    s->score_ns = now + (uint64_t)llround(s->job->eval_every * 1e9);
    server_score(s);
}

static void server_second(struct server *s, uint64_t now) {
    struct pl_stragglers_found found;
    char sentence[200];
    while (pl_stragglers_look(s->stragglers, pl_control_view(s->control), now, &found)) {
        pl_stragglers_sentence(&found, pl_membership_phase(&s->membership, found.worker), sentence,
                               sizeof sentence);
        pl_log_warn(&s->job->log, "%s", sentence);
    }
    pl_membership_look(&s->membership);
    if (s->saver) pl_saver_look(s->saver, s->control, s->store, now);
    if (s->conf->second) s->conf->second(s->conf->second_ctx, now);
}

/* What is due by the clock. */
static void server_look(struct server *s) {
    uint64_t now = server_now(s);
    const struct pl_limits *l = &s->job->limits;
    server_look_at_scores(s, now);
    if (l->seconds > 0 && (double)now * 1e-9 >= l->seconds) s->ended = true;
    if (now >= s->tick_ns) {
        s->tick_ns = now + SERVER_TICK;
        struct pl_point p = pl_point_now(s->control, s->store, now);
        if (s->conf->watch.tick && s->conf->watch.tick(s->conf->watch.ctx, &p)) s->ended = true;
    }
    if (now >= s->second_ns) {
        s->second_ns = now + SERVER_SECOND;
        server_second(s, now);
    }
}

static uint64_t server_timer(const struct server *s) {
    return pl_control_view(s->control)->timer_ns;
}

/* The policy is woken where it is time, before anything that came later. */
static int server_ring(struct server *s) {
    struct pl_event e = {.kind = PL_TIMER};
    return server_now(s) >= server_timer(s) ? server_event(s, &e) : PL_OK;
}

static uint64_t server_wait(const struct server *s) {
    uint64_t now = server_now(s), until = s->tick_ns;
    if (!s->scored && s->score_ns < until) until = s->score_ns;
    if (server_timer(s) < until) until = server_timer(s);
    if (s->job->limits.seconds > 0) {
        uint64_t end = (uint64_t)llround(s->job->limits.seconds * 1e9);
        if (end < until) until = end;
    }
    return until > now ? until - now : 0;
}

/* Whoever ends all of a run's processes together ends the workers first at times: before nobody is
 * left, there is a moment in which the watch can say so. */
static void server_look_for_workers(struct server *s) {
    /* whoever was not made here, as ranks are, does not come back */
    bool all_lost = s->membership.n_lost == s->job->n_workers || !s->membership.launch;
    bool alone = s->membership.n_here == 0 && all_lost && !s->conf->listen;
    uint64_t now = server_now(s);
    if (!alone)
        s->alone_ns = 0;
    else if (s->alone_ns == 0)
        s->alone_ns = now + NO_WORKERS_GRACE_NS;
    else if (now >= s->alone_ns && !s->ended)
        s->left_alone = s->ended = true;
}

static int server_loop(struct server *s) {
    while (!s->ended) {
        struct pl_news news;
        s->t->port.news(s->port, server_wait(s), &news);
        int rc = server_ring(s);
        if (!rc) rc = server_news(s, &news);
        if (rc) return rc;
        if (s->saver && pl_saver_due(s->saver, pl_control_view(s->control)->version))
            pl_saver_look(s->saver, s->control, s->store, server_now(s));
        if (s->membership.n_due > 0 && !s->ended) server_make(s);
        server_look(s);
        server_look_for_workers(s);
    }
    return PL_OK;
}

/* --- beginning --------------------------------------------------------------------------- */

static int server_shards(struct server *s) {
    if (s->shared.cut.n == 1) return PL_OK;
    s->shared.port = s->port;
    s->shared.whole = malloc(s->job->model->dim * sizeof *s->shared.whole);
    s->whole = malloc(s->job->model->dim * sizeof *s->whole);
    if (!s->shared.whole || !s->whole)
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the model");
    s->shards = &s->shared;
    return PL_OK;
}

/* What the run begins with, the caller's to free() also where it fails. */
static int server_first(const struct server *s, float **w0) {
    const struct pl_job *job = s->job;
    *w0 = malloc(job->model->dim * sizeof **w0);
    if (!*w0) return pl_fail(s->why, PL_ENOMEM, "out of memory for the model");
    if (s->conf->from) return pl_saved_weights(s->conf->from, job->model, *w0, s->why);
    job->model->kind->init(job->model, job->seed, *w0);
    return PL_OK;
}

/* Everybody begins with the same; what it is a checkpoint of may have been the mean. */
static int server_peers(struct server *s) {
    if (!pl_job_peers(s->job)) return PL_OK;
    float *w0;
    int rc = server_first(s, &w0);
    s->whole = calloc(s->job->model->dim, sizeof *s->whole);
    s->mean = malloc(s->job->model->dim * sizeof *s->mean);
    if (!rc &&
        (!s->whole || !s->mean ||
         pl_peers_new(s->job, s->t, s->port, pl_control_replicas(s->control), w0, &s->peers)))
        rc = pl_fail(s->why, PL_ENOMEM, "out of memory for the models of %d workers",
                     s->job->n_workers);
    free(w0);
    pl_leases_peers(s->leases, s->peers);
    return rc;
}

static int server_store(struct server *s) {
    const struct pl_job *job = s->job;
    float *w0;
    int rc = server_first(s, &w0);
    struct pl_store_conf conf = pl_shards_store(&s->shared, 0);
    if (pl_job_peers(job)) conf = pl_job_store(job);
    conf.parallel_for = (struct pl_parallel_for){server_threads(s) > 1 ? server_team : NULL, s};
    if (!pl_job_peers(job)) conf.alloc = (struct pl_vector_alloc){server_place, s};
    if (!rc && s->shards && pl_group_scatter(s->port, w0, w0)) rc = server_unanswered(s);
    if (!rc) rc = pl_store_new(&conf, w0, &s->store, s->why);
    free(w0);
    return rc;
}

static int server_filter(struct server *s) {
    struct pl_filter_conf conf = {.filter = s->job->filter,
                                  .dim = s->job->model->dim,
                                  .n_workers = s->job->n_workers,
                                  .trusted = pl_reference_gradient};
    if (pl_reference_new(s->job, &s->reference)) return server_memory(s);
    conf.ctx = s->reference;
    return pl_filter_new(&conf, &s->filter) ? server_memory(s) : PL_OK;
}

static int server_restore(struct server *s) {
    if (!s->conf->from) return PL_OK;
    struct pl_archive archive = pl_saved_archive(s->conf->from);
    struct pl_archive shared = pl_shards_archive(s->shards, &archive);
    int rc = pl_store_archive(s->store, &shared);
    if (!rc) rc = pl_control_archive(s->control, &archive);
    if (!rc) rc = pl_filter_archive(s->filter, &archive);
    return pl_job_restored(rc, s->why);
}

static void server_wake(void *ctx) {
    struct server *s = ctx;
    s->t->port.wake(s->port);
}

static double server_slice(const void *ctx, int row, int col) {
    return pl_part_share(ctx, (struct pl_part){row, col});
}

static int server_open(struct server *s) {
    const struct pl_job *job = s->job;
    s->shared = (struct pl_shards){
        .job = job, .cut = pl_cut_of(job, s->conf->n_servers > 1 ? s->conf->n_servers : 1)};
    struct pl_port_conf port = {.listen = s->conf->listen,
                                .dim = s->shared.cut.range[0].n,
                                .range = s->shared.cut.range,
                                .n_servers = s->shared.cut.n};
    pl_leases_room(job, &port);
    s->worker = calloc((size_t)job->n_workers, sizeof *s->worker);
    if (!s->worker)
        return pl_fail(s->why, PL_ENOMEM, "out of memory for %d workers", job->n_workers);
    int rc = pl_control_new((const struct pl_policy *)job->policy.entry, job->policy.conf,
                            (const struct pl_tuner *)job->tuner.entry, job->tuner.conf,
                            job->n_workers, job->seed, &s->control, s->why);
    if (!rc) rc = s->t->port.open(&port, &s->port, s->why);
    if (!rc && pl_membership_new(job, s->t, s->port, &s->membership)) rc = server_memory(s);
    if (!rc) rc = server_shards(s);
    if (!rc) rc = server_store(s);
    if (!rc) rc = server_filter(s);
    if (!rc) rc = server_restore(s);
    if (rc) return rc;
    if (pl_leases_new(job, s->shared.cut.range[0].n, s->t, s->port, s->store, &s->leases) ||
        pl_stragglers_new(job->n_workers, &s->stragglers))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for %d workers", job->n_workers);
    if (job->grid) pl_stragglers_work(s->stragglers, server_slice, job);
    rc = server_peers(s);
    if (rc) return rc;
    for (int i = 0; i < s->conf->n_listeners; i++)
        pl_control_on_event(s->control, s->conf->listener[i].log, s->conf->listener[i].ctx);
    pl_control_on_event(s->control, pl_stragglers_event, s->stragglers);
    return PL_OK;
}

/* Threads come last: processes are made while there is but one. */
static int server_helpers(struct server *s) {
    if (pl_scorer_new(s->job, server_wake, s, &s->scorer))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the evaluation");
    int n = server_threads(s);
    if (n > 1 && pl_pool_new(n, &s->pool)) return server_memory(s);
    if (!s->conf->save_dir) return PL_OK;
    int rc = pl_saver_new(s->conf, s->shards, s->filter, server_wake, s, &s->saver, s->why);
    if (!rc && s->peers && pl_saver_from(s->saver, server_mean_to_save, s)) rc = server_memory(s);
    return rc;
}

/* Nobody begins alone what all are to begin together. */
static int server_gather(struct server *s) {
    const struct pl_job *job = s->job;
    struct pl_launch_conf conf = {job, s->t, s->port, s->conf->made, s->conf->made_ctx};
    bool listens = s->conf->listen && !s->conf->spawn;
    if (listens)
        pl_log_note(&job->log, "waiting for %d workers at %s", job->n_workers, s->conf->listen);
    struct pl_point p = pl_point_now(s->control, s->store, s->last_ns);
    s->membership.respawn = s->conf->respawn;
    return pl_membership_gather(&s->membership, s->conf->spawn ? &conf : NULL, !s->conf->spawn,
                                &s->conf->watch, &p, &s->ended, s->why);
}

static int server_begin(struct server *s) {
    int rc = server_gather(s);
    if (!rc) rc = server_helpers(s);
    /* 0, or where a checkpoint was made */
    s->believed_ns = s->last_ns = pl_control_view(s->control)->now_ns;
    s->zero_ns = pl_now_ns() - s->last_ns;
    if (rc || s->ended) return rc;
    s->tick_ns = s->last_ns + SERVER_TICK;
    s->second_ns = s->last_ns + SERVER_SECOND;
    s->score_ns = s->last_ns;
    const struct pl_limits *l = &s->job->limits;
    s->ended = (l->updates > 0 && pl_control_view(s->control)->version >= l->updates) ||
               (l->epochs > 0 && pl_store_epochs(s->store) >= l->epochs);
    if (s->ended)
        pl_log_note(&s->job->log,
                    "there is nothing left to do: the checkpoint is at update %llu already",
                    (unsigned long long)pl_control_view(s->control)->version);
    for (int i = 0; !rc && !s->ended && i < s->job->n_workers; i++)
        if (s->membership.worker[i].here) rc = server_join(s, i);
    return rc;
}

/* --- the end ----------------------------------------------------------------------------- */

/* The model goes to the disk first: whoever is in a hurry to end us has not done so yet. */
static void server_save(struct server *s) {
    if (s->saver && pl_saver_finish(s->saver, s->control, s->store, &s->out->trouble) == PL_OK)
        s->out->trouble.text[0] = '\0';
    if (s->stuck) pl_filter_trouble(s->filter, (double)s->end_ns * 1e-9, &s->out->trouble);
    if (s->left_alone)
        pl_fail(&s->out->trouble, PL_ERUN, "every worker has gone at %g s, after update %llu%s",
                (double)s->end_ns * 1e-9, (unsigned long long)pl_control_view(s->control)->version,
                s->conf->respawn ? ""
                : s->conf->spawn ? "; --respawn makes new ones"
                                 : "; --resume auto goes on from the last checkpoint");
}

/* While they can still be asked: the mean is what the run came to. */
static int server_keep_mean(struct server *s) {
    if (!s->peers) return PL_OK;
    int rc = pl_peers_mean(s->peers, s->mean, &s->out->consensus);
    s->mean_kept = rc == PL_OK;
    return rc ? pl_fail(s->why, rc, "the models of the workers could not be had at the end") : rc;
}

static int server_finish(struct server *s) {
    if (s->scored) server_scored(s);
    if (s->scorer && (s->peers || s->scored_id != pl_store_newest(s->store)->id)) {
        server_score(s);
        s->scored_at.time = (double)s->end_ns * 1e-9;
        server_scored(s);
    }
    s->out->filtered = pl_filter_n(s->filter);
    const float *weights = s->peers ? s->mean : pl_store_newest(s->store)->model;
    if (s->shards &&
        (s->shards->failed || pl_shards_model(s->shards, pl_store_newest(s->store), s->whole)))
        return server_unanswered(s);
    return pl_outcome_end(s->out, s->control, s->store, s->shards ? s->whole : weights,
                          s->job->model->dim, s->end_ns)
               ? pl_fail(s->why, PL_ENOMEM, "out of memory for the weights")
               : PL_OK;
}

static void server_close(struct server *s) {
    if (s->port) s->t->port.shutdown(s->port, SHUTDOWN_GRACE_NS);
    pl_membership_free(&s->membership);
}

int pl_server_run(const struct pl_server_conf *conf, struct pl_outcome *out, struct pl_why *why) {
    struct server s = {.conf = conf,
                       .job = conf->job,
                       .t = conf->transport,
                       .why = why,
                       .zero_ns = pl_now_ns(),
                       .scored_id = UINT64_MAX,
                       .out = out};
    *out = pl_outcome_none();
    uint64_t fpu = pl_fpu_flush();
    int rc = server_open(&s);
    if (!rc) rc = server_begin(&s);
    if (!rc) rc = server_loop(&s);
    s.end_ns = server_now(&s);
    if (!rc) server_save(&s);
    if (!rc) rc = server_keep_mean(&s);
    server_close(&s);
    if (!rc) rc = server_finish(&s);
    pl_shards_end(s.shards);
    pl_scorer_free(s.scorer);
    pl_saver_free(s.saver);
    pl_leases_free(s.leases);
    pl_peers_free(s.peers);
    pl_stragglers_free(s.stragglers);
    pl_filter_free(s.filter);
    pl_reference_free(s.reference);
    pl_store_free(s.store);
    pl_control_free(s.control);
    if (s.port) s.t->port.close(s.port);
    if (s.pool) pl_pool_free(s.pool);
    free(s.worker);
    free(s.whole);
    free(s.mean);
    free(s.shared.whole);
    pl_fpu_restore(fpu);
    return rc;
}
