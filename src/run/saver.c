#include "run/saver.h"

#include <stdlib.h>

#include "sys/background.h"
#include "sys/clock.h"

struct pl_saver {
    const struct pl_server_conf *conf;
    struct pl_shards *shards; /* NULL: one server */
    struct pl_engine *engine; /* that `held` belongs to */
    struct pl_saver_model model;
    float *room; /* [dim] if the model needs it */
    struct pl_background *background;
    struct pl_snapshot *snapshot; /* being written; NULL: none */
    struct pl_model_now held;     /* the model that is being written */
    uint64_t updates;             /* of the last checkpoint that was begun, */
    uint64_t began_ns;            /* and when that was */
    bool any;                     /* one was begun */
    bool asked;                   /* one is due, whatever the interval */
    int rc;                       /* of the last one that was written, */
    struct pl_why why;            /* and its message */
    bool failed;                  /* the failure was reported */
};

int pl_saver_new(const struct pl_server_conf *conf, struct pl_shards *shards,
                 const struct pl_saver_model *model, void (*done)(void *ctx), void *ctx,
                 struct pl_saver **out, struct pl_why *why) {
    int rc = pl_checkpoint_folder(conf->save_dir, why);
    if (rc) return rc;
    struct pl_saver *s = calloc(1, sizeof *s);
    bool ok = s != NULL;
    if (ok && model->needs_room)
        ok = (s->room = malloc(conf->job->model->dim * sizeof *s->room)) != NULL;
    if (!ok || pl_background_new(done, ctx, &s->background)) {
        if (s) free(s->room);
        free(s);
        return pl_fail(why, PL_ENOMEM, "out of memory for checkpoints");
    }
    s->conf = conf;
    s->shards = shards;
    s->model = *model;
    *out = s;
    return PL_OK;
}

void pl_saver_free(struct pl_saver *s) {
    if (!s) return;
    pl_background_free(s->background);
    pl_snapshot_free(s->snapshot);
    free(s->room);
    free(s);
}

bool pl_saver_due(const struct pl_saver *s, uint64_t updates) {
    return s->conf->save_updates > 0 && updates >= s->updates + s->conf->save_updates;
}

void pl_saver_ask(struct pl_saver *s) {
    s->asked = true;
}

static void saver_run(void *arg) {
    struct pl_saver *s = arg;
    s->rc = pl_checkpoint_write(s->conf->save_dir, s->conf->save_keep, s->snapshot, s->updates,
                                &s->why);
}

/* Waits for the file that is being written and releases its model. Warns once if it failed. */
static void saver_collect(struct pl_saver *s) {
    if (!s->snapshot) return;
    pl_background_wait(s->background);
    pl_snapshot_free(s->snapshot);
    pl_engine_let_go(s->engine, &s->held);
    s->snapshot = NULL;
    if (s->rc && !s->failed)
        pl_log_warn(&s->conf->job->log, "%s; the run continues without it", s->why.text);
    if (!s->rc && s->conf->saved) *s->conf->saved = pl_wall_seconds();
    s->failed = s->rc != PL_OK;
}

static int saver_begin(struct pl_saver *s, struct pl_engine *e) {
    int rc = pl_snapshot_new(&s->snapshot, &s->why);
    if (rc) return rc;
    struct pl_archive archive = pl_snapshot_archive(s->snapshot);
    s->engine = e;
    rc = s->shards ? pl_shards_archive(s->shards, e, &archive) : pl_engine_archive(e, &archive);
    if (!rc) rc = s->model.get(s->model.ctx, s->room, &s->held);
    if (rc) {
        pl_snapshot_free(s->snapshot);
        s->snapshot = NULL;
        return pl_fail(&s->why, PL_ERUN, "a %s did not answer", s->shards ? "server" : "worker");
    }
    pl_snapshot_weights(s->snapshot, s->conf->job->model, s->held.w);
    pl_snapshot_text(s->snapshot, "setup", s->conf->save_text);
    if (s->conf->save_layout) pl_snapshot_text(s->snapshot, "layout", s->conf->save_layout);
    s->updates = pl_engine_view(e)->version;
    s->any = true;
    pl_background_send(s->background, saver_run, s);
    return PL_OK;
}

void pl_saver_look(struct pl_saver *s, struct pl_engine *e, uint64_t now_ns) {
    if (pl_background_busy(s->background)) return;
    saver_collect(s);
    uint64_t updates = pl_engine_view(e)->version;
    if (!s->any && s->began_ns == 0) { /* the first is due after one interval */
        s->began_ns = now_ns;
        s->updates = updates;
    }
    bool by_time = s->conf->save_ns > 0 && now_ns >= s->began_ns + s->conf->save_ns;
    if (s->any && updates == s->updates) s->asked = false; /* it exists */
    if ((!by_time && !pl_saver_due(s, updates) && !s->asked) || (s->any && updates == s->updates))
        return;
    s->asked = false;
    s->began_ns = now_ns;
    saver_begin(s, e);
}

int pl_saver_finish(struct pl_saver *s, struct pl_engine *e, struct pl_why *why) {
    saver_collect(s);
    /* even if the last one has the same number: tasks have ended since */
    int rc = saver_begin(s, e);
    if (!rc) {
        s->failed = true; /* the caller reports it */
        saver_collect(s);
        rc = s->rc;
    }
    return rc ? pl_fail(why, rc, "%s", s->why.text) : PL_OK;
}
