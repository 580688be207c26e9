#include "engine/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "engine/engine_state.h"

/* What an output vector stands for. */
struct blocks_output {
    int vector;
    float *strip[PL_STRIPS];
};

/* A result in the open group. */
struct blocks_member {
    int vector;
    struct pl_part part;
};

struct pl_blocks {
    const struct pl_job *job;
    struct pl_vectors *vectors;
    int side;
    size_t longest[PL_STRIPS];
    float **model[PL_STRIPS]; /* [side] the strips of the model: rows, columns */
    struct blocks_output *output;
    int n_outputs;
    size_t room;
    struct blocks_member *member; /* [n_members] the open group; room for one of every worker */
    int n_members;
};

/* --- strips ---------------------------------------------------------------------------------- */

/* Divides a new vector into strips. */
static bool blocks_cut(struct pl_blocks *b, int worker, int *vector, float *strip[PL_STRIPS]) {
    *vector = pl_vector_add(b->vectors, worker);
    float *v = *vector == PL_NO_VECTOR ? NULL : pl_vector_at(b->vectors, *vector);
    for (int j = 0; v && j < PL_STRIPS; v += b->longest[j++]) strip[j] = v;
    return v != NULL;
}

/* The strip of the model that has range j of a part. */
static float **blocks_at(const struct pl_blocks *b, struct pl_part part, int j) {
    return &b->model[j][j == 0 ? part.row : part.col];
}

/* Segment i of the rows and segment i of the columns share a vector at first. */
static bool blocks_first(struct pl_blocks *b, const float *w) {
    for (int i = 0; i < b->side; i++) {
        struct pl_range range[PL_STRIPS];
        struct pl_part part = {i, i};
        float *strip[PL_STRIPS];
        int vector;
        if (!blocks_cut(b, 0, &vector, strip)) return false;
        int n = pl_part_ranges(b->job, part, range);
        for (int j = 0; j < n; j++) {
            memcpy(strip[j], w + range[j].from, range[j].n * sizeof *w);
            *blocks_at(b, part, j) = strip[j];
        }
    }
    return true;
}

int pl_blocks_new(const struct pl_job *job, struct pl_vectors *vectors, const float *w,
                  struct pl_blocks **out) {
    struct pl_blocks *b = calloc(1, sizeof *b);
    if (!b) return PL_ENOMEM;
    *b = (struct pl_blocks){.job = job, .vectors = vectors, .side = pl_part_side(job)};
    pl_part_longest(job, b->longest);
    bool ok = (b->member = calloc((size_t)job->n_workers, sizeof *b->member)) != NULL;
    for (int j = 0; j < PL_STRIPS; j++)
        ok = (b->model[j] = calloc((size_t)b->side, sizeof *b->model[j])) && ok;
    if (!ok || !blocks_first(b, w)) {
        pl_blocks_free(b);
        return PL_ENOMEM;
    }
    *out = b;
    return PL_OK;
}

void pl_blocks_free(struct pl_blocks *b) {
    if (!b) return;
    for (int j = 0; j < PL_STRIPS; j++) free(b->model[j]);
    free(b->output);
    free(b->member);
    free(b);
}

int pl_blocks_output(struct pl_blocks *b, int worker) {
    for (int i = 0; i < b->n_outputs; i++) {
        int vector = b->output[i].vector;
        if (pl_vector_n_readers(b->vectors, vector) > 1) continue;
        pl_vector_hold(b->vectors, vector);
        return vector;
    }
    if (!PL_GROW(b->output, b->room, b->n_outputs + 1)) return PL_NO_VECTOR;
    struct blocks_output *o = &b->output[b->n_outputs];
    if (!blocks_cut(b, worker, &o->vector, o->strip)) return PL_NO_VECTOR;
    b->n_outputs++;
    pl_vector_hold(b->vectors, o->vector);
    return o->vector;
}

static struct blocks_output *blocks_find(const struct pl_blocks *b, int vector) {
    int i = 0;
    while (b->output[i].vector != vector) i++;
    return &b->output[i];
}

int pl_blocks_strips(const struct pl_blocks *b, struct pl_part part, int output,
                     struct pl_strip strip[PL_STRIPS]) {
    struct pl_range range[PL_STRIPS];
    const struct blocks_output *o = blocks_find(b, output);
    int n = pl_part_ranges(b->job, part, range);
    for (int j = 0; j < n; j++)
        strip[j] = (struct pl_strip){*blocks_at(b, part, j), o->strip[j], range[j].n};
    return n;
}

/* The model goes on with copies of the strips of a part, which a worker may go on reading. Returns
 * the vector that has the strips now, and can be used again when nobody holds it; or PL_NO_VECTOR,
 * and the worker may read what others write: its result is void. */
static int blocks_part_with(struct pl_blocks *b, int worker, struct pl_part part) {
    struct pl_strip strip[PL_STRIPS];
    int vector = pl_blocks_output(b, worker);
    if (vector == PL_NO_VECTOR) return vector;
    struct blocks_output *o = blocks_find(b, vector);
    int n = pl_blocks_strips(b, part, vector, strip);
    for (int j = 0; j < n; j++) {
        float **at = blocks_at(b, part, j);
        memcpy(strip[j].out, strip[j].in, strip[j].n * sizeof(float));
        o->strip[j] = *at;
        *at = strip[j].out;
    }
    pl_vector_release(b->vectors, vector);
    return vector;
}

bool pl_blocks_adopt(struct pl_blocks *b, struct pl_part part, int output, bool is_finite) {
    struct blocks_output *o = blocks_find(b, output);
    struct pl_strip strip[PL_STRIPS];
    int n = pl_blocks_strips(b, part, output, strip);
    for (int j = 0; !is_finite && j < n; j++)
        if (!pl_vec_finite(strip[j].out, strip[j].n)) return false;
    for (int j = 0; j < n; j++) {
        float **at = blocks_at(b, part, j), *written = o->strip[j];
        o->strip[j] = *at;
        *at = written;
    }
    return true;
}

void pl_blocks_model(const struct pl_blocks *b, float *w) {
    for (int i = 0; i < b->side; i++) {
        struct pl_range range[PL_STRIPS];
        int n = pl_part_ranges(b->job, (struct pl_part){i, i}, range);
        for (int j = 0; j < n; j++)
            memcpy(w + range[j].from, b->model[j][i], range[j].n * sizeof *w);
    }
}

/* --- the model of an engine ------------------------------------------------------------------ */

static int blocks_begin(struct pl_engine *e, const float *w0, size_t dim, struct pl_why *why) {
    (void)dim; /* vectors are as long as a block */
    e->workers_check = true;
    e->rate = e->job->rate;
    e->progress.epoch = e->rate.epoch_samples;
    int rc = pl_engine_own_vectors(e, pl_part_most(e->job));
    if (!rc) rc = pl_blocks_new(e->job, e->vectors, w0, &e->blocks);
    return rc ? pl_fail(why, rc, "out of memory for the model") : PL_OK;
}

static int blocks_start(struct pl_engine *e, const struct pl_action *a, struct pl_start *start) {
    struct engine_worker *w = &e->worker[a->worker];
    if (w->output == PL_NO_VECTOR) w->output = pl_blocks_output(e->blocks, a->worker);
    if (w->output == PL_NO_VECTOR) return PL_ENOMEM;
    w->base_id = start->version = e->progress.n_commits;
    start->lr = pl_rate_now(&e->rate, &e->progress, e->job->n_workers);
    start->output = w->output;
    start->n_strips = pl_blocks_strips(e->blocks, w->part, w->output, start->strip);
    return e->conf.host.start(e->conf.host.ctx, start);
}

/* A worker is not started again before its result is committed. */
static int blocks_take(struct pl_engine *e, const struct pl_action *a, struct pl_why *why) {
    (void)why;
    struct pl_blocks *b = e->blocks;
    struct engine_worker *w = &e->worker[a->worker];
    b->member[b->n_members++] = (struct blocks_member){w->output, w->part};
    w->output = PL_NO_VECTOR;
    w->taken = a->task;
    return PL_OK;
}

static int blocks_commit(struct pl_engine *e, const struct pl_action *a, struct pl_measure *measure,
                         struct pl_why *why) {
    (void)a;
    (void)measure;
    (void)why;
    struct pl_blocks *b = e->blocks;
    struct pl_tally t = {0};
    size_t n;
    const struct pl_member *m = pl_control_group(e->control, &n);
    for (int i = 0; i < b->n_members; i++) {
        struct blocks_member *mine = &b->member[i];
        bool finite = pl_blocks_adopt(b, mine->part, mine->vector, e->conf.trusts_workers);
        if (finite) pl_tally_add(&t, m[i].samples, m[i].loss);
        pl_engine_judged(e, (size_t)i, finite);
        e->worker[m[i].worker].applied = e->worker[m[i].worker].taken;
        pl_vector_release(e->vectors, mine->vector);
    }
    b->n_members = 0;
    e->progress.n_commits++;
    pl_rate_commit(&e->rate, &e->progress, &t);
    return PL_OK;
}

static void blocks_forget(struct pl_engine *e, int worker) {
    pl_vector_release(e->vectors, e->worker[worker].output);
}

static int blocks_output(const struct pl_engine *e, int worker) {
    return e->worker[worker].output;
}

static int blocks_touches(const struct pl_engine *e, int worker, int vector[PL_TERMS + 2]) {
    vector[0] = e->worker[worker].output;
    vector[1] = blocks_part_with(e->blocks, worker, e->worker[worker].part);
    return 2;
}

static int blocks_model(struct pl_engine *e, float *room, struct pl_model_now *out) {
    (void)out;
    pl_blocks_model(e->blocks, room);
    return PL_OK;
}

const struct pl_engine_models pl_engine_blocks = {.first = blocks_begin,
                                                  .start = blocks_start,
                                                  .take = blocks_take,
                                                  .commit = blocks_commit,
                                                  .forget = blocks_forget,
                                                  .output = blocks_output,
                                                  .touches = blocks_touches,
                                                  .progress = pl_engine_own_progress,
                                                  .model = blocks_model,
                                                  .needs_room = true,
                                                  .archive = pl_engine_archive_progress};
