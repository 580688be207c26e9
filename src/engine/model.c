/* Reading a run: the current model, its evaluation, the archive and the outcome. */
#include <math.h>

#include "base/seconds.h"
#include "engine/engine_state.h"

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

struct pl_store *pl_engine_store(const struct pl_engine *e) {
    return e->store;
}

const struct pl_version *pl_engine_newest(const struct pl_engine *e) {
    return e->store ? pl_store_newest(e->store) : NULL;
}

const struct pl_version *pl_engine_base(const struct pl_engine *e, int worker) {
    return e->worker[worker].base;
}

int pl_engine_output(const struct pl_engine *e, int worker) {
    return e->models.output(e, worker);
}

struct pl_point pl_engine_point(const struct pl_engine *e, uint64_t now_ns) {
    return pl_point_now(e->control, pl_engine_progress(e), now_ns);
}

/* --- current model -------------------------------------------------------------------------- */

bool pl_engine_needs_room(const struct pl_engine *e) {
    return e->models.needs_room;
}

int pl_engine_model(struct pl_engine *e, float *room, struct pl_model_now *out) {
    *out = (struct pl_model_now){.w = room, .consensus = NAN};
    return e->models.model(e, room, out);
}

void pl_engine_let_go(struct pl_engine *e, struct pl_model_now *m) {
    pl_store_release(e->store, m->held);
    *m = (struct pl_model_now){.consensus = NAN};
}

/* --- evaluation ------------------------------------------------------------------------------ */

bool pl_engine_is_scored(const struct pl_engine *e, uint64_t now_ns) {
    return e->scores.scored_ns == now_ns && e->scores.scored_version == e->view->version;
}

bool pl_engine_has_score(const struct pl_engine *e) {
    return !e->replicas && e->scores.scored_ns != UINT64_MAX &&
           e->scores.scored_version == e->view->version;
}

/* Tells a tuner that wants to know. In a replay the recording has it. */
static void model_tell(struct pl_engine *e, double loss) {
    struct pl_event event = {.kind = PL_SCORED, .now_ns = e->view->now_ns, .loss = loss};
    if (e->ended || e->conf.replays || e->conf.follows || !pl_control_scores(e->control)) return;
    if (pl_engine_step(e, &event, &e->out->trouble)) pl_engine_end(e);
}

void pl_engine_scored(struct pl_engine *e, const struct pl_score *score, struct pl_point *p) {
    if (e->store) pl_job_tell_median(e->job, e->store, &e->told_median);
    e->out->consensus = p->consensus;
    struct pl_score before = e->out->score;
    double from = e->out->scored;
    bool reached = pl_outcome_score(e->out, &e->job->limits, score, p);
    pl_due_scored(e, &before, from, p);
    e->scores.scored_ns = pl_ns(p->time);
    e->scores.scored_version = p->updates;
    if (e->conf.watch.point) e->conf.watch.point(e->conf.watch.ctx, p);
    if (reached) pl_engine_limit_reached(e);
    model_tell(e, score->loss);
}

bool pl_engine_score_again(struct pl_engine *e, uint64_t now_ns) {
    if (!pl_engine_has_score(e)) return false;
    struct pl_score same = e->out->score;
    struct pl_point p = pl_engine_point(e, now_ns);
    pl_engine_scored(e, &same, &p);
    return true;
}

/* --- counts ---------------------------------------------------------------------------------- */

const struct pl_progress *pl_engine_own_progress(const struct pl_engine *e) {
    return e->vectors ? &e->progress : NULL;
}

int pl_engine_archive_progress(struct pl_engine *e, const struct pl_archive *k) {
    uint64_t counts[2] = {e->progress.n_commits, 0};
    double numbers[2] = {0, e->progress.samples};
    pl_archive_wholes(k, "store.counts", counts, 2);
    pl_archive_numbers(k, "store.numbers", numbers, 2);
    pl_rate_archive(&e->rate, k);
    if (!k->restoring) return PL_OK;
    if (counts[0] >= UINT64_C(1) << 62 || !(numbers[1] >= 0 && numbers[1] < 4e18)) return PL_EDATA;
    e->progress.n_commits = counts[0];
    e->progress.samples = numbers[1];
    return PL_OK;
}

/* --- the end --------------------------------------------------------------------------------- */

int pl_engine_archive(struct pl_engine *e, const struct pl_archive *archive) {
    int rc = e->models.archive ? e->models.archive(e, archive) : PL_OK;
    if (!rc) rc = pl_control_archive(e->control, archive);
    if (!rc) rc = pl_filter_archive(e->filter, archive);
    if (!rc && archive->restoring) pl_due_begin(e);
    return rc;
}

int pl_engine_finish(struct pl_engine *e, const float *w, uint64_t now_ns) {
    if (e->store) pl_job_tell_median(e->job, e->store, &e->told_median);
    e->out->filtered = pl_filter_n(e->filter);
    if (e->last_update_ns != UINT64_MAX) e->out->last_update = pl_seconds(e->last_update_ns);
    pl_control_end(e->control, now_ns);
    return pl_outcome_end(e->out, e->control, pl_engine_progress(e), w,
                          e->job->model ? e->job->model->dim : 0, now_ns);
}
