#include "run/saver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys/background.h"
#include "sys/clock.h"

/* A model that was scored better than all before it. */
struct saver_best {
    float *w; /* [dim]; NULL: none */
    struct pl_score score;
    uint64_t updates;
};

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
    bool wrote;                   /* the last one that was begun is on the disk */
    int rc;                       /* of the last one, or of the best model after it, */
    struct pl_why why;            /* and its message */
    bool failed;                  /* the failure was reported */
    bool not_finite;           /* the last one was not written, because its model is not finite, */
    bool not_finite_told;      /* and that was said */
    uint64_t written;          /* updates of the last one that was written; UINT64_MAX: none */
    double metric;             /* the best so far, higher is better; NAN: none */
    struct saver_best best;    /* not on the disk yet; */
    struct saver_best writing; /* being written */
};

/* What makes a model the best: the accuracy if there is one, otherwise the loss. */
static double saver_metric(double accuracy, double test_loss, double loss) {
    return isfinite(accuracy) ? accuracy : isfinite(test_loss) ? -test_loss : -loss;
}

/* A run that continues in its folder competes with the best model there. */
static double saver_best_before(const char *dir) {
    return saver_metric(pl_checkpoint_best(dir, "test_accuracy"),
                        pl_checkpoint_best(dir, "test_loss"), pl_checkpoint_best(dir, "loss"));
}

int pl_saver_new(const struct pl_server_conf *conf, struct pl_shards *shards,
                 const struct pl_saver_model *model, void (*done)(void *ctx), void *ctx,
                 struct pl_saver **out, struct pl_why *why) {
    int rc = pl_checkpoint_folder(conf->save.dir, why);
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
    s->written = UINT64_MAX;
    s->metric = saver_best_before(conf->save.dir);
    *out = s;
    return PL_OK;
}

void pl_saver_free(struct pl_saver *s) {
    if (!s) return;
    pl_background_free(s->background);
    pl_snapshot_free(s->snapshot);
    free(s->room);
    free(s->best.w);
    free(s->writing.w);
    free(s);
}

bool pl_saver_due(const struct pl_saver *s, uint64_t updates) {
    return s->conf->save.updates > 0 && updates >= s->updates + s->conf->save.updates;
}

void pl_saver_ask(struct pl_saver *s) {
    s->asked = true;
}

void pl_saver_notes(const struct pl_save_conf *c, struct pl_snapshot *to) {
    pl_snapshot_text(to, "setup", c->text);
    char epoch[24];
    snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)c->epoch);
    pl_snapshot_text(to, "server_epoch", epoch);
    if (c->schema) pl_snapshot_text(to, "schema", c->schema);
    if (c->layout) pl_snapshot_text(to, "layout", c->layout);
    if (c->run) pl_snapshot_text(to, "run", c->run);
    if (c->id) pl_snapshot_text(to, "run_id", c->id);
    if (c->origin) pl_snapshot_text(to, "origin", c->origin);
}

static void saver_note_number(struct pl_snapshot *to, const char *key, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    if (isfinite(value)) pl_snapshot_text(to, key, text);
}

static int saver_write_best(struct pl_saver *s) {
    const struct saver_best *b = &s->writing;
    struct pl_snapshot *to;
    int rc = pl_snapshot_new(&to, &s->why);
    if (rc) return rc;
    pl_snapshot_weights(to, s->conf->job->model, b->w);
    pl_saver_notes(&s->conf->save, to);
    saver_note_number(to, "loss", b->score.loss);
    saver_note_number(to, "test_loss", b->score.test_loss);
    saver_note_number(to, "test_accuracy", b->score.test_accuracy);
    rc = pl_checkpoint_write_best(s->conf->save.dir, to, b->updates, &s->why);
    pl_snapshot_free(to);
    return rc;
}

/* Runs on the background's thread. The model first, because the best one can wait. */
static void saver_run(void *arg) {
    struct pl_saver *s = arg;
    s->rc = PL_OK;
    s->not_finite = s->snapshot && !pl_snapshot_finite(s->snapshot);
    if (s->snapshot && !s->not_finite)
        s->rc = pl_checkpoint_write(s->conf->save.dir, s->conf->save.keep, s->snapshot, s->updates,
                                    &s->why);
    s->wrote = s->snapshot && !s->not_finite && !s->rc;
    if (!s->rc && s->writing.w) s->rc = saver_write_best(s);
}

static void saver_send(struct pl_saver *s) {
    s->writing = s->best;
    s->best.w = NULL;
    pl_background_send(s->background, saver_run, s);
}

void pl_saver_scored(struct pl_saver *s, const float *w, const struct pl_score *score,
                     uint64_t updates) {
    size_t dim = s->conf->job->model->dim;
    double metric = saver_metric(score->test_accuracy, score->test_loss, score->loss);
    if (!isfinite(metric) || metric <= s->metric) return;
    if (!s->best.w) s->best.w = malloc(dim * sizeof *s->best.w);
    if (!s->best.w) return; /* the best one on the disk stays */
    memcpy(s->best.w, w, dim * sizeof *w);
    s->best.score = *score;
    s->best.updates = updates;
    s->metric = metric;
}

/* That a model was not saved. */
static void saver_not_saved(struct pl_saver *s) {
    char last[64] = "there is no checkpoint yet";
    if (s->written != UINT64_MAX)
        snprintf(last, sizeof last, "the last checkpoint is that of update %llu",
                 (unsigned long long)s->written);
    pl_fail(&s->why, PL_ERUN, "the model after update %llu is not finite and is not saved; %s",
            (unsigned long long)s->updates, last);
    if (!s->not_finite_told) pl_log_warn(&s->conf->job->log, "%s", s->why.text);
    s->not_finite_told = true;
}

/* Waits for the file that is being written and releases its model. Warns once if it failed. */
static void saver_collect(struct pl_saver *s) {
    if (!s->snapshot && !s->writing.w) return;
    pl_background_wait(s->background);
    free(s->writing.w);
    s->writing.w = NULL;
    if (s->snapshot) {
        pl_snapshot_free(s->snapshot);
        pl_engine_let_go(s->engine, &s->held);
        s->snapshot = NULL;
        if (s->not_finite) saver_not_saved(s);
    }
    if (s->wrote) s->written = s->updates;
    if (s->wrote && s->conf->save.last)
        *s->conf->save.last = (struct pl_last_save){pl_wall_seconds(), s->written};
    if (s->rc && !s->failed)
        pl_log_warn(&s->conf->job->log, "%s; the run continues without it", s->why.text);
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
    pl_saver_notes(&s->conf->save, s->snapshot);
    s->updates = pl_engine_view(e)->version;
    s->any = true;
    saver_send(s);
    return PL_OK;
}

void pl_saver_poll(struct pl_saver *s, struct pl_engine *e, uint64_t now_ns) {
    if (pl_background_busy(s->background)) return;
    saver_collect(s);
    uint64_t updates = pl_engine_view(e)->version;
    if (!s->any && s->began_ns == 0) { /* the first is due after one interval */
        s->began_ns = now_ns;
        s->updates = updates;
    }
    bool by_time = s->conf->save.ns > 0 && now_ns >= s->began_ns + s->conf->save.ns;
    if (s->any && updates == s->updates) s->asked = false; /* it exists */
    if ((!by_time && !pl_saver_due(s, updates) && !s->asked) || (s->any && updates == s->updates))
        return;
    s->asked = false;
    s->began_ns = now_ns;
    saver_begin(s, e);
}

int pl_saver_finish(struct pl_saver *s, struct pl_engine *e, bool reports, struct pl_why *why) {
    saver_collect(s);
    /* even if the last one has the same number: tasks have ended since */
    int rc = saver_begin(s, e);
    if (!rc) {
        if (reports) s->failed = s->not_finite_told = true;
        saver_collect(s);
        rc = s->not_finite ? PL_ERUN : s->rc;
    }
    return rc ? pl_fail(why, rc, "%s", s->why.text) : PL_OK;
}

int pl_saver_finish_best(struct pl_saver *s, struct pl_why *why) {
    saver_collect(s);
    if (!s->best.w) return PL_OK;
    s->failed = true; /* the caller reports it */
    saver_send(s);
    saver_collect(s);
    return s->rc ? pl_fail(why, s->rc, "%s", s->why.text) : PL_OK;
}
