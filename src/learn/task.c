#include "learn/task.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/mf.h"

#define TASK_ROWS 4096 /* gathered between two polls of `cancel` */

struct pl_workspace {
    uint32_t *index;
    float *x;
    uint16_t *label;
    float *target;    /* NULL: the data has none */
    float *scratch;   /* the model's */
    float *model, *g; /* the local rule's */
};

/* [n] numbers, uninitialised, aligned to a cache line: vectors that straddle two are slow. */
static float *task_floats(size_t n) {
    return aligned_alloc(64, (n * sizeof(float) + 64) & ~(size_t)63);
}

int pl_workspace_new(const struct pl_job *job, struct pl_workspace **out) {
    uint32_t rows = job->batch > PL_SCORE_ROWS ? job->batch : PL_SCORE_ROWS;
    struct pl_workspace *d = calloc(1, sizeof *d);
    if (!d) return PL_ENOMEM;
    *out = d;
    d->scratch = task_floats(job->model->kind->scratch(job->model, rows));
    bool ok = d->scratch != NULL;
    if (job->data) {
        d->index = malloc(rows * sizeof *d->index);
        d->label = malloc(rows * sizeof *d->label);
        d->x = task_floats((size_t)rows * job->data->dim);
        if (job->data->has_targets) d->target = task_floats(rows);
        ok = ok && d->index && d->label && d->x && (d->target || !job->data->has_targets);
    }
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    bool copies = local->sends == PL_SENDS_DELTA || local->sends == PL_SENDS_MODEL;
    if (pl_job_steps(job) > 1 || copies || local->n_vectors) {
        d->model = task_floats(job->model->dim);
        d->g = task_floats(job->model->dim);
        ok = ok && d->model && d->g;
    }
    return ok ? PL_OK : PL_ENOMEM;
}

void pl_workspace_free(struct pl_workspace *d) {
    if (!d) return;
    free(d->index);
    free(d->x);
    free(d->label);
    free(d->target);
    free(d->scratch);
    free(d->model);
    free(d->g);
    free(d);
}

/* Fills the workspace with the rows index[0..n) of the data, and points the batch to them. False if
 * it is cancelled. */
static bool task_rows(const struct pl_job *job, struct pl_workspace *d, bool test,
                      struct pl_batch *b, const struct pl_cancel *cancel) {
    for (uint32_t at = 0, n; at < b->n; at += n) {
        n = b->n - at < TASK_ROWS ? b->n - at : TASK_ROWS;
        if (at > 0 && pl_cancelled(cancel)) return false; /* the model polls first */
        pl_data_rows(job->data, test, d->index + at, n, d->x + (size_t)at * job->data->dim,
                     d->label + at);
        if (d->target) pl_data_targets(job->data, test, d->index + at, n, d->target + at);
    }
    b->row = d->index;
    b->test = test;
    b->x = d->x;
    b->label = d->label;
    b->target = d->target;
    return true;
}

/* --- tasks ------------------------------------------------------------------------------- */

struct task_call {
    const struct pl_job *job;
    struct pl_workspace *workspace;
    const struct pl_task_at *at;
    float *out;
    uint64_t first_batch; /* number of the task's first mini-batch */
    const struct pl_cancel *cancel;
};

/* The attack that this worker takes part in, or NULL. */
static const struct pl_attack *task_attack(const struct pl_job *job, uint32_t worker) {
    const struct pl_attack *a = (const struct pl_attack *)job->attack.entry;
    return pl_attack_hostile(a, job->attack.conf, (int)worker, job->n_workers) ? a : NULL;
}

static void task_spoil(const struct pl_job *job, const struct pl_attack *attack, uint32_t worker,
                       uint64_t task, float *out) {
    struct pl_attack_at at = {job->seed, task, worker, job->n_workers};
    attack->alone(job->attack.conf, &at, out, job->model->dim);
}

static void task_turn(uint16_t *label, uint32_t n, uint32_t n_classes) {
    for (uint32_t i = 0; i < n; i++) label[i] = (uint16_t)(n_classes - 1 - label[i]);
}

/* The gradient of the task's mini-batch number `step` at w. */
static int task_gradient(const struct task_call *c, const float *w, uint32_t step, float *g,
                         double *loss) {
    const struct pl_job *job = c->job;
    struct pl_batch b = {.n = job->batch,
                         .seed = job->seed,
                         .worker = c->at->worker,
                         .batch_no = c->first_batch + step};
    if (job->data) {
        pl_partition_draw(job->partition, job->sampling, job->seed, c->at->worker, b.batch_no, b.n,
                          c->workspace->index);
        if (!task_rows(job, c->workspace, false, &b, c->cancel)) return PL_ECANCELLED;
        if (task_attack(job, c->at->worker) && task_attack(job, c->at->worker)->labels)
            task_turn(c->workspace->label, b.n, job->data->n_classes);
    }
    return job->model->kind->gradient(job->model, w, &b, g, loss, c->workspace->scratch, c->cancel);
}

/* Sweeps once over the ratings of a block, on copies of its strips. */
static int task_sweep(const struct task_call *c, double *loss) {
    const struct pl_job *job = c->job;
    bool adaptive = ((const struct pl_local_sweep *)job->local.conf)->adaptive;
    const struct pl_task_at *at = c->at;
    uint64_t side = (uint64_t)pl_grid_side(job->grid);
    for (int i = 0; i < at->n_strips; i++)
        memcpy(at->strip[i].out, at->strip[i].in, at->strip[i].n * sizeof(float));
    /* LIBMF's first iteration has as many blocks as the grid */
    bool first = at->version < side * side;
    return pl_mf_sweep(job->model, job->grid, at->part.row, at->part.col,
                       adaptive ? PL_MF_ADAPTIVE : PL_MF_PLAIN, at->lr, first, at->strip[0].out,
                       at->strip[1].out, loss, c->cancel);
}

void pl_task_own(enum pl_sends sends, const struct pl_own_step *step, const float *w, float *out,
                 size_t dim) {
    size_t n = pl_ranges_parameters(&step->ranges, dim);
    float by = (float)step->outer;
    switch (sends) {
    case PL_SENDS_GRADIENT:
        for (size_t i = 0; i < n;) {
            struct pl_piece p = pl_ranges_piece(&step->ranges, i, n);
            float lr = (float)(step->lr * p.lr_factor);
            float decay = (float)(step->decay * p.decay_factor);
            for (size_t end = i + p.n; i < end; i++) out[i] = w[i] - lr * (out[i] + decay * w[i]);
        }
        break;
    case PL_SENDS_DELTA:
        for (size_t i = 0; i < n; i++) out[i] = w[i] - by * out[i];
        break;
    case PL_SENDS_MODEL:
    case PL_SENDS_RANGES: break;
    }
}

/* Mini-batch by mini-batch, as the local rule wants them. */
static int task_steps(const struct task_call *c, struct pl_local_state *state, double *loss) {
    const struct pl_job *job = c->job;
    struct pl_local_task t = {.dim = job->model->dim,
                              .w = c->at->w,
                              .lr = c->at->lr,
                              .weight_decay = job->weight_decay,
                              .ranges = job->ranges,
                              .n_workers = job->n_workers,
                              .model = c->workspace->model,
                              .g = c->workspace->g,
                              .out = c->out};
    struct pl_local_steps s;
    double one = NAN;
    int rc;
    pl_local_begin(&job->local, &t, state, c->at->task, c->at->version, &s);
    do rc = task_gradient(c, s.task.at, s.done, s.task.g, &one);
    while (!rc && pl_local_next(&s, one));
    *loss = s.loss;
    return rc;
}

int pl_task_run(const struct pl_job *job, struct pl_workspace *workspace,
                const struct pl_task_at *at, struct pl_local_state *state, float *out, double *loss,
                const struct pl_cancel *cancel) {
    const struct pl_local *local = (const struct pl_local *)job->local.entry;
    struct task_call call = {job, workspace, at, out, (at->task - 1) * pl_job_steps(job), cancel};
    int rc = local->begin           ? task_steps(&call, state, loss)
             : pl_part_is(at->part) ? task_sweep(&call, loss)
                                    : PL_ECANCELLED;
    const struct pl_attack *attack = task_attack(job, at->worker);
    if (!rc && attack && attack->alone) task_spoil(job, attack, at->worker, at->task, out);
    struct pl_own_step own = {.lr = at->lr,
                              .decay = local->applies_weight_decay ? 0 : job->weight_decay,
                              .outer =
                                  local->outer ? local->outer(job->local.conf, job->n_workers) : 1,
                              .ranges = job->ranges};
    if (!rc && ((const struct pl_policy *)job->policy.entry)->peers)
        pl_task_own(local->sends, &own, at->w, out, job->model->dim);
    return rc;
}

int pl_task_forge(const struct pl_job *job, const struct pl_group_vector *member, int n) {
    return pl_attack_group((const struct pl_attack *)job->attack.entry, job->attack.conf,
                           job->n_workers, member, n, job->model->dim);
}

bool pl_task_finite(const struct pl_job *job, const struct pl_task_at *at, float *out,
                    double loss) {
    for (int i = 0; i < at->n_strips; i++)
        if (!pl_vec_finite(at->strip[i].out, at->strip[i].n)) return false;
    return isfinite(loss) && (at->n_strips > 0 || pl_vec_finite(out, job->model->dim));
}

/* --- evaluation -------------------------------------------------------------------------- */

static uint32_t task_score_rows(const struct pl_job *job) {
    return job->eval_samples < job->data->n_train ? job->eval_samples : job->data->n_train;
}

/* The i-th of n samples that are spread evenly over the N of the training set: one at a place that
 * looks random in each of n equal parts. At equal distances they could all be of one class. */
static uint32_t task_score_row(uint32_t i, uint32_t n, uint32_t n_train) {
    uint64_t from = (uint64_t)i * n_train / n, to = (uint64_t)(i + 1) * n_train / n;
    return (uint32_t)(from + ((to - from) * (i * 0x9e3779b9u) >> 32)); /* golden ratio */
}

static int task_score_pieces(uint32_t n) {
    return (int)((n + PL_SCORE_ROWS - 1) / PL_SCORE_ROWS);
}

int pl_score_pieces(const struct pl_job *job) {
    if (!job->data) return 1;
    return task_score_pieces(task_score_rows(job)) + task_score_pieces(job->data->n_test);
}

void pl_score_run(const struct pl_job *job, struct pl_workspace *workspace, const float *w,
                  int piece, struct pl_score_piece *out, const struct pl_cancel *cancel) {
    *out = (struct pl_score_piece){0};
    struct pl_batch b = {.n = 1, .seed = job->seed};
    if (job->data) {
        uint32_t n_train = task_score_rows(job);
        int n_first = task_score_pieces(n_train);
        bool test = piece >= n_first;
        uint32_t n = test ? job->data->n_test : n_train;
        uint32_t from = (uint32_t)(test ? piece - n_first : piece) * PL_SCORE_ROWS;
        b.n = n - from < PL_SCORE_ROWS ? n - from : PL_SCORE_ROWS;
        for (uint32_t i = 0; i < b.n; i++)
            workspace->index[i] =
                test ? from + i : task_score_row(from + i, n_train, job->data->n_train);
        if (!task_rows(job, workspace, test, &b, cancel)) return;
    }
    job->model->kind->score(job->model, w, &b, workspace->scratch, &out->loss, &out->n_right,
                            cancel);
}

struct pl_score pl_score_sum(const struct pl_job *job, const struct pl_score_piece *piece) {
    struct pl_score s = {.test_loss = NAN, .test_accuracy = NAN};
    if (!job->data) {
        s.loss = piece[0].loss;
        return s;
    }
    uint32_t n_train = task_score_rows(job), n_test = job->data->n_test, right = 0;
    int n_first = task_score_pieces(n_train), n_all = pl_score_pieces(job);
    double test_loss = 0;
    for (int i = 0; i < n_first; i++) s.loss += piece[i].loss;
    for (int i = n_first; i < n_all; i++) {
        test_loss += piece[i].loss;
        right += piece[i].n_right;
    }
    s.loss /= n_train;
    if (n_test > 0) {
        s.test_loss = test_loss / n_test;
        if (job->model->classifies) s.test_accuracy = (double)right / n_test;
    }
    return s;
}
