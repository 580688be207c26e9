#include "run/saver.h"

#include <stdlib.h>

#include "sys/background.h"
#include "sys/clock.h"

struct pl_saver {
    const struct pl_server_conf *conf;
    struct pl_shards *shards;
    float *whole; /* [dim] the model that is being written, where several servers have it */
    int (*model)(void *ctx, float *out); /* fills `whole`; NULL: the version does */
    void *ctx;
    struct pl_filter *filter;
    struct pl_background *background;
    struct pl_snapshot *snapshot; /* on its way to the disk; NULL: none */
    struct pl_version *held;      /* the version it is made of */
    uint64_t updates;             /* of the last one that was begun, */
    uint64_t began_ns;            /* and when */
    bool any;                     /* one was begun */
    int rc;                       /* of the last one that was written, */
    struct pl_why why;            /* with its sentence */
    bool failed;                  /* somebody was told */
};

int pl_saver_new(const struct pl_server_conf *conf, struct pl_shards *shards,
                 struct pl_filter *filter, void (*done)(void *ctx), void *ctx,
                 struct pl_saver **out, struct pl_why *why) {
    int rc = pl_checkpoint_folder(conf->save_dir, why);
    if (rc) return rc;
    struct pl_saver *s = calloc(1, sizeof *s);
    bool ok = s != NULL;
    if (ok && shards) ok = (s->whole = malloc(conf->job->model->dim * sizeof *s->whole)) != NULL;
    if (!ok || pl_background_new(done, ctx, &s->background)) {
        if (s) free(s->whole);
        free(s);
        return pl_fail(why, PL_ENOMEM, "out of memory for checkpoints");
    }
    s->conf = conf;
    s->shards = shards;
    s->filter = filter;
    *out = s;
    return PL_OK;
}

int pl_saver_from(struct pl_saver *s, int (*model)(void *ctx, float *out), void *ctx) {
    if (!s->whole) s->whole = malloc(s->conf->job->model->dim * sizeof *s->whole);
    s->model = model;
    s->ctx = ctx;
    return s->whole ? PL_OK : PL_ENOMEM;
}

/* The whole model, where the version held is not; NULL: it could not be had. */
static const float *saver_model(struct pl_saver *s) {
    if (s->model) return s->model(s->ctx, s->whole) ? NULL : s->whole;
    if (!s->shards) return s->held->model;
    return pl_shards_model(s->shards, s->held, s->whole) || s->shards->failed ? NULL : s->whole;
}

void pl_saver_free(struct pl_saver *s) {
    if (!s) return;
    pl_background_free(s->background);
    pl_snapshot_free(s->snapshot);
    free(s->whole);
    free(s);
}

bool pl_saver_due(const struct pl_saver *s, uint64_t updates) {
    return s->conf->save_updates > 0 && updates >= s->updates + s->conf->save_updates;
}

static void saver_run(void *arg) {
    struct pl_saver *s = arg;
    s->rc = pl_checkpoint_write(s->conf->save_dir, s->conf->save_keep, s->snapshot, s->updates,
                                &s->why);
}

/* What was under way is written: lets go of it, and warns once where it failed. */
static void saver_collect(struct pl_saver *s) {
    if (!s->snapshot) return;
    pl_background_wait(s->background);
    pl_snapshot_free(s->snapshot);
    pl_version_unpin(s->held);
    s->snapshot = NULL;
    if (s->rc && !s->failed)
        pl_log_warn(&s->conf->job->log, "%s; the run goes on without", s->why.text);
    if (!s->rc && s->conf->saved) *s->conf->saved = pl_wall_seconds();
    s->failed = s->rc != PL_OK;
}

static int saver_begin(struct pl_saver *s, struct pl_control *control, struct pl_store *store) {
    int rc = pl_snapshot_new(&s->snapshot, &s->why);
    if (rc) return rc;
    struct pl_archive archive = pl_snapshot_archive(s->snapshot);
    pl_control_archive(control, &archive);
    struct pl_archive shared = pl_shards_archive(s->shards, &archive);
    pl_store_archive(store, &shared);
    pl_filter_archive(s->filter, &archive);
    s->held = pl_store_newest(store);
    pl_version_pin(s->held);
    const float *model = saver_model(s);
    if (!model) {
        pl_snapshot_free(s->snapshot);
        pl_version_unpin(s->held);
        s->snapshot = NULL;
        return pl_fail(&s->why, PL_ERUN, "a %s did not answer", s->model ? "worker" : "server");
    }
    pl_snapshot_weights(s->snapshot, s->conf->job->model, model);
    pl_snapshot_text(s->snapshot, "setup", s->conf->save_text);
    s->updates = s->held->id;
    s->any = true;
    pl_background_send(s->background, saver_run, s);
    return PL_OK;
}

void pl_saver_look(struct pl_saver *s, struct pl_control *control, struct pl_store *store,
                   uint64_t now_ns) {
    if (pl_background_busy(s->background)) return;
    saver_collect(s);
    uint64_t updates = pl_control_view(control)->version;
    if (!s->any && s->began_ns == 0) { /* the first is due one interval on */
        s->began_ns = now_ns;
        s->updates = updates;
    }
    bool by_time = s->conf->save_ns > 0 && now_ns >= s->began_ns + s->conf->save_ns;
    if ((!by_time && !pl_saver_due(s, updates)) || (s->any && updates == s->updates)) return;
    s->began_ns = now_ns;
    saver_begin(s, control, store);
}

int pl_saver_finish(struct pl_saver *s, struct pl_control *control, struct pl_store *store,
                    struct pl_why *why) {
    saver_collect(s);
    /* also where the last one has the same number: tasks have ended since */
    int rc = saver_begin(s, control, store);
    if (!rc) {
        s->failed = true; /* whether it was written is told by the caller, and nothing goes on */
        saver_collect(s);
        rc = s->rc;
    }
    return rc ? pl_fail(why, rc, "%s", s->why.text) : PL_OK;
}
