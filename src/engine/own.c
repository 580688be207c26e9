/* A model per worker: combinations of vectors (core/replicas.h), and their mean. */
#include <string.h>

#include "base/grow.h"
#include "engine/engine_state.h"
#include "learn/replica_mean.h"

/* All workers begin with the same vector. */
static int own_first(struct pl_engine *e, const float *w0, size_t dim, struct pl_why *why) {
    e->vectors = pl_replicas_vectors(e->replicas);
    pl_vectors_memory(e->vectors, dim, e->conf.host.memory.get ? &e->conf.host.memory : NULL);
    float *first = pl_vector_at(e->vectors, PL_FIRST_VECTOR);
    if (!first) return pl_fail(why, PL_ENOMEM, "out of memory for the model");
    memcpy(first, w0, dim * sizeof *first);
    e->workers_check = e->judges_on_arrival = true;
    e->rate = e->job->rate;
    e->progress.epoch = e->rate.epoch_samples;
    return PL_OK;
}

static int own_start(struct pl_engine *e, const struct pl_action *a, struct pl_start *start) {
    struct pl_replica_task t = pl_replica_task(e->replicas, a->worker);
    start->input = t.input;
    start->base = t.base_pending ? t.base : PL_NO_VECTOR;
    start->output = t.answer;
    start->stays = true;
    start->version = e->progress.n_commits;
    start->lr = pl_rate_now(&e->rate, &e->progress, e->job->n_workers);
    return e->conf.host.start(e->conf.host.ctx, start);
}

/* The replicas have applied the group already; only counts are updated. */
static int own_commit(struct pl_engine *e, const struct pl_action *a, struct pl_measure *measure,
                      struct pl_why *why) {
    (void)a;
    (void)measure;
    (void)why;
    size_t n;
    struct pl_tally t = {0};
    const struct pl_member *m = pl_control_group(e->control, &n);
    e->progress.n_commits++;
    for (size_t i = 0; i < n; i++) pl_tally_add(&t, m[i].samples, m[i].loss);
    pl_rate_commit(&e->rate, &e->progress, &t);
    return PL_OK;
}

static int own_output(const struct pl_engine *e, int worker) {
    return pl_replica_task(e->replicas, worker).answer;
}

static int own_touches(const struct pl_engine *e, int worker, int vector[PL_TERMS + 2]) {
    struct pl_replica_task t = pl_replica_task(e->replicas, worker);
    int n = 0;
    if (!e->vectors) return 0;
    vector[n++] = t.answer;
    vector[n++] = t.base;
    for (int i = 0; t.input && i < t.input->n; i++) vector[n++] = t.input->term[i].vector;
    return n;
}

/* --- the mean ------------------------------------------------------------------------------- */

static void own_need(void *ctx, int id) {
    struct pl_engine *e = ctx;
    bool here = pl_vector_writer(e->vectors, id) == PL_SERVER;
    for (int i = 0; !here && i < e->mean.n_needed; i++) here = e->mean.needed[i] == id;
    if (!here && (size_t)e->mean.n_needed < e->mean.room_needed)
        e->mean.needed[e->mean.n_needed++] = id;
}

/* Fetches the vectors that are still at the workers that wrote them. */
static int own_fetch(struct pl_engine *e) {
    if (!e->conf.host.fetch) return PL_OK;
    if (!PL_GROW(e->mean.needed, e->mean.room_needed, pl_vectors_n(e->vectors))) return PL_ENOMEM;
    e->mean.n_needed = 0;
    pl_replica_mean_needs(e->replicas, own_need, e);
    return e->conf.host.fetch(e->conf.host.ctx, e->mean.needed, e->mean.n_needed);
}

static const float *own_vector(void *ctx, int id) {
    return pl_vector_at(((struct pl_engine *)ctx)->vectors, id);
}

static int own_model(struct pl_engine *e, float *room, struct pl_model_now *out) {
    int rc = own_fetch(e);
    return rc ? rc
              : pl_replica_mean(e->replicas, own_vector, e, e->job->model->dim, room,
                                &out->consensus);
}

const struct pl_engine_models pl_engine_own = {.first = own_first,
                                               .start = own_start,
                                               .commit = own_commit,
                                               .output = own_output,
                                               .touches = own_touches,
                                               .progress = pl_engine_own_progress,
                                               .model = own_model,
                                               .needs_room = true,
                                               .archive = pl_engine_archive_progress};
