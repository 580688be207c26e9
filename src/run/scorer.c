#include "run/scorer.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sys/background.h"
#include "sys/fpu.h"
#include "sys/pool.h"

struct pl_scorer {
    const struct pl_job *job;
    struct pl_background *background;
    struct pl_pool *pool;            /* the background's */
    struct pl_workspace **workspace; /* [threads of the pool] */
    struct pl_score_piece *piece;
    const float *w;
    atomic_bool given_up;
    struct pl_score score;
};

int pl_scorer_new(const struct pl_job *job, void (*done)(void *ctx), void *ctx,
                  struct pl_scorer **out) {
    struct pl_scorer *s = calloc(1, sizeof *s);
    if (!s) return PL_ENOMEM;
    s->job = job;
    s->score = (struct pl_score){NAN, NAN, NAN};
    bool ok = pl_pool_new(job->n_threads, &s->pool) == PL_OK;
    int n = ok ? pl_pool_size(s->pool) : 0;
    s->workspace = calloc((size_t)n + 1, sizeof(*s->workspace));
    s->piece = calloc((size_t)pl_score_pieces(job), sizeof *s->piece);
    ok = ok && s->workspace && s->piece;
    for (int i = 0; ok && i < n; i++) ok = pl_workspace_new(job, &s->workspace[i]) == PL_OK;
    if (!ok || pl_background_new(done, ctx, &s->background)) {
        pl_scorer_free(s);
        return PL_ENOMEM;
    }
    *out = s;
    return PL_OK;
}

void pl_scorer_free(struct pl_scorer *s) {
    if (!s) return;
    pl_background_free(s->background);
    for (int i = 0; s->workspace && s->pool && i < pl_pool_size(s->pool); i++)
        pl_workspace_free(s->workspace[i]);
    if (s->pool) pl_pool_free(s->pool);
    free(s->workspace);
    free(s->piece);
    free(s);
}

static void scorer_piece(void *arg, int i, int thread) {
    struct pl_scorer *s = arg;
    const struct pl_cancel cancel = {.flag = &s->given_up};
    if (!pl_cancelled(&cancel))
        pl_score_run(s->job, s->workspace[thread], s->w, i, &s->piece[i], &cancel);
}

static void scorer_run(void *arg) {
    struct pl_scorer *s = arg;
    uint64_t fpu = pl_fpu_flush();
    pl_pool_each(s->pool, pl_score_pieces(s->job), scorer_piece, s);
    s->score = pl_score_sum(s->job, s->piece);
    pl_fpu_restore(fpu);
}

bool pl_scorer_busy(struct pl_scorer *s) {
    return pl_background_busy(s->background);
}

void pl_scorer_send(struct pl_scorer *s, const float *w) {
    s->w = w;
    pl_background_send(s->background, scorer_run, s);
}

struct pl_score pl_scorer_wait(struct pl_scorer *s) {
    pl_background_wait(s->background);
    return s->score;
}

void pl_scorer_give_up(struct pl_scorer *s) {
    atomic_store(&s->given_up, true);
    pl_background_wait(s->background);
    atomic_store(&s->given_up, false);
}
