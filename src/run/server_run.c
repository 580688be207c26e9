/* How a server begins and ends.
 *
 * Threads: the one that decides; run_wake() is called by the scorer's and the saver's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seconds.h"
#include "run/exchange.h"
#include "run/server_state.h"
#include "sys/clock.h"
#include "sys/fpu.h"

#define SHUTDOWN_GRACE_NS 2000000000u /* for workers to leave at the end */
#define RUN_WHERE 800
#define RUN_LOOK_NS 1000000u /* between two looks whether the last score is ready */

/* --- the host of an engine ---------------------------------------------------------------- */

/* Makes an update take as long as --update-time specifies. */
static void run_sleep_update_time(struct server *s) {
    uint64_t until = pl_now_ns() + pl_ns(s->job->update_time);
    for (uint64_t now; (now = pl_now_ns()) < until && !pl_engine_ended(s->engine);) {
        pl_sleep_ns(until - now < SERVER_TICK ? until - now : SERVER_TICK);
        if (until - now > SERVER_TICK && pl_server_ticks(s, pl_server_now(s)))
            pl_engine_end(s->engine);
    }
}

static void run_update(void *ctx) {
    struct server *s = ctx;
    if (s->job->update_time > 0) run_sleep_update_time(s);
}

static enum pl_removal run_remove(void *ctx, int worker, enum pl_life_event event, bool last) {
    struct server *s = ctx;
    return pl_membership_remove(&s->membership, worker, event, last);
}

/* --- beginning --------------------------------------------------------------------------- */

static int run_memory(const struct server *s) {
    return pl_fail(s->why, PL_ENOMEM, "out of memory for %d workers", s->job->n_workers);
}

/* The initial model. The caller frees it, also if this fails. */
static int run_first(struct server *s, float **w0) {
    const struct pl_job *job = s->job;
    *w0 = malloc(job->model->dim * sizeof **w0);
    if (!*w0) return pl_fail(s->why, PL_ENOMEM, "out of memory for the model");
    if (s->conf->from) return pl_saved_weights(s->conf->from, job->model, *w0, s->why);
    pl_job_first(job, *w0);
    return PL_OK;
}

static int run_engine(struct server *s) {
    s->tile_threads = pl_tile_threads_of(s->shards.cut.range[0].n, s->job->n_threads,
                                         s->conf->transport->stream, s->port);
    const struct pl_start_ops *start = s->conf->transport->start;
    struct pl_engine_conf conf = {
        .job = s->job,
        .host = pl_leases_host(s->leases, run_update, pl_server_made, run_remove, s),
        .watch = s->conf->watch,
        .gathers = true,
        .trusts_workers = start && !start->processes,
        .beat_ns = SERVER_BEAT,
        .slice = pl_shards_slice(&s->shards, 0),
        .parallel_for = pl_tile_threads_for(&s->tile_threads),
        .writes = s->conf->transport->stream ? pl_tile_threads_writes : NULL};
    float *w0;
    int rc = run_first(s, &w0);
    if (!rc && s->several && s->shards.group->scatter(s->port, w0, w0))
        rc = pl_fail(s->why, PL_ERUN, "a server did not answer at the start");
    if (!rc) rc = pl_engine_new(&conf, w0, s->out, &s->engine, s->why);
    free(w0);
    if (rc) return rc;
    s->view = pl_engine_view(s->engine);
    s->membership.engine = s->engine;
    pl_leases_engine(s->leases, s->engine);
    return PL_OK;
}

static int run_restore(struct server *s) {
    if (!s->conf->from) return PL_OK;
    struct pl_archive archive = pl_saved_archive(s->conf->from);
    int rc = s->several ? pl_shards_archive(&s->shards, s->engine, &archive)
                        : pl_engine_archive(s->engine, &archive);
    return pl_job_restored(rc, s->why);
}

/* Models that are not one version of this server need memory of their own. */
static int run_rooms(struct server *s) {
    size_t bytes = s->job->model->dim * sizeof(float);
    if (s->several && !(s->shards.whole = malloc(bytes))) return run_memory(s);
    if (!s->several && !pl_engine_needs_room(s->engine)) return PL_OK;
    s->room = malloc(bytes);
    s->end_room = malloc(bytes);
    return s->room && s->end_room ? PL_OK : run_memory(s);
}

static double run_share(const void *job, int row, int col) {
    return pl_part_share(job, (struct pl_part){row, col});
}

/* The end of the run is due, by the clock or from outside, while the port waits for a rank. */
static bool run_should_end(void *server) {
    struct server *s = server;
    if (!s->engine) return false;
    uint64_t now = pl_server_now(s);
    return pl_server_ticks(s, s->clock.last_ns) || pl_engine_ended(s->engine) ||
           now >= pl_engine_due(s->engine)->end_ns;
}

static void run_told(void *ctx) {
    const struct server *s = ctx;
    if (s->gateway) pl_gateway_told(s->gateway);
}

static int run_open(struct server *s) {
    const struct pl_job *job = s->job;
    int n_servers = s->conf->n_servers > 1 ? s->conf->n_servers : 1;
    s->several = n_servers > 1;
    s->shards = (struct pl_shards){
        .job = job, .group = s->conf->transport->group, .cut = pl_cut_of(job, n_servers)};
    struct pl_port_conf port = {.listen = s->conf->listen,
                                .starts = s->conf->n_local,
                                .dim = s->shards.cut.range[0].n,
                                .range = s->shards.cut.range,
                                .n_servers = n_servers,
                                .told = run_told,
                                .told_ctx = s,
                                .over = run_should_end,
                                .over_ctx = s};
    pl_leases_room(job, &port);
    int rc = pl_transport_check(s->conf->transport, &port, s->why);
    if (!rc) rc = pl_clients_open(s, &port);
    if (!rc) rc = s->ops->open(&port, &s->port, s->why);
    s->shards.port = s->port;
    if (!rc && pl_membership_new(job, s->conf->transport, s->port, &s->membership))
        rc = run_memory(s);
    if (!rc && (pl_leases_new(job, port.dim, s->conf->transport, s->port, &s->leases) ||
                pl_stragglers_new(job->n_workers, &s->stragglers)))
        rc = run_memory(s);
    if (!rc) rc = run_engine(s);
    if (!rc) rc = run_rooms(s);
    if (!rc) rc = run_restore(s);
    if (rc) return rc;
    struct pl_control *control = pl_engine_control(s->engine);
    pl_stragglers_work(s->stragglers, run_share, job);
    if (s->conf->events) rc = pl_control_on_event(control, s->conf->events, s->conf->events_ctx);
    if (!rc) rc = pl_control_on_event(control, pl_stragglers_event, s->stragglers);
    if (s->several) pl_control_on_decision(control, pl_shards_event, &s->shards);
    return rc ? run_memory(s) : PL_OK;
}

static void run_wake(void *ctx) {
    struct server *s = ctx;
    s->ops->wake(s->port);
}

/* Their threads are started after the processes of workers, which must be forked before. */
static int run_helpers(struct server *s) {
    if (!s->job->model->kind->by_clients && pl_scorer_new(s->job, run_wake, s, &s->scorer))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the evaluation");
    if (pl_tile_threads_start(&s->tile_threads)) return run_memory(s);
    if (!s->conf->save.dir) return PL_OK;
    struct pl_saver_model model = {pl_server_model, s, s->room != NULL};
    return pl_saver_new(s->conf, s->several ? &s->shards : NULL, &model, run_wake, s, &s->saver,
                        s->why);
}

/* News before the run begins. */
static bool run_news(void *ctx, const struct pl_news *news) {
    struct server *s = ctx;
    return pl_server_news(s, news) != PL_OK || pl_engine_ended(s->engine);
}

static int run_measure_waits(struct server *s) {
    s->waits.core.fd = -1;
    s->out->core_wait = NAN;
    pl_core_wait_open(&s->waits.core);
    if (s->waits.core.fd < 0) return PL_OK; /* this kernel does not tell */
    s->waits.known = s->conf->n_local > 0;
    s->out->core_wait = 0;
    s->waits.worker = pl_core_waited_new(s->job->n_workers);
    return s->waits.worker ? PL_OK : run_memory(s);
}

/* Opens the door for other machines. It has threads: the first processes are forked before. */
static int run_gateway(struct server *s) {
    if (!s->conf->gateway) return PL_OK;
    struct pl_gateway_conf conf = *s->conf->gateway;
    conf.moved = run_wake;
    conf.moved_ctx = s;
    int rc = pl_gateway_open(&conf, &s->gateway, s->why);
    if (!rc)
        pl_log_note(&s->job->log, "workers can join over %s on port %d",
                    s->conf->gateway->keys ? "HTTPS" : "HTTP", pl_gateway_port(s->gateway));
    return rc;
}

/* Where workers join, with the port that the system chose if 0 was given. */
static const char *run_where(const struct server *s, char out[RUN_WHERE]) {
    const char *where = s->conf->where, *address = s->gateway ? s->conf->gateway->address : NULL;
    const char *at = where && address ? strstr(where, address) : NULL;
    const char *colon = at ? strrchr(address, ':') : NULL;
    if (!colon) return where;
    snprintf(out, RUN_WHERE, "%.*s%d%s", (int)(at - where + colon + 1 - address), where,
             pl_gateway_port(s->gateway), at + strlen(address));
    return out;
}

/* Waits for the workers, so that all begin together. */
static int run_gather(struct server *s, bool *ended) {
    const struct pl_job *job = s->job;
    struct pl_launch_conf conf = {job,           s->conf->transport, s->port,
                                  s->conf->made, s->conf->made_ctx,  s->waits.worker};
    struct pl_point p = pl_engine_point(s->engine, s->clock.last_ns);
    char where[RUN_WHERE];
    s->membership.n_local = s->conf->n_local;
    s->membership.respawn = s->conf->respawn;
    s->membership.least = s->conf->min_workers;
    s->membership.wait_ns = s->conf->wait_ns;
    s->membership.news = run_news;
    s->membership.ctx = s;
    return pl_membership_gather(&s->membership, s->conf->n_local > 0 ? &conf : NULL,
                                s->conf->n_local > 0 ? NULL : run_where(s, where), &s->conf->watch,
                                &p, ended, s->why);
}

/* How many updates the server before this one has made since the checkpoint. */
static void run_lost(struct server *s) {
    struct server_versions *v = &s->versions;
    const struct pl_claim *c = s->conf->claim;
    v->began = v->known = v->noted = s->view->version;
    if (!s->conf->gateway || !c) return;
    unsigned long long began = v->began, lost = c->version - v->began;
    bool known = s->conf->from && strcmp(c->run, s->conf->gateway->run) == 0 &&
                 c->epoch + 1 >= s->conf->save.epoch && c->version >= v->began;
    if (known && lost == 0)
        pl_log_note(&s->job->log, "continuing from update %llu; no update was lost", began);
    if (known && lost > 0)
        pl_log_warn(&s->job->log,
                    "the server before this one had made update %llu, and this one continues from "
                    "update %llu: %llu update%s lost",
                    began + lost, began, lost, lost == 1 ? " was" : "s were");
    if (known) v->known = UINT64_MAX; /* no worker knows more */
    pl_claim_note(s->conf->claim, s->conf->gateway->run, s->conf->save.epoch, v->began);
}

/* Opens what has threads. What a standby has taken over is saved before any worker joins. */
static int run_threads(struct server *s) {
    struct pl_why why = {.text = ""};
    int rc = run_helpers(s);
    if (!rc && s->saver && s->conf->save.first) /* if it fails, that is reported */
        (void)pl_saver_finish(s->saver, s->engine, false, &why);
    return rc ? rc : run_gateway(s);
}

static int run_begin(struct server *s) {
    struct server_clock *c = &s->clock;
    bool ended = false;
    run_lost(s);
    int rc = run_measure_waits(s);
    if (!rc && s->conf->n_local == 0) rc = run_threads(s);
    if (!rc) rc = run_gather(s, &ended);
    if (!rc && s->conf->n_local > 0) rc = run_threads(s);
    c->last_ns = s->view->now_ns; /* 0, or the time of the checkpoint */
    c->zero_ns = pl_now_ns() - c->last_ns;
    s->interrupted = s->interrupted || ended;
    if (ended) pl_engine_end(s->engine);
    if (rc || ended) return rc;
    c->tick_ns = c->last_ns + SERVER_TICK;
    c->second_ns = c->last_ns + SERVER_SECOND;
    if (pl_engine_reached(s->engine)) {
        pl_engine_end(s->engine);
        pl_log_note(&s->job->log, "nothing left to do: the checkpoint is already at update %llu",
                    (unsigned long long)s->view->version);
    }
    return pl_engine_ended(s->engine) ? PL_OK : pl_engine_begin(s->engine, c->last_ns, s->why);
}

/* --- the end ----------------------------------------------------------------------------- */

/* Saves the model first, before an impatient user ends the server. */
static void run_save(struct server *s) {
    struct pl_why why = {.text = ""};
    if (s->conf->exchange && pl_engine_store(s->engine)) pl_exchange_save(s);
    bool reports = !s->out->trouble.text[0] && !s->out->diverged;
    if (s->saver && pl_saver_finish(s->saver, s->engine, reports, &why) && reports)
        s->out->trouble = why;
    s->out->left_alone = s->left_alone;
    double seconds = pl_seconds(s->clock.end_ns);
    char end[32];
    snprintf(end, sizeof end, seconds < 1000 ? "%.3g" : "%.0f", seconds);
    if (s->left_alone)
        pl_fail(&s->out->trouble, PL_ERUN, "every worker has gone at %s s, after update %llu%s",
                end, (unsigned long long)s->view->version,
                s->conf->respawn       ? ""
                : s->conf->n_local > 0 ? "; use --respawn to restart workers"
                : s->conf->save.dir    ? "; use --resume auto to continue from the last checkpoint"
                                       : "");
}

/* Gets the model while workers and servers can still answer. If one does not, the results are those
 * that are known, without the weights. */
static int run_model(struct server *s) {
    int rc = pl_server_model(s, s->end_room, &s->end);
    if (!rc) return PL_OK;
    s->end = (struct pl_model_now){.consensus = NAN};
    if (rc != PL_ERUN) return pl_fail(s->why, rc, "out of memory for the model at the end");
    if (!s->out->trouble.text[0])
        pl_fail(&s->out->trouble, rc, "%s did not send its part of the model at the end",
                s->several ? "a server" : "a worker");
    return PL_OK;
}

/* A rank that does not answer ends the run, and is no reason to lose what is known. */
static int run_ranks(struct server *s, int rc) {
    if (rc != PL_ERUN || !s->several) return rc;
    s->out->trouble = *s->why;
    s->why->text[0] = '\0';
    pl_engine_end(s->engine);
    return PL_OK;
}

/* Waits for the scorer. False if the run was interrupted, and this takes too long. */
static bool run_await_score(struct server *s) {
    struct server_scoring *g = &s->scoring;
    uint64_t tick_ns = 0;
    for (uint64_t now; pl_scorer_busy(s->scorer); pl_sleep_ns(RUN_LOOK_NS)) {
        if ((now = pl_now_ns()) >= tick_ns && !s->interrupted) {
            tick_ns = now + SERVER_TICK;
            pl_server_ticks(s, s->clock.end_ns);
        }
        if (s->interrupted && g->until_ns == 0) g->until_ns = now + PL_LAST_SCORE_NS;
        if (!s->interrupted || now < g->until_ns) continue;
        pl_scorer_give_up(s->scorer);
        pl_outcome_unscored(s->out, &s->job->log);
        return false;
    }
    return true;
}

/* The evaluations at the end. */
static void run_last_scores(struct server *s) {
    bool busy = s->scoring.busy;
    if (busy && !run_await_score(s)) {
        pl_engine_let_go(s->engine, &s->scoring.model);
        return;
    }
    if (busy) pl_server_scored(s);
    if (s->scorer && s->end.w && !pl_engine_has_score(s->engine)) {
        s->scoring.at = pl_engine_point(s->engine, s->clock.end_ns);
        s->scoring.at.consensus = s->end.consensus;
        pl_scorer_send(s->scorer, s->end.w);
        if (!run_await_score(s)) return;
        struct pl_score score = pl_scorer_wait(s->scorer);
        if (s->saver) pl_saver_scored(s->saver, s->end.w, &score, s->scoring.at.updates);
        pl_engine_scored(s->engine, &score, &s->scoring.at);
    }
}

static int run_finish(struct server *s) {
    run_last_scores(s);
    struct pl_why why = {.text = ""};
    if (s->saver && pl_saver_finish_best(s->saver, &why) && !s->out->trouble.text[0])
        s->out->trouble = why;
    int rc = pl_engine_finish(s->engine, s->end.w, s->clock.end_ns);
    pl_engine_let_go(s->engine, &s->end);
    return rc ? pl_fail(s->why, PL_ENOMEM, "out of memory for the weights") : PL_OK;
}

static void run_free(struct server *s) {
    for (int i = 0; s->waits.worker && i < s->job->n_workers; i++)
        s->out->core_wait += pl_seconds(atomic_load(&s->waits.worker[i].total_ns));
    if (!s->waits.known) s->out->core_wait = NAN;
    pl_core_waited_free(s->waits.worker, s->job->n_workers);
    if (s->waits.worker) pl_core_wait_close(&s->waits.core);
    if (s->several && s->port) pl_shards_end(&s->shards);
    pl_scorer_free(s->scorer);
    pl_saver_free(s->saver);
    pl_engine_free(s->engine);
    pl_leases_free(s->leases);
    pl_stragglers_free(s->stragglers);
    if (s->port) s->ops->close(s->port);
    pl_tile_threads_free(&s->tile_threads);
    free(s->room);
    free(s->end_room);
    free(s->shards.whole);
}

int pl_server_run(const struct pl_server_conf *conf, struct pl_outcome *out, struct pl_why *why) {
    struct server s = {.conf = conf,
                       .job = conf->job,
                       .ops = &conf->transport->port,
                       .why = why,
                       .clock = {.zero_ns = pl_now_ns()},
                       .out = out};
    *out = pl_outcome_none();
    uint64_t fpu = pl_fpu_flush();
    int rc = run_open(&s);
    if (!rc) rc = run_begin(&s);
    if (!rc) rc = run_ranks(&s, pl_server_loop(&s));
    if (s.engine) s.clock.end_ns = pl_server_now(&s);
    if (!rc) pl_server_lost(&s);
    if (!rc) pl_membership_left(&s.membership, true);
    if (!rc) run_save(&s);
    if (!rc) rc = run_model(&s);
    if (!rc) pl_clients_end(&s);
    pl_gateway_close(s.gateway);
    s.gateway = NULL;
    if (s.port) s.ops->shutdown(s.port, SHUTDOWN_GRACE_NS);
    pl_membership_free(&s.membership);
    if (!rc) rc = run_finish(&s);
    run_free(&s);
    pl_fpu_restore(fpu);
    return rc;
}
