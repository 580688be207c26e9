/* pl_train: runs a setup with real workers. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/listen.h"
#include "api/ranks.h"
#include "api/run.h"
#include "base/seconds.h"
#include "observe/metrics.h"
#include "run/claim.h"
#include "run/exchange.h"
#include "run/server.h"
#include "run/standby.h"
#include "sys/address.h"
#include "sys/clock.h"
#include "sys/numerals.h"

#define STANDBY_CLIENTS 1024 /* of a standby: workers that may ask for it at a time, about */

struct train {
    struct pl_setup *setup;
    struct pl_run *run;
    struct pl_sinks sinks;
    struct pl_metrics *metrics;
    const struct pl_control *control; /* as the event log shows it */
    int reported;                     /* the status of the report about workers */
    struct pl_point last, scored;     /* the latest tick and evaluation */
    uint64_t updates;                 /* when metrics were last published, */
    double updated;                   /* and when that number last changed, since 1970 */
    uint64_t save_updates;            /* between checkpoints; 0 if it is a time */
    double save_s;                    /* between checkpoints; 0 if it is a number of updates */
    bool began;                       /* there was an event before the end */
    struct pl_claim claim;            /* of the folder of checkpoints */
    struct pl_resumed resumed;        /* path NULL: the run starts from the beginning */
    uint64_t epoch;                   /* of a standby that has taken over, otherwise 0 */
    int socket;                       /* on which that one listens; 0 or -1: none */
};

/* --- while it runs ----------------------------------------------------------------------- */

/* Writes run.json beside the checkpoints. It is for people: a failure does not end the run. */
static void train_describe(const struct train *t) {
    char path[PL_TEXT_MAX + 16];
    snprintf(path, sizeof path, "%s/run.json", t->setup->conf.checkpoint);
    if (t->claim.lock >= 0) pl_sink_describe(path, t->run->identity.json, NULL);
}

static void train_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                        const struct pl_plan *plan) {
    struct train *t = ctx;
    pl_control_log *log = pl_sinks_log(&t->sinks);
    t->control = c;
    if (!t->began && e->kind != PL_END) {
        t->began = true;
        train_describe(t);
    }
    if (log) log(&t->sinks, c, e, plan);
    if (e->kind == PL_END) t->reported = pl_run_report(t->run, pl_control_timeline(c));
}

static void train_named(void *ctx, int worker, const char *name) {
    struct train *t = ctx;
    pl_sinks_named(&t->sinks, worker, name);
}

static void train_point(void *ctx, const struct pl_point *p) {
    struct train *t = ctx;
    t->scored = *p;
    pl_run_point(t->run, p);
    pl_sinks_point(&t->sinks, p);
    if (t->setup->point) t->setup->point(t->setup->watch_ctx, p);
}

static int train_tick(void *ctx, const struct pl_point *p) {
    struct train *t = ctx;
    t->last = *p;
    if (!t->setup->tick || !t->setup->tick(t->setup->watch_ctx, p)) return 0;
    t->run->interrupted = true;
    return 1;
}

static void train_publish(struct train *t, uint64_t now_ns) {
    if (!t->metrics || !t->control) return;
    const struct pl_view *v = pl_control_view(t->control);
    if (v->version != t->updates) {
        t->updates = v->version;
        t->updated = pl_wall_seconds();
    }
    pl_metrics_publish(
        t->metrics,
        &(struct pl_metrics_now){.updates = v->version,
                                 .samples = t->last.samples > 0 ? (uint64_t)t->last.samples : 0,
                                 .fates = pl_control_fates(t->control),
                                 .quarantined = t->run->outcome.n_quarantines,
                                 .evicted = t->run->outcome.n_evicted,
                                 .frozen = t->run->outcome.n_frozen,
                                 .staleness = pl_control_staleness(t->control),
                                 .workers = v->n_alive,
                                 .workers_away = t->run->outcome.n_disconnected,
                                 .workers_expected = v->n_workers,
                                 .k = pl_control_k(t->control, v->n_alive),
                                 .loss = t->scored.loss,
                                 .test_loss = t->scored.test_loss,
                                 .test_accuracy = t->scored.test_accuracy,
                                 .consensus = t->scored.consensus,
                                 .run_seconds = pl_seconds(now_ns),
                                 .last_update = t->updated,
                                 .last_checkpoint = t->run->last_save.when,
                                 .row = pl_control_timeline(t->control)->row,
                                 .n_rows = v->n_workers});
}

static void train_second(void *ctx, uint64_t now_ns) {
    struct train *t = ctx;
    pl_sinks_flush(&t->sinks);
    train_publish(t, now_ns);
}

/* --- checkpoints ------------------------------------------------------------------------- */

/* "500": updates; "60s", "1h30m": time. */
static int train_every(struct train *t) {
    struct pl_setup *s = t->setup;
    const char *text = s->conf.checkpoint_every, *digits = text + strspn(text, "0123456789");
    bool ok = isdigit((unsigned char)*text);
    if (*digits) /* a time without a unit would be taken for updates */
        ok = ok && isalpha((unsigned char)text[strlen(text) - 1]) &&
             pl_opt_seconds(text, 1e-9, 1e9, &t->save_s);
    else
        ok = ok && strlen(text) < 10 && (t->save_updates = strtoull(text, NULL, 10)) > 0;
    if (!ok)
        return pl_fail(&s->why, PL_EUSAGE,
                       "checkpoint-every '%.40s' is neither a number of updates, like 500, nor a "
                       "time, like 60s, 10m or 1h30m",
                       text);
    if (!s->conf.checkpoint[0] && pl_setup_is_set(s, "checkpoint-every"))
        return pl_fail(&s->why, PL_EUSAGE, "--checkpoint-every needs --checkpoint DIR");
    return PL_OK;
}

/* Weights, their names and what applies to some of them are those of the checkpoint, not of files
 * that the first run read. */
static int train_resume_weights(struct pl_setup *s, const struct pl_saved *from) {
    const struct pl_model_kind *kind = pl_setup_kind(s);
    const char *rules = pl_saved_text(from, "layout");
    s->conf.init[0] = '\0';
    if (!pl_setup_is_set(s, "layout")) s->conf.layout[0] = '\0';
    pl_initial_release(s->initial);
    s->initial = NULL;
    if (kind && kind->by_clients) return pl_initial_saved(from, &s->initial, &s->why);
    if (!rules || s->rules || s->conf.layout[0]) return PL_OK;
    s->rules = strdup(rules);
    return s->rules ? PL_OK : pl_fail(&s->why, PL_ENOMEM, "out of memory");
}

/* Reads the checkpoint that the run continues from; *out stays NULL if there is none yet. */
static int train_find(struct pl_setup *s, struct pl_saved **out) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_why skipped = {.text = ""};
    char path[PL_TEXT_MAX + 64];
    if (strcmp(c->resume, "auto") != 0) {
        int rc = pl_checkpoint_find(c->resume, path, sizeof path, &s->why);
        if (!rc) rc = pl_checkpoint_read(path, out, &s->why);
        return rc ? rc : pl_saved_resumable(*out, &s->why);
    }
    if (!c->checkpoint[0])
        return pl_fail(&s->why, PL_EUSAGE, "--resume auto needs --checkpoint DIR");
    int rc = pl_checkpoint_read_last(c->checkpoint, out, &skipped, &s->why);
    if (rc == PL_EMISSING) { /* no checkpoint yet: start from the beginning */
        s->why.text[0] = s->conf.resume[0] = '\0';
        return PL_OK;
    }
    if (!rc && skipped.text[0]) pl_log_warn(&s->log, "%s", skipped.text);
    return rc;
}

/* A resumed run goes on saving where it was saved, unless --checkpoint is given. */
static void train_keep_saving(struct pl_setup *s, const char *path) {
    const char *slash = strrchr(path, '/');
    if (pl_setup_is_set(s, "checkpoint")) return;
    snprintf(s->conf.checkpoint, sizeof s->conf.checkpoint, "%.*s",
             slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
}

/* Where a standby listens, and its workers find it when it has taken over. */
static int train_standby_address(struct pl_setup *s, struct pl_listen *out, struct pl_why *why) {
    const char *first = s->conf.standby;
    if (strncmp(first, "http://", 7) != 0 && strncmp(first, "https://", 8) != 0)
        return pl_fail(why, PL_EUSAGE,
                       "--standby '%.100s' is not the address of a server; write https://HOST:PORT",
                       first);
    if (s->conf.resume[0] || pl_setup_is_set(s, "init"))
        return pl_fail(why, PL_EUSAGE,
                       "--standby gets the run from the server that it follows; leave out --%s",
                       s->conf.resume[0] ? "resume" : "init");
    int rc = pl_listen_check(&s->conf, out, why);
    if (rc || out->address[0]) return rc;
    return pl_fail(why, PL_EUSAGE, "--standby needs --listen HOST:PORT, where it takes over");
}

/* Follows the server of --standby until its run is this process's. */
static int train_follow(struct train *t, struct pl_saved **out) {
    struct pl_setup *s = t->setup;
    struct pl_listen listens;
    struct pl_address a;
    struct pl_takeover take = {.socket = -1};
    int rc = train_standby_address(s, &listens, &s->why);
    if (rc) return rc;
    struct pl_standby_conf conf = {.first = s->conf.standby,
                                   .gateway = {.address = listens.address,
                                               .keys = s->conf.keys[0] ? s->conf.keys : NULL,
                                               .n_clients = STANDBY_CLIENTS,
                                               .log = &s->log},
                                   .stop = pl_setup_stops,
                                   .ctx = s};
    rc = pl_standby_follow(&conf, &take, &s->why);
    t->socket = take.socket;
    if (rc == PL_ECANCELLED) pl_log_note(&s->log, "the run has ended; the standby was not needed");
    if (rc == PL_EINTR) return pl_fail(&s->why, rc, "interrupted before the standby took over");
    if (rc || !pl_address_split(listens.address, &a)) return rc ? rc : PL_EUSAGE;
    snprintf(s->conf.listen, sizeof s->conf.listen, strchr(a.host, ':') ? "[%s]:%d" : "%s:%d",
             a.host, take.port);
    *out = take.saved;
    t->epoch = take.epoch;
    return PL_OK;
}

/* Opens the checkpoint to resume from, and adopts its options unless they were set again. */
static int train_resume(struct train *t, struct pl_saved **out) {
    struct pl_setup *s = t->setup;
    bool standby = s->conf.standby[0] != '\0';
    int rc = standby ? train_follow(t, out) : s->conf.resume[0] ? train_find(s, out) : PL_OK;
    if (rc || !*out) return rc;
    const char *path = standby ? s->conf.standby : pl_saved_path(*out);
    const char *updates = pl_saved_text(*out, "updates");
    if (!standby) train_keep_saving(s, path);
    bool every_start = strcmp(s->conf.resume, "auto") == 0; /* with --init for the first one */
    if (pl_setup_is_set(s, "init") && !every_start)
        rc = pl_fail(&s->why, PL_EUSAGE,
                     "--init gives the weights to begin with, and so does --resume; leave out one");
    if (!rc && (rc = pl_setup_lines(s, pl_saved_text(*out, "setup"))) != 0)
        pl_fail_in(&s->why, rc, path);
    if (!rc) rc = train_resume_weights(s, *out);
    /* the full path, for a recording */
    char *whole = rc || standby ? NULL : realpath(path, NULL);
    if (whole) snprintf(s->conf.resume, sizeof s->conf.resume, "%s", whole);
    free(whole);
    t->resumed = (struct pl_resumed){.path = path,
                                     .run = pl_saved_text(*out, "run_id"),
                                     .origin = pl_saved_text(*out, "origin"),
                                     .updates = updates ? strtoull(updates, NULL, 10) : 0};
    return rc;
}

/* --- the run ----------------------------------------------------------------------------- */

/* No other output is the folder of checkpoints, which exists by now, or has a name of theirs. */
static int train_check_outputs(struct pl_setup *s) {
    const struct pl_setup_conf *c = &s->conf;
    struct pl_listen listens;
    int rc = pl_listen_read(c->listen, &listens, &s->why);
    if (rc || !c->checkpoint[0]) return rc;
    const char *const outputs[][2] = {{"log", c->log},         {"events", c->events},
                                      {"record", c->record},   {"history", c->history},
                                      {"log-dir", c->log_dir}, {"listen", listens.path}};
    for (size_t i = 0; !rc && i < sizeof outputs / sizeof *outputs; i++)
        rc = pl_claim_check_output(c->checkpoint, outputs[i][0], outputs[i][1], &s->why);
    return rc;
}

static int train_open(struct train *t, const struct pl_built *built) {
    struct pl_setup *s = t->setup;
    t->sinks.conf = &s->conf;
    int rc = train_every(t); /* before anything is made */
    if (!rc && s->conf.exchange[0]) rc = pl_exchange_check(s->conf.exchange, &s->why);
    if (!rc)
        rc = pl_run_begin(t->run, s, built, "train", NULL, t->resumed.path ? &t->resumed : NULL);
    if (!rc && s->conf.checkpoint[0])
        rc = pl_claim_take(s->conf.checkpoint, t->resumed.path, &t->claim, &s->why);
    if (!rc) rc = train_check_outputs(s);
    if (!rc) rc = pl_sinks_open(&t->sinks, s, built, "real", &t->run->identity);
    if (!rc && s->conf.metrics[0] &&
        (rc = pl_metrics_open(s->conf.metrics, pl_now_ns, &t->metrics, &s->why)))
        pl_fail_in(&s->why, rc, "metrics");
    if (!rc && t->metrics)
        pl_log_note(&s->log, "metrics are served on port %d", pl_metrics_port(t->metrics));
    return rc;
}

/* Where clients join: a socket here, and the network. */
struct train_door {
    struct pl_listen listens;
    struct pl_gateway_conf gateway;
    char *setup; /* for workers on other machines */
};

/* One more than that of the server whose checkpoint it continues from. */
static uint64_t train_epoch(const struct train *t, const struct pl_saved *from) {
    const char *last = from ? pl_saved_text(from, "server_epoch") : NULL;
    if (t->epoch > 0) return t->epoch;
    return 1 + (last ? strtoull(last, NULL, 10) : 0);
}

static int train_door_open(struct train *t, const struct pl_built *built,
                           const struct pl_saved *from, struct train_door *out) {
    struct pl_setup *s = t->setup;
    const struct pl_setup_conf *c = &s->conf;
    *out = (struct train_door){.setup = NULL};
    int rc = pl_listen_read(c->listen, &out->listens, &s->why);
    bool local = pl_setup_spawns(s) || out->listens.path[0];
    if (!rc) rc = pl_listen_open(&out->listens, &s->why);
    if (!rc && out->listens.address[0]) rc = pl_setup_portable(s, &out->setup);
    out->gateway = (struct pl_gateway_conf){.address = out->listens.address,
                                            .socket = t->socket,
                                            .path = out->listens.path,
                                            .keys = c->keys[0] ? c->keys : NULL,
                                            .n_clients = built->job.n_workers,
                                            .run = t->run->identity.origin,
                                            .epoch = train_epoch(t, from),
                                            .returns = c->checkpoint[0] != '\0',
                                            .local = local,
                                            .setup = out->setup,
                                            .log = &s->log};
    return rc;
}

static void train_door_close(struct train_door *d) {
    free(d->setup);
    pl_listen_close(&d->listens);
}

/* How many workers the server starts. */
static int train_local(const struct pl_setup *s, const struct pl_ranks *ranks) {
    if (ranks->mpi || !pl_setup_spawns(s)) return 0;
    return (int)(s->conf.start > 0 ? s->conf.start : s->conf.workers);
}

static int train_run(struct train *t, const struct pl_built *built, const struct pl_ranks *ranks,
                     struct pl_saved *from, struct train_door *door) {
    struct pl_setup *s = t->setup;
    const struct pl_setup_conf *c = &s->conf;
    char *text = NULL, *schema = NULL;
    struct pl_server_conf server = {.job = &built->job,
                                    .transport = ranks->transport,
                                    .n_servers = ranks->mpi ? (int)c->servers : 1,
                                    .n_local = train_local(s, ranks),
                                    .respawn = c->respawn,
                                    .listen = door->listens.path[0] ? door->listens.path : NULL,
                                    .where = c->listen[0] ? c->listen : NULL,
                                    .gateway = door->listens.address[0] ? &door->gateway : NULL,
                                    .requests = c->requests,
                                    .job_name = c->job,
                                    .exchange = c->exchange[0] ? c->exchange : NULL,
                                    .model = s->has_function ? "function" : c->model,
                                    .fingerprint = pl_layout_fingerprint(&built->layout),
                                    .half = c->wire == 1,
                                    .min_workers = (int)c->min_workers,
                                    .wait_ns = pl_ns(c->wait),
                                    .watch = {train_point, train_tick, t},
                                    .events = train_event,
                                    .named = train_named,
                                    .events_ctx = t,
                                    .second = train_second,
                                    .second_ctx = t,
                                    .from = from,
                                    .save = {.dir = c->checkpoint[0] ? c->checkpoint : NULL,
                                             .ns = pl_ns(t->save_s),
                                             .updates = t->save_updates,
                                             .keep = (size_t)c->checkpoint_keep,
                                             .first = t->epoch > 0,
                                             .epoch = train_epoch(t, from),
                                             .run = t->run->identity.json,
                                             .id = t->run->identity.id,
                                             .origin = t->run->identity.origin,
                                             .layout = built->rules,
                                             .last = &t->run->last_save},
                                    .claim = &t->claim,
                                    .made = s->made,
                                    .made_ctx = s->made_ctx};
    int rc = pl_setup_text(s, &text);
    if (!rc && server.save.dir && built->job.data)
        rc = pl_data_schema(built->job.data, &schema, &s->why);
    server.save.text = text;
    server.save.schema = schema;
    if (!rc) rc = pl_server_run(&server, &t->run->outcome, &s->why);
    /* without the weights at the end a recording counts as cut short */
    if (!rc && t->run->outcome.weights)
        pl_sinks_end(&t->sinks, &t->run->outcome, built->job.model->dim);
    free(text);
    free(schema);
    return rc;
}

/* Rank 0: serves, and writes all files. */
static int train_serve(struct train *t, const struct pl_built *built, const struct pl_ranks *ranks,
                       struct pl_saved *from) {
    struct pl_setup *s = t->setup;
    t->run = pl_run_new(built);
    int rc = t->run ? train_open(t, built) : pl_fail(&s->why, PL_ENOMEM, "out of memory");
    int ready = pl_ranks_ready(s, ranks, rc);
    if (!ready) {
        pl_run_announce(t->run, s);
        struct train_door door;
        rc = train_door_open(t, built, from, &door);
        if (!rc) rc = train_run(t, built, ranks, from, &door);
        train_door_close(&door);
        if (!rc) rc = pl_run_complete(t->run, &s->why);
        if (!rc && t->reported)
            rc = pl_fail(&s->why, t->reported, "out of memory for %d workers", t->run->n_workers);
        int ended = pl_ranks_end(s, ranks, rc);
        if (!rc &&
            ended) { /* the run is over: a rank that does not answer does not cost its results */
            if (!t->run->outcome.trouble.text[0]) t->run->outcome.trouble = s->why;
            s->why.text[0] = '\0';
        }
    } else {
        rc = ready;
    }
    if (t->run && isfinite(t->run->last_save.when))
        snprintf(t->run->folder, sizeof t->run->folder, "%s", s->conf.checkpoint);
    if (t->run && t->run->identity.json) {
        pl_run_end(t->run, &built->job, rc, &s->why);
        pl_sinks_run(&t->sinks, &t->run->identity);
        if (!rc || t->began) train_describe(t);
    }
    pl_metrics_close(t->metrics);
    /* a file that could not be completed must not cost the results */
    if (rc) pl_sinks_discard(&t->sinks);
    if (t->run)
        pl_sinks_close(&t->sinks,
                       rc || t->run->outcome.trouble.text[0] ? NULL : &t->run->outcome.trouble);
    if (rc && !t->began)
        pl_claim_discard(&t->claim, s->conf.checkpoint);
    else
        pl_claim_release(&t->claim);
    return rc;
}

/* The other ranks. */
static int train_work(struct pl_setup *s, const struct pl_built *built,
                      const struct pl_ranks *ranks) {
    int rc = pl_ranks_ready(s, ranks, PL_OK);
    return rc ? rc : pl_ranks_end(s, ranks, pl_ranks_work(s, ranks, &built->job));
}

/* t->setup is a copy. */
static int train_all(struct train *t, struct pl_saved **from, pl_run **out) {
    struct pl_setup *s = t->setup;
    struct pl_built built;
    struct pl_ranks ranks;
    int rc = pl_ranks_choose(s, &ranks);
    if (rc) return rc;
    if (ranks.rank == 0) rc = train_resume(t, from);
    rc = pl_ranks_share(s, &ranks, rc);
    if (rc) return rc;
    rc = pl_build(s, PL_HOST_REAL, &built);
    if (!rc && (rc = pl_ranks_cut(s, &ranks, &built))) pl_built_free(&built);
    if (rc) return pl_ranks_ready(s, &ranks, rc); /* tell the other ranks */
    rc = ranks.rank == 0 ? train_serve(t, &built, &ranks, *from) : train_work(s, &built, &ranks);
    pl_built_free(&built);
    if (rc)
        pl_run_free(t->run);
    else
        *out = t->run;
    return rc;
}

int pl_train(pl_setup *setup, pl_run **out) {
    PL_NUMERALS;
    struct pl_saved *from = NULL;
    struct train t = {
        .scored = {.loss = NAN, .test_loss = NAN, .test_accuracy = NAN, .consensus = NAN},
        .updated = NAN,
        .claim = {.lock = -1}};
    setup->why.text[0] = '\0';
    /* a copy, because the options of a checkpoint are for this run only */
    if (pl_setup_copy(setup, &t.setup)) return pl_fail(&setup->why, PL_ENOMEM, "out of memory");
    int rc = train_all(&t, &from, out);
    if (rc == PL_ECANCELLED && t.setup->conf.standby[0]) { /* nothing was left to do */
        *out = NULL;
        rc = PL_OK;
    }
    setup->why = t.setup->why;
    if (t.socket > 0) close(t.socket);
    pl_saved_free(from);
    pl_setup_free(t.setup);
    return rc;
}
