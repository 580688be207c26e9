/* When a simulated run meets its target.
 *
 * Evaluations take no virtual time, so a run with a target is evaluated after updates that are the
 * same whatever its clock is: after 1, 2, 4 and 8 of them, then after every eighth, and from 128 on
 * whenever their number has grown by a sixteenth; and the last model at a limit. Those in between
 * are kept.
 * If an evaluation meets the target, they are searched by bisection for an update that meets it
 * while the one before it does not; --eval-every has no part in it.
 *
 * Memory is bounded: if there are more models in between than may be kept, every second, third, …
 * one is, and the time is known to that many updates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_state.h"

#define CROSSING_FIRST 8                 /* updates between two evaluations, at least, */
#define CROSSING_SHARE 16                /* and this part of those so far */
#define CROSSING_KEPT 256                /* models between two evaluations, at most, */
#define CROSSING_BYTES ((size_t)1 << 28) /* of this size together, but at least one */

struct pl_crossing {
    size_t dim;
    uint64_t next;          /* the model is evaluated after this update */
    uint64_t newest;        /* update that was last looked at; UINT64_MAX: none */
    uint64_t kept;          /* update that was last kept */
    uint64_t stride;        /* updates from one that is kept to the next */
    struct pl_point before; /* the last evaluation that did not meet the target, */
    struct pl_score score;  /* and its score */
    int n, room;
    float *model[CROSSING_KEPT + 1]; /* [n] since then, each [dim], allocated when first needed */
    struct pl_point at[CROSSING_KEPT + 1];
};

int pl_crossing_new(const struct pl_job *job, struct pl_crossing **out, struct pl_why *why) {
    struct pl_crossing *c = calloc(1, sizeof *c);
    if (!c) return pl_fail(why, PL_ENOMEM, "out of memory for the target");
    c->dim = job->model->dim;
    c->newest = UINT64_MAX;
    c->stride = 1;
    size_t most = CROSSING_BYTES / (c->dim * sizeof(float));
    c->room = most < 1 ? 1 : most < CROSSING_KEPT ? (int)most : CROSSING_KEPT;
    *out = c;
    return PL_OK;
}

void pl_crossing_free(struct pl_crossing *c) {
    if (!c) return;
    for (int i = 0; i <= CROSSING_KEPT; i++) free(c->model[i]);
    free(c);
}

static int crossing_keep(struct sim *s, struct pl_crossing *c) {
    struct pl_model_now m;
    if (!c->model[c->n]) c->model[c->n] = pl_vector_new(c->dim);
    if (!c->model[c->n] || pl_engine_model(s->engine, s->room, &m))
        return pl_fail(s->why, PL_ENOMEM, "out of memory for the models since the last evaluation");
    memcpy(c->model[c->n], m.w, c->dim * sizeof(float));
    c->at[c->n] = pl_engine_point(s->engine, s->clock.now_ns);
    c->at[c->n].consensus = m.consensus; /* that of local models would cost too much here */
    pl_engine_let_go(s->engine, &m);
    c->kept = c->at[c->n++].updates;
    return PL_OK;
}

static void crossing_next(struct pl_crossing *c) {
    uint64_t first = c->newest < CROSSING_FIRST ? c->newest : CROSSING_FIRST;
    uint64_t gap = c->newest / CROSSING_SHARE;
    if (gap < first) gap = first;
    if (gap < 1) gap = 1;
    c->next = c->newest + gap;
    c->stride = (gap + (uint64_t)c->room - 1) / (uint64_t)c->room;
    c->n = 0;
}

/* The newest model, the last one kept, meets the target. */
static void crossing_search(struct sim *s, struct pl_crossing *c, struct pl_score met) {
    int low = -1, high = c->n - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        struct pl_score score;
        if (!pl_prefetch_score(s->prefetch, c->model[middle], &score)) return;
        if (pl_score_meets(&score, &s->job->limits)) {
            high = middle;
            met = score;
        } else {
            low = middle;
            c->score = score;
            c->before = c->at[middle];
        }
    }
    struct pl_point *p = &c->at[high];
    bool one = p->updates == c->before.updates + 1;
    /* the model before this update was the newest until this moment */
    if (one) c->before.time = p->time;
    if (c->before.updates < p->updates && (one || low >= 0))
        pl_engine_scored(s->engine, &c->score, &c->before);
    pl_engine_scored(s->engine, &met, p);
}

int pl_crossing_check(struct sim *s, bool last) {
    struct pl_crossing *c = s->crossing;
    uint64_t version = s->view->version;
    if (version == c->newest && !(last && c->n > 0)) return PL_OK;
    bool found = isfinite(s->out->time_to_target);
    c->newest = version;
    bool due = version >= c->next || last;
    if (!due && (found || version < c->kept + c->stride)) return PL_OK;
    int rc = crossing_keep(s, c);
    if (rc || !due) return rc;
    struct pl_point *p = &c->at[c->n - 1];
    struct pl_score score;
    if (!pl_prefetch_score(s->prefetch, c->model[c->n - 1], &score)) return PL_OK;
    if (pl_score_meets(&score, &s->job->limits) && !found) {
        crossing_search(s, c, score);
    } else {
        c->before = *p;
        c->score = score;
        pl_engine_scored(s->engine, &score, p);
    }
    crossing_next(c);
    return PL_OK;
}
