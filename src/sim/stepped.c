#include "sim/stepped.h"

#include <math.h>
#include <stdlib.h>

#include "base/grow.h"
#include "base/seconds.h"
#include "core/offload.h"
#include "sim/sim_state.h"

#define STEPPED_FRESH 8 /* vectors that one event may need: a version, its look-ahead, state, … */
#define STEPPED_MORE 8  /* vectors that the caller is asked for at a time */

enum stepped_waits { STEPPED_NOTHING, STEPPED_GRADIENT, STEPPED_SCORE };
enum stepped_phase { STEPPED_NEW, STEPPED_RUNS, STEPPED_SCORES, STEPPED_ENDED };

struct stepped_stack {
    float **at;
    size_t n, room;
};

struct pl_stepped {
    struct sim sim;
    struct pl_sim_conf conf;
    enum stepped_phase phase;
    struct stepped_stack fresh, used; /* never written, and written and given back */
    size_t n_given;
    struct pl_offload_ops offload;
    struct pl_offload *commit; /* [room_commits] n_commits that are to be carried out, from done */
    size_t n_commits, room_commits, done;
    bool loads;
    float *load[2];
    enum stepped_waits waits;
    bool asked, answered;  /* what is waited for has been asked for, and is there */
    struct pl_event event; /* the arrival of the gradient */
    float *vector;         /* where it is */
    uint32_t *row;
    double loss;
    bool finite;
    struct pl_score score;
};

/* --- vectors ------------------------------------------------------------------------------ */

static bool stepped_push(struct stepped_stack *s, float *v) {
    if (!PL_GROW(s->at, s->room, s->n + 1)) return false;
    s->at[s->n++] = v;
    return true;
}

static float *stepped_get(void *ctx, int writer) {
    struct pl_stepped *x = ctx;
    (void)writer;
    struct stepped_stack *from = x->used.n > 0 ? &x->used : &x->fresh;
    return from->n > 0 ? from->at[--from->n] : NULL;
}

/* There is room for every vector that was given: pl_stepped_give made it. */
void pl_stepped_put(void *ctx, int id, int writer, pl_real *v) {
    struct pl_stepped *x = ctx;
    (void)id;
    (void)writer;
    if (v) stepped_push(&x->used, v);
}

static float *stepped_zeros(void *ctx) {
    struct pl_stepped *x = ctx;
    return x->fresh.n > 0 ? x->fresh.at[--x->fresh.n] : NULL;
}

struct pl_vector_memory pl_stepped_memory(struct pl_stepped *x) {
    return (struct pl_vector_memory){stepped_get, pl_stepped_put, x};
}

int pl_stepped_give(struct pl_stepped *x, float *address) {
    if (!PL_GROW(x->used.at, x->used.room, x->n_given + 1)) return PL_ENOMEM;
    if (!address || !stepped_push(&x->fresh, address)) return PL_ENOMEM;
    x->n_given++;
    return PL_OK;
}

/* --- commits ------------------------------------------------------------------------------ */

static void stepped_load(void *ctx, pl_real *model, pl_real *lookahead) {
    struct pl_stepped *x = ctx;
    x->loads = true;
    x->load[0] = model;
    x->load[1] = lookahead != model ? lookahead : NULL;
}

static int stepped_commit(void *ctx, const struct pl_offload *o) {
    struct pl_stepped *x = ctx;
    if (!PL_GROW(x->commit, x->room_commits, x->n_commits + 1)) return PL_ENOMEM;
    x->commit[x->n_commits++] = *o;
    return PL_OK;
}

const struct pl_offload_ops *pl_stepped_offload(const struct pl_stepped *x) {
    return &x->offload;
}

/* --- what the simulator waits for ----------------------------------------------------------- */

bool pl_stepped_waits(const struct pl_stepped *x) {
    return x->waits != STEPPED_NOTHING;
}

static void stepped_wait(struct pl_stepped *x, enum stepped_waits what) {
    x->waits = what;
    x->asked = x->answered = false;
}

void pl_stepped_evaluate(struct pl_stepped *x) {
    stepped_wait(x, STEPPED_SCORE);
}

int pl_stepped_bring(struct sim *s, const struct pl_event *e) {
    struct pl_stepped *x = s->stepped;
    x->event = *e;
    x->vector = pl_vector_at(pl_engine_vectors(s->engine), pl_engine_output(s->engine, e->worker));
    if (!x->vector) return pl_fail(s->why, PL_ENOMEM, "out of memory for a gradient");
    stepped_wait(x, STEPPED_GRADIENT);
    return PL_OK;
}

/* Continues with the result. */
static int stepped_resume(struct pl_stepped *x) {
    struct sim *s = &x->sim;
    int rc = PL_OK;
    if (x->waits == STEPPED_SCORE) {
        struct pl_point p = pl_engine_point(s->engine, s->clock.now_ns);
        pl_engine_scored(s->engine, &x->score, &p);
    } else {
        x->event.loss = x->loss;
        x->event.samples = s->job->batch;
        s->out->computed++;
        rc = pl_engine_event(s->engine, &x->event,
                             x->finite ? NULL : "sent a gradient that is not finite", s->why);
    }
    x->waits = STEPPED_NOTHING;
    return rc || x->phase == STEPPED_SCORES ? rc : pl_sim_after(s);
}

/* --- steps --------------------------------------------------------------------------------- */

static void stepped_ask_gradient(struct pl_stepped *x, struct pl_loop_step *step) {
    struct sim *s = &x->sim;
    const struct pl_job *job = s->job;
    int worker = x->event.worker;
    const struct pl_version *base = pl_engine_base(s->engine, worker);
    *step = (struct pl_loop_step){.what = PL_LOOP_GRADIENT,
                                  .worker = worker,
                                  .task = x->event.task,
                                  .version = base->id,
                                  .lr = base->lr,
                                  .w = base->lookahead,
                                  .out = x->vector,
                                  .n = job->batch};
    if (!job->partition) return;
    pl_partition_draw(job->partition, job->sampling, job->seed, (uint32_t)worker, x->event.task - 1,
                      job->batch, x->row);
    step->row = x->row;
}

/* What is evaluated. It is the caller's memory. */
static float *stepped_shown(const struct pl_stepped *x) {
    return (float *)pl_store_shown(pl_engine_store(x->sim.engine));
}

/* Asks for what is missing. */
static void stepped_ask(struct pl_stepped *x, struct pl_loop_step *step) {
    const struct pl_version *now = pl_engine_newest(x->sim.engine);
    if (x->waits == STEPPED_GRADIENT)
        stepped_ask_gradient(x, step);
    else
        *step =
            (struct pl_loop_step){.what = PL_LOOP_SCORE, .version = now->id, .w = stepped_shown(x)};
    x->asked = true;
}

/* Runs the simulator until something is missing, or to the end of the current phase. */
static int stepped_run(struct pl_stepped *x) {
    struct sim *s = &x->sim;
    int rc = PL_OK;
    if (x->waits != STEPPED_NOTHING) {
        rc = stepped_resume(x);
    } else if (x->phase == STEPPED_NEW) {
        rc = pl_sim_open(s);
        x->phase = STEPPED_RUNS;
    }
    if (!rc && x->phase == STEPPED_RUNS && !(rc = pl_sim_loop(s)) && !pl_stepped_waits(x)) {
        x->phase = STEPPED_SCORES;
        pl_sim_evaluate(s);
    }
    if (!rc && x->phase == STEPPED_SCORES && !pl_stepped_waits(x)) {
        x->phase = STEPPED_ENDED;
        if (pl_engine_finish(s->engine, NULL, s->clock.now_ns))
            rc = pl_fail(s->why, PL_ENOMEM, "out of memory");
    }
    return rc;
}

int pl_stepped_next(struct pl_stepped *x, struct pl_loop_step *step) {
    struct pl_why *why = x->sim.why;
    if (x->waits != STEPPED_NOTHING && x->asked && !x->answered)
        return pl_fail(why, PL_EUSAGE, "the last step has not been answered; %s",
                       x->waits == STEPPED_GRADIENT ? "call pl_loop_gradient"
                                                    : "call pl_loop_score");
    for (;;) {
        if (x->fresh.n < STEPPED_FRESH && x->phase != STEPPED_ENDED) {
            *step = (struct pl_loop_step){.what = PL_LOOP_MEMORY, .n = STEPPED_MORE};
            break;
        }
        if (x->loads) {
            x->loads = false;
            *step = (struct pl_loop_step){.what = PL_LOOP_LOAD, .w = x->load[0], .out = x->load[1]};
            break;
        }
        if (x->done < x->n_commits) {
            *step = (struct pl_loop_step){.what = PL_LOOP_COMMIT,
                                          .argument = &x->commit[x->done++],
                                          .argument_size = sizeof *x->commit};
            break;
        }
        x->done = x->n_commits = 0;
        if (x->phase == STEPPED_ENDED) {
            *step = (struct pl_loop_step){.what = PL_LOOP_END, .w = stepped_shown(x)};
            break;
        }
        if (x->waits != STEPPED_NOTHING && !x->answered) {
            stepped_ask(x, step);
            break;
        }
        int rc = stepped_run(x);
        if (rc) return rc;
    }
    step->time = pl_seconds(x->sim.clock.now_ns);
    return PL_OK;
}

static int stepped_answer(struct pl_stepped *x, enum stepped_waits what) {
    if (x->waits != what || !x->asked || x->answered)
        return pl_fail(x->sim.why, PL_EUSAGE, "the last step did not ask for this");
    x->answered = true;
    return PL_OK;
}

int pl_stepped_gradient(struct pl_stepped *x, double loss, bool finite) {
    int rc = stepped_answer(x, STEPPED_GRADIENT);
    if (rc) return rc;
    x->loss = loss;
    x->finite = finite && !isinf(loss);
    return PL_OK;
}

int pl_stepped_score(struct pl_stepped *x, const struct pl_score *score) {
    int rc = stepped_answer(x, STEPPED_SCORE);
    if (!rc) x->score = *score;
    return rc;
}

void pl_stepped_stop(struct pl_stepped *x) {
    if (x->phase != STEPPED_RUNS) return;
    pl_engine_end(x->sim.engine);
    if (x->waits == STEPPED_GRADIENT) x->waits = STEPPED_NOTHING; /* it is not wanted any more */
}

/* --- making -------------------------------------------------------------------------------- */

int pl_stepped_new(const struct pl_sim_conf *conf, struct pl_outcome *out, struct pl_why *why,
                   struct pl_stepped **stepped) {
    struct pl_stepped *x = calloc(1, sizeof *x);
    if (!x) return pl_fail(why, PL_ENOMEM, "out of memory");
    x->conf = *conf;
    x->offload = (struct pl_offload_ops){x, stepped_zeros, stepped_load, stepped_commit};
    x->sim = (struct sim){.conf = &x->conf, .job = conf->job, .why = why, .out = out, .stepped = x};
    *out = pl_outcome_none();
    x->row = malloc(((size_t)conf->job->batch + 1) * sizeof *x->row);
    if (!x->row) {
        free(x);
        return pl_fail(why, PL_ENOMEM, "out of memory for %u samples", conf->job->batch);
    }
    *stepped = x;
    return PL_OK;
}

void pl_stepped_free(struct pl_stepped *x) {
    if (!x) return;
    pl_sim_close(&x->sim);
    free(x->fresh.at);
    free(x->used.at);
    free(x->commit);
    free(x->row);
    free(x);
}
