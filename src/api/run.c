/* Running a setup, and what came of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/setup.h"
#include "base/json.h"
#include "observe/sink.h"
#include "sim/sim.h"

struct pl_run {
    struct pl_outcome outcome;
    char method[PL_NAME_MAX];
    char spec[PL_N_COLUMNS][PL_SPEC_MAX];
    int n_workers;
    uint64_t seed;
    size_t dim;
    struct pl_point *point;
    size_t n_points, room;
    bool lost_points; /* out of memory for one */
    char *json;
};

const char *pl_version(void) {
    return PL_VERSION;
}

/* --- running ----------------------------------------------------------------------------- */

struct run_watch {
    const struct pl_setup *setup;
    struct pl_run *run;
    FILE *log;
};

static void run_point(void *ctx, const struct pl_point *p) {
    struct run_watch *w = ctx;
    struct pl_run *r = w->run;
    if (r->n_points == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        struct pl_point *grown = realloc(r->point, room * sizeof *grown);
        if (grown) {
            r->point = grown;
            r->room = room;
        }
    }
    if (r->n_points < r->room)
        r->point[r->n_points++] = *p;
    else
        r->lost_points = true;
    if (w->log) pl_sink_point(w->log, r->method, p);
    if (w->setup->point) w->setup->point(w->setup->watch_ctx, p);
}

static int run_tick(void *ctx, const struct pl_point *p) {
    struct run_watch *w = ctx;
    return w->setup->tick(w->setup->watch_ctx, p);
}

int pl_simulate(pl_setup *setup, pl_run **out) {
    struct pl_built built;
    int rc = pl_build(setup, &built);
    if (rc) return rc;
    struct pl_why *why = &setup->why;
    const struct pl_setup_conf *c = &setup->conf;
    struct pl_run *run = calloc(1, sizeof *run);
    FILE *events = NULL;
    struct run_watch watch = {setup, run, NULL};
    if (!run) rc = pl_fail(why, PL_ENOMEM, "out of memory");
    if (!rc && c->log[0]) rc = pl_sink_open("log", c->log, &watch.log, why);
    if (!rc && c->events[0]) rc = pl_sink_open("events", c->events, &events, why);
    if (!rc) {
        memcpy(run->method, built.method, sizeof run->method);
        memcpy(run->spec, built.spec, sizeof run->spec);
        run->n_workers = built.job.n_workers;
        run->seed = built.job.seed;
        run->dim = built.job.model ? built.job.model->dim : 0;
        struct pl_sim_conf sim = {.job = &built.job,
                                  .net = built.net,
                                  .script = &built.script,
                                  .watch = {run_point, setup->tick ? run_tick : NULL, &watch},
                                  .events = events ? pl_sink_event : NULL,
                                  .events_ctx = events};
        rc = pl_sim_run(&sim, &run->outcome, why);
    }
    if (!rc && run->lost_points) rc = pl_fail(why, PL_ENOMEM, "out of memory for evaluations");
    int closed = pl_sink_close("log", c->log, watch.log, rc ? NULL : why);
    if (!rc) rc = closed;
    closed = pl_sink_close("events", c->events, events, rc ? NULL : why);
    if (!rc) rc = closed;
    pl_built_free(&built);
    if (rc) {
        pl_run_free(run);
        return rc;
    }
    *out = run;
    return PL_OK;
}

void pl_run_free(pl_run *run) {
    if (!run) return;
    free(run->outcome.weights);
    free(run->point);
    free(run->json);
    free(run);
}

/* --- what came of it --------------------------------------------------------------------- */

/* One list of the numbers: the JSON object and pl_run_number are both made from it. A name with a
 * dot is inside an object of that name. `whole` numbers print without a fraction. */
struct run_number {
    const char *key;
    double value;
    bool whole;
};

#define RUN_NUMBERS 22

static void run_numbers(const struct pl_run *r, struct run_number *n) {
    const struct pl_outcome *o = &r->outcome;
    const struct pl_fates *f = &o->fates;
    bool any = o->updates > 0;
    const struct run_number list[RUN_NUMBERS] = {
        {"workers", r->n_workers, true},
        {"seed", (double)r->seed, true},
        {"time", o->time, false},
        {"updates", (double)o->updates, true},
        {"time_per_update", any ? o->last_update / (double)o->updates : NAN, false},
        {"tasks.started", (double)f->started, true},
        {"tasks.applied", (double)f->applied, true},
        {"tasks.dropped", (double)f->dropped, true},
        {"tasks.cancelled", (double)f->cancelled, true},
        {"tasks.lost", (double)f->lost, true},
        {"tasks.rejected", (double)f->rejected, true},
        {"tasks.running", (double)f->running, true},
        {"staleness.mean", o->staleness.mean, false},
        {"staleness.max", any ? (double)o->staleness.max : NAN, true},
        {"staleness.fresh_fraction", o->staleness.fresh_fraction, false},
        {"worker_time.compute", o->worker_time.compute, false},
        {"worker_time.communication", o->worker_time.communication, false},
        {"worker_time.idle", o->worker_time.idle, false},
        {"worker_time.wasted", o->worker_time.wasted, false},
        {"loss", o->score.loss, false},
        {"test_loss", o->score.test_loss, false},
        {"test_accuracy", o->score.test_accuracy, false},
    };
    memcpy(n, list, sizeof list);
}

static double run_extra(const struct pl_run *r, const char *key) {
    if (strcmp(key, "time_to_target") == 0) return r->outcome.time_to_target;
    if (strcmp(key, "k_final") == 0) return r->outcome.k_final;
    if (strcmp(key, "epochs") == 0) return r->outcome.epochs;
    if (strcmp(key, "gradients_computed") == 0) return (double)r->outcome.computed;
    return NAN;
}

const char *pl_run_json(pl_run *run) {
    if (run->json) return run->json;
    struct run_number n[RUN_NUMBERS];
    struct pl_json j = {0};
    char open[32] = "";
    run_numbers(run, n);
    pl_json_open(&j, NULL, '{');
    pl_json_text(&j, "method", run->method);
    pl_json_text(&j, "policy", run->spec[PL_COLUMN_POLICY]);
    for (int i = 0; i < RUN_NUMBERS; i++) {
        const char *key = n[i].key, *dot = strchr(key, '.');
        size_t inside = dot ? (size_t)(dot - key) : 0;
        if (open[0] && (inside != strlen(open) || strncmp(open, key, inside) != 0)) {
            pl_json_close(&j, '}');
            open[0] = '\0';
        }
        if (dot && !open[0]) {
            snprintf(open, sizeof open, "%.*s", (int)inside, key);
            pl_json_open(&j, open, '{');
        }
        if (dot) key = dot + 1;
        if (n[i].whole && isfinite(n[i].value))
            pl_json_whole(&j, key, (uint64_t)n[i].value);
        else
            pl_json_real(&j, key, n[i].value);
    }
    pl_json_real(&j, "time_to_target", run->outcome.time_to_target);
    pl_json_whole(&j, "k_final", (uint64_t)run->outcome.k_final);
    pl_json_close(&j, '}');
    if (j.failed) {
        free(j.text);
        return "{}";
    }
    run->json = j.text;
    return run->json;
}

double pl_run_number(const pl_run *run, const char *key) {
    struct run_number n[RUN_NUMBERS];
    run_numbers(run, n);
    for (int i = 0; i < RUN_NUMBERS; i++)
        if (strcmp(n[i].key, key) == 0) return n[i].value;
    return run_extra(run, key);
}

const char *pl_run_text(const pl_run *run, const char *key) {
    if (strcmp(key, "method") == 0) return run->method;
    for (int i = 0; i < PL_N_COLUMNS; i++)
        if (strcmp(key, pl_column_family[i]->name) == 0) return run->spec[i];
    return NULL;
}

size_t pl_run_points(const pl_run *run, const struct pl_point **points) {
    *points = run->point;
    return run->n_points;
}

const float *pl_run_weights(const pl_run *run, size_t *n) {
    *n = run->dim;
    return run->outcome.weights;
}

int pl_run_diverged(const pl_run *run) {
    return run->outcome.diverged;
}
