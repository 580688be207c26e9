#include "run/stepper.h"

#include <stdio.h>
#include <stdlib.h>

#include "sys/coroutine.h"

struct pl_stepper {
    struct pl_job job; /* has the local rule and the length of the model alone */
    struct pl_model model;
    double decay;
    int n_workers;
    struct pl_coroutine *coroutine;
    struct pl_local_state state;
    float *room, *g; /* [dim] scratch of the rule */
    struct pl_task_at at;
    float *out;
    struct pl_step want;
    double answer; /* loss of the gradient that was asked for last */
    bool given_up, busy;
    int rc;
    double loss;
};

int pl_stepper_new(const struct pl_about *about, struct pl_stepper **out) {
    char spec[PL_SPEC_MAX + PL_ABOUT_NAME];
    struct pl_stepper *s = calloc(1, sizeof *s);
    if (!s) return PL_ENOMEM;
    snprintf(spec, sizeof spec, "%s:%s", about->rule, about->options);
    int rc = pl_spec_parse(&pl_local_family, spec, about->workers, &s->job.local.entry,
                           &s->job.local.conf, NULL);
    if (rc) {
        free(s);
        return rc == PL_ENOMEM ? rc : PL_EDATA;
    }
    s->model.dim = about->dim;
    s->job.model = &s->model;
    s->decay = about->decay;
    s->n_workers = about->workers;
    s->room = malloc(about->dim * sizeof *s->room);
    s->g = malloc(about->dim * sizeof *s->g);
    rc = pl_local_state_new(&s->job, &s->state);
    if (!rc) rc = pl_coroutine_new(&s->coroutine);
    if (rc || !s->room || !s->g) {
        pl_stepper_free(s);
        return PL_ENOMEM;
    }
    *out = s;
    return PL_OK;
}

/* Lets a rule that waits for a gradient return. */
static void stepper_give_up(struct pl_stepper *s) {
    s->given_up = true;
    while (s->busy) s->busy = pl_coroutine_continue(s->coroutine);
    s->given_up = false;
}

void pl_stepper_free(struct pl_stepper *s) {
    if (!s) return;
    stepper_give_up(s);
    pl_coroutine_free(s->coroutine);
    pl_local_state_free(&s->state);
    free(s->job.local.conf);
    free(s->room);
    free(s->g);
    free(s);
}

static int stepper_gradient(void *ctx, const float *w, uint32_t step, float *g, double *loss) {
    struct pl_stepper *s = ctx;
    s->want = (struct pl_step){w, g, step};
    pl_coroutine_leave(s->coroutine);
    *loss = s->answer;
    return s->given_up ? PL_ECANCELLED : PL_OK;
}

static void stepper_run(void *arg) {
    struct pl_stepper *s = arg;
    const struct pl_local *local = (const struct pl_local *)s->job.local.entry;
    struct pl_local_state *state = &s->state;
    struct pl_local_task t = {.dim = s->model.dim,
                              .w = s->at.w,
                              .again = state->any && state->prev_version == s->at.version,
                              .merged = state->any && state->prev_task <= state->applied,
                              .lr = s->at.lr,
                              .weight_decay = s->decay,
                              .n_workers = s->n_workers,
                              .gradient = stepper_gradient,
                              .ctx = s,
                              .prev = state->any ? (const float *const *)state->prev : NULL,
                              .next = state->next,
                              .model = s->room,
                              .g = s->g,
                              .out = s->out};
    state->next_version = s->at.version;
    state->next_task = s->at.task;
    s->rc = local->run(s->job.local.conf, &t, &s->loss);
}

void pl_stepper_begin(struct pl_stepper *s, const struct pl_task_at *at, bool acked,
                      uint64_t applied, float *out, struct pl_step *want) {
    stepper_give_up(s);
    if (acked) pl_local_state_acked(&s->state);
    s->state.applied = applied;
    s->at = *at;
    s->out = out;
    s->busy = pl_coroutine_begin(s->coroutine, stepper_run, s);
    *want = s->want; /* every rule needs at least one gradient */
}

bool pl_stepper_next(struct pl_stepper *s, double *loss, struct pl_step *want) {
    s->answer = *loss;
    if (s->busy) s->busy = pl_coroutine_continue(s->coroutine);
    *want = s->want;
    *loss = s->loss;
    return s->busy;
}
