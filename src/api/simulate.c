/* pl_simulate and pl_replay: a setup on a virtual clock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/run.h"
#include "run/checkpoint.h"
#include "sim/sim.h"
#include "sys/numerals.h"

struct simulate_watch {
    const struct pl_setup *setup;
    struct pl_run *run;
    struct pl_sinks sinks;
};

static void simulate_point(void *ctx, const struct pl_point *p) {
    struct simulate_watch *w = ctx;
    pl_run_point(w->run, p);
    pl_sinks_point(&w->sinks, p);
    if (w->setup->point) w->setup->point(w->setup->watch_ctx, p);
}

static int simulate_tick(void *ctx, const struct pl_point *p) {
    struct simulate_watch *w = ctx;
    if (!w->setup->tick(w->setup->watch_ctx, p)) return 0;
    w->run->interrupted = true;
    return 1;
}

/* The contents of a checkpoint; the caller must free() the weights. */
static int simulate_from(struct pl_saved *saved, const struct pl_model *model,
                         struct pl_sim_from *out, struct pl_why *why) {
    if (!model)
        return pl_fail(why, PL_EDATA, "a run without a model cannot be resumed from a checkpoint");
    float *w = malloc(model->dim * sizeof *w);
    if (!w) return pl_fail(why, PL_ENOMEM, "out of memory for the model");
    int rc = pl_saved_weights(saved, model, w, why);
    if (rc) {
        free(w);
        return rc;
    }
    *out = (struct pl_sim_from){pl_saved_archive(saved), w};
    return PL_OK;
}

/* Opens what the run writes. A replay is a run of its own, but what it records is the recorded run:
 * its description is taken over. */
static int simulate_open(struct simulate_watch *w, struct pl_setup *setup,
                         const struct pl_built *built, const struct pl_recording *replay) {
    int rc = pl_run_begin(w->run, setup, built, replay ? "replay" : "simulate",
                          replay ? replay->path : NULL, NULL);
    char *recorded = replay && !rc ? calloc(1, strlen(replay->text) + 1) : NULL;
    if (replay && !rc && !recorded) rc = pl_fail(&setup->why, PL_ENOMEM, "out of memory");
    if (recorded) pl_recording_line(replay->text, "run", recorded, strlen(replay->text) + 1);
    w->run->replayed = replay != NULL;
    w->sinks.recorded = recorded;
    if (!rc)
        rc = pl_sinks_open(&w->sinks, setup, built, replay ? "recorded" : "virtual",
                           &w->run->identity);
    free(recorded);
    if (!rc) pl_run_announce(w->run, setup);
    return rc;
}

/* Simulates the setup. `replay` is a recording that drives it, `saved` the checkpoint that it is
 * resumed from; both may be NULL. */
static int simulate_setup(pl_setup *setup, const struct pl_recording *replay,
                          struct pl_saved *saved, pl_run **out) {
    struct pl_built built;
    int rc = pl_build(setup, PL_HOST_VIRTUAL, &built);
    if (rc) return rc;
    struct pl_why *why = &setup->why;
    struct pl_run *run = pl_run_new(&built);
    if (!run) {
        pl_built_free(&built);
        return pl_fail(why, PL_ENOMEM, "out of memory");
    }
    struct simulate_watch watch = {.setup = setup, .run = run, .sinks = {.conf = &setup->conf}};
    struct pl_sim_from from = {.weights = NULL};
    rc = simulate_open(&watch, setup, &built, replay);
    if (!rc && saved) rc = simulate_from(saved, built.job.model, &from, why);
    if (!rc) {
        struct pl_sim_conf sim = {
            .job = &built.job,
            .net = built.net,
            .script = &built.script,
            .watch = {simulate_point, setup->tick ? simulate_tick : NULL, &watch},
            .events = pl_sinks_log(&watch.sinks),
            .events_ctx = &watch.sinks,
            .replay = replay,
            .from = saved ? &from : NULL,
            .check = &run->check};
        rc = pl_sim_run(&sim, &run->outcome, why);
        if (!rc) pl_sinks_end(&watch.sinks, &run->outcome, run->dim);
    }
    if (!rc) rc = pl_run_complete(run, why);
    pl_run_end(run, &built.job, rc, why);
    pl_sinks_run(&watch.sinks, &run->identity);
    free((void *)(uintptr_t)from.weights);
    if (rc) pl_sinks_discard(&watch.sinks);
    /* a file that could not be completed must not cost the results; those of a replay are known */
    struct pl_why *tells = replay ? why : &run->outcome.trouble;
    int closed = pl_sinks_close(&watch.sinks, rc || tells->text[0] ? NULL : tells);
    if (!rc && replay) rc = closed;
    pl_built_free(&built);
    if (rc) {
        pl_run_free(run);
        return rc;
    }
    *out = run;
    return PL_OK;
}

int pl_simulate(pl_setup *setup, pl_run **out) {
    PL_NUMERALS;
    int64_t workers = setup->conf.workers;
    int rc = simulate_setup(setup, NULL, NULL, out);
    setup->conf.workers = workers;
    return rc;
}

/* Describes the result of a replay in one sentence. */
static void simulate_compare(struct pl_run *run, const struct pl_recording *r) {
    const struct pl_replay_check *c = &run->check;
    char program[40] = "";
    pl_recording_line(r->text, "program", program, sizeof program);
    run->replayed = true;
    if (c->differs)
        snprintf(run->replay, sizeof run->replay, "differs at %s", c->how);
    else if (c->interrupted || c->n_same < r->n_events)
        snprintf(run->replay, sizeof run->replay, "%s after %zu of %zu events, the same so far",
                 c->interrupted ? "interrupted" : "stopped", c->n_same, r->n_events);
    else if (r->cut)
        snprintf(run->replay, sizeof run->replay,
                 "cut short after %zu events: replayed up to there", r->n_events);
    else
        snprintf(run->replay, sizeof run->replay, "the same %zu events%s, bit for bit", r->n_events,
                 run->outcome.weights ? ", decisions and weights" : " and decisions");
    if (c->differs && strcmp(program, PL_VERSION) != 0)
        pl_append(run->replay, sizeof run->replay, "; it was recorded by %s%s",
                  program[0] ? "version " : "another version", program);
}

int pl_replay(pl_setup *setup, const char *path, pl_run **out) {
    PL_NUMERALS;
    struct pl_recording r;
    struct pl_saved *saved = NULL;
    char from[PL_TEXT_MAX] = "";
    memset(setup->is_set, 0, sizeof setup->is_set); /* all options come from the recording */
    int rc = pl_setup_from(setup, path, &r);
    if (rc) return rc;
    /* the recording contains which worker joins and leaves, and when */
    setup->conf.script[0] = setup->conf.net[0] = '\0';
    pl_recording_line(r.text, "resume", from, sizeof from);
    if (from[0] && (rc = pl_checkpoint_read(from, &saved, &setup->why)) != 0)
        pl_fail_in(&setup->why, rc, "the recorded run was resumed from a checkpoint");
    if (!rc) rc = simulate_setup(setup, &r, saved, out);
    pl_saved_free(saved);
    if (!rc) simulate_compare(*out, &r);
    pl_recording_free(&r);
    return rc;
}
