/* What of a run people look at: the model now, its evaluation, what is kept of it, the outcome. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"
#include "learn/replica_mean.h"

/* --- reading -------------------------------------------------------------------------------- */

struct pl_control *pl_engine_control(const struct pl_engine *e) {
    return e->control;
}

const struct pl_view *pl_engine_view(const struct pl_engine *e) {
    return e->view;
}

struct pl_vectors *pl_engine_vectors(const struct pl_engine *e) {
    return e->vectors;
}

const struct pl_version *pl_engine_newest(const struct pl_engine *e) {
    return e->store ? pl_store_newest(e->store) : NULL;
}

const struct pl_version *pl_engine_base(const struct pl_engine *e, int worker) {
    return e->worker[worker].base;
}

int pl_engine_output(const struct pl_engine *e, int worker) {
    return e->replicas ? pl_replica_task(e->replicas, worker).answer : e->worker[worker].output;
}

uint64_t pl_engine_n_filtered(const struct pl_engine *e) {
    return pl_filter_n(e->filter);
}

const struct pl_progress *pl_engine_progress(const struct pl_engine *e) {
    if (e->store) return pl_store_progress(e->store);
    return e->vectors ? &e->progress : NULL;
}

struct pl_point pl_engine_point(const struct pl_engine *e, uint64_t now_ns) {
    return pl_point_now(e->control, pl_engine_progress(e), now_ns);
}

/* --- the model now -------------------------------------------------------------------------- */

static void model_need(void *ctx, int id) {
    struct pl_engine *e = ctx;
    bool here = pl_vector_writer(e->vectors, id) == PL_SERVER;
    for (int i = 0; !here && i < e->n_needed; i++) here = e->needed[i] == id;
    if (!here && e->n_needed < e->room_needed) e->needed[e->n_needed++] = id;
}

/* Vectors that lie with the workers that wrote them are brought here first. */
static int model_fetch(struct pl_engine *e) {
    if (!e->conf.host.fetch) return PL_OK;
    int room = pl_vectors_n(e->vectors);
    if (room > e->room_needed) {
        int *needed = realloc(e->needed, (size_t)room * sizeof *needed);
        if (!needed) return PL_ENOMEM;
        e->needed = needed;
        e->room_needed = room;
    }
    e->n_needed = 0;
    pl_replica_mean_needs(e->replicas, model_need, e);
    return e->conf.host.fetch(e->conf.host.ctx, e->needed, e->n_needed);
}

static const float *model_vector(void *ctx, int id) {
    return pl_vector_at(((struct pl_engine *)ctx)->vectors, id);
}

bool pl_engine_needs_room(const struct pl_engine *e) {
    return e->replicas || e->job->grid;
}

int pl_engine_model(struct pl_engine *e, float *room, struct pl_model_now *out) {
    size_t dim = e->job->model->dim;
    *out = (struct pl_model_now){.w = room, .consensus = NAN};
    if (e->replicas) {
        int rc = model_fetch(e);
        return rc ? rc : pl_replica_mean(e->replicas, model_vector, e, dim, room, &out->consensus);
    }
    const struct pl_version *v = pl_store_newest(e->store);
    if (e->job->grid) { /* its ranges change in place */
        memcpy(room, v->model, dim * sizeof *room);
        return PL_OK;
    }
    pl_store_hold(e->store, v);
    out->held = v;
    out->w = v->model;
    return PL_OK;
}

void pl_engine_let_go(struct pl_engine *e, struct pl_model_now *m) {
    pl_store_release(e->store, m->held);
    *m = (struct pl_model_now){.consensus = NAN};
}

/* --- evaluation ------------------------------------------------------------------------------ */

bool pl_engine_is_scored(const struct pl_engine *e, uint64_t now_ns) {
    return e->scored_ns == now_ns && e->scored_version == e->view->version;
}

bool pl_engine_has_score(const struct pl_engine *e) {
    return e->scored_ns != UINT64_MAX && e->scored_version == e->view->version;
}

void pl_engine_scored(struct pl_engine *e, const struct pl_score *score, struct pl_point *p) {
    e->out->consensus = p->consensus;
    bool reached = pl_outcome_score(e->out, &e->job->limits, score, p);
    e->scored_ns = (uint64_t)llround(p->time * 1e9);
    e->scored_version = p->updates;
    if (e->conf.watch.point) e->conf.watch.point(e->conf.watch.ctx, p);
    if (reached) pl_engine_over(e);
}

/* --- the end --------------------------------------------------------------------------------- */

/* Under the names of a store, which had these counts first. */
static int model_archive_progress(struct pl_engine *e, const struct pl_archive *k) {
    uint64_t counts[2] = {e->progress.n_commits, 0};
    double numbers[2] = {0, e->progress.samples};
    k->wholes(k->ctx, "store.counts", counts, 2);
    k->numbers(k->ctx, "store.numbers", numbers, 2);
    pl_rate_archive(&e->rate, k);
    if (!k->restoring) return PL_OK;
    if (counts[0] >= UINT64_C(1) << 62 || !(numbers[1] >= 0 && numbers[1] < 4e18)) return PL_EDATA;
    e->progress.n_commits = counts[0];
    e->progress.samples = numbers[1];
    return PL_OK;
}

int pl_engine_archive(struct pl_engine *e, const struct pl_archive *archive) {
    int rc = e->store      ? pl_store_archive(e->store, archive)
             : e->replicas ? model_archive_progress(e, archive)
                           : PL_OK;
    if (!rc) rc = pl_control_archive(e->control, archive);
    if (!rc) rc = pl_filter_archive(e->filter, archive);
    return rc;
}

int pl_engine_finish(struct pl_engine *e, const float *w, uint64_t now_ns) {
    e->out->filtered = pl_filter_n(e->filter);
    if (e->last_update_ns != UINT64_MAX) e->out->last_update = (double)e->last_update_ns * 1e-9;
    return pl_outcome_end(e->out, e->control, pl_engine_progress(e), w,
                          e->job->model ? e->job->model->dim : 0, now_ns);
}
