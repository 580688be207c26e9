/* A finished run: its numbers, texts and JSON object. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/run.h"
#include "base/grow.h"
#include "base/isa.h"
#include "base/json.h"
#include "base/seconds.h"
#include "observe/stragglers.h"
#include "sys/numerals.h"

/* A loss that clients report is that of a few mini-batches, and test losses also rise when a model
 * overfits: only a rise by this many times as much is called divergence. */
#define RUN_SOARS 1000

const char *pl_instruction_set(void) {
    return pl_isa_name(pl_isa);
}

const char *pl_version(void) {
    return PL_VERSION;
}

struct pl_run *pl_run_new(const struct pl_built *built) {
    struct pl_run *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->outcome = pl_outcome_none();
    memcpy(r->method, built->method, sizeof r->method);
    memcpy(r->spec, built->spec, sizeof r->spec);
    pl_method_choices(built, r->choices, sizeof r->choices);
    r->n_workers = built->job.n_workers;
    r->has_k = ((const struct pl_policy *)built->job.policy.entry)->uses & PL_USES_K;
    r->seed = built->job.seed;
    r->lr = built->job.rate.lr;
    const struct pl_model *model = built->job.model; /* programs choose their own mini-batches */
    r->batch = model && model->kind->by_clients ? (double)NAN : built->job.batch;
    r->dim = built->job.model ? built->job.model->dim : 0;
    if (built->job.model && built->job.model->rates)
        r->rmse_scale =
            built->job.data && built->job.data->has_targets ? built->job.data->target_scale : 1;
    r->last_save.when = NAN;
    return r;
}

int pl_run_begin(struct pl_run *r, struct pl_setup *s, const struct pl_built *built,
                 const char *kind, const char *recording, const struct pl_resumed *resumed) {
    if (pl_identity_new(s, built, kind, recording, resumed, &r->identity))
        return pl_fail(&s->why, PL_ENOMEM, "out of memory for the description of the run");
    return PL_OK;
}

void pl_run_announce(const struct pl_run *r, const struct pl_setup *s) {
    if (s->start) s->start(s->start_ctx, r->identity.header, r->identity.json);
}

/* A loss has diverged if it rose by more than its size at the start, and by more than 1, `times`
 * over. Where a run begins near its minimum, resumed or with trained weights, that size means
 * nothing: its noise alone may double the loss. 1 is the scale of the built-in losses: a model that
 * has learnt nothing has a cross-entropy of 0.7 or more, and an error of 0.5 on targets of variance
 * 1. */
static bool run_rose(struct pl_run *r, const char *what, double start, double end, double times) {
    if (!isinf(end) && !(end - start > times * fmax(fabs(start), 1))) return false;
    snprintf(r->diverged, sizeof r->diverged, "the %s rose from %.3g to %.3g", what, start, end);
    return true;
}

/* A run has diverged if it has no finite result to go on with, or if its loss rose too far, unless
 * it met its target. */
static void run_judge(struct pl_run *r, const struct pl_job *job) {
    const struct pl_outcome *o = &r->outcome;
    size_t i = 0;
    if (o->diverged)
        snprintf(r->diverged, sizeof r->diverged, "no finite gradient after update %llu",
                 (unsigned long long)o->updates);
    if (o->diverged || isfinite(o->time_to_target)) return;
    if (job->model && job->model->kind->by_clients) {
        (void)(run_rose(r, "loss", o->first_loss, o->score.loss, RUN_SOARS) ||
               run_rose(r, "test loss", o->first_test_loss, o->last_test_loss, RUN_SOARS));
        return;
    }
    while (i < r->n_points && !isfinite(r->point[i].loss)) i++;
    double start = i < r->n_points ? r->point[i].loss : (double)NAN;
    bool lost = isfinite(start) && isnan(o->score.loss) && o->weights;
    (void)run_rose(r, "loss", start, lost ? INFINITY : o->score.loss, 1);
}

/* The share of the workers' time in which they waited for a core: a part of their computing. What
 * was measured before the first task and after the last is left out by the limit. */
static double run_core_wait(const struct pl_run *r) {
    const struct pl_outcome *o = &r->outcome;
    if (isnan(o->core_wait) || !(r->worker_seconds > 0)) return NAN;
    return fmin(o->core_wait / r->worker_seconds, o->worker_time.compute + o->worker_time.wasted);
}

void pl_run_end(struct pl_run *r, const struct pl_job *job, int rc, const struct pl_why *why) {
    const char *trouble = rc ? why->text : r->outcome.trouble.text;
    run_judge(r, job);
    const char *word = rc            ? "failed"
                       : r->replayed ? "recording"
                       : r->diverged[0]
                           ? "diverged"
                           : pl_identity_why(&r->outcome, &job->limits, r->interrupted);
    pl_identity_end(&r->identity, word, trouble, run_core_wait(r));
}

void pl_run_point(struct pl_run *r, const struct pl_point *p) {
    if (PL_GROW(r->point, r->room, r->n_points + 1)) {
        r->point[r->n_points] = *p;
        r->point[r->n_points++].n_more = 0;
    } else {
        r->lost_points = true;
    }
}

int pl_run_complete(struct pl_run *r, struct pl_why *why) {
    return r->lost_points ? pl_fail(why, PL_ENOMEM, "out of memory for evaluations") : PL_OK;
}

int pl_run_report(struct pl_run *r, const struct pl_timeline *timeline) {
    r->worker = calloc((size_t)r->n_workers, sizeof *r->worker);
    if (!r->worker) return PL_ENOMEM;
    struct pl_usual usual = pl_stragglers_usual(timeline->row, r->n_workers);
    for (int i = 0; i < r->n_workers; i++) {
        const struct pl_timeline_row *row = &timeline->row[i];
        struct pl_worker_report *w = &r->worker[i];
        *w = (struct pl_worker_report){.compute = pl_timeline_seconds(row, PL_SPAN_COMPUTE),
                                       .communication =
                                           pl_timeline_seconds(row, PL_SPAN_COMMUNICATE),
                                       .idle = pl_timeline_seconds(row, PL_SPAN_IDLE),
                                       .wasted = pl_timeline_seconds(row, PL_SPAN_WASTED),
                                       .tasks = row->n_used,
                                       .unused = row->n_wasted,
                                       .task = pl_stragglers_task(row),
                                       .held_up = pl_seconds(row->held_up_ns),
                                       .last = row->n_last,
                                       .unfinished = pl_seconds(row->unfinished_ns),
                                       .usual = usual.task,
                                       .pace = pl_stragglers_pace(row, &usual)};
        r->worker_seconds += w->compute + w->communication + w->idle + w->wasted;
    }
    return PL_OK;
}

void pl_run_free(pl_run *run) {
    if (!run) return;
    pl_identity_free(&run->identity);
    free(run->outcome.weights);
    free(run->point);
    free(run->worker);
    free(run->json);
    free(run);
}

/* --- numbers and texts ------------------------------------------------------------------- */

/* The list of numbers for the JSON object and pl_run_number. A key with a dot is in an object whose
 * name is before the dot. `whole` numbers are printed without a fraction. */
struct run_number {
    const char *key;
    double value;
    bool whole;
};

#define RUN_NUMBERS 30

static void run_numbers(const struct pl_run *r, struct run_number *n) {
    const struct pl_outcome *o = &r->outcome;
    const struct pl_fates *f = &o->fates;
    bool any = o->updates > 0;
    const struct run_number list[RUN_NUMBERS] = {
        {"workers", r->n_workers, true},
        {"seed", (double)r->seed, true},
        {"lr", r->lr, false},
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
        {"suspended.quarantined", (double)o->n_quarantines, true},
        {"suspended.evicted", (double)o->n_evicted, true},
        {"suspended.frozen", (double)o->n_frozen, true},
        {"steps.min", o->steps.min, true},
        {"steps.median", o->steps.median, true},
        {"steps.max", o->steps.max, true},
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
        {"test_rmse", r->rmse_scale > 0 ? r->rmse_scale * sqrt(o->score.test_loss) : NAN, false},
    };
    memcpy(n, list, sizeof list);
}

static double run_extra(const struct pl_run *r, const char *key) {
    if (strcmp(key, "batch") == 0) return r->batch;
    if (strcmp(key, "time_to_target") == 0) return r->outcome.time_to_target;
    if (strcmp(key, "target_within") == 0) return r->outcome.target_within;
    if (strcmp(key, "core_wait") == 0) return run_core_wait(r);
    if (strcmp(key, "k_final") == 0) return r->has_k ? r->outcome.k_final : (double)NAN;
    if (strcmp(key, "filtered") == 0) return (double)r->outcome.filtered;
    if (strcmp(key, "consensus") == 0) return r->outcome.consensus;
    if (strcmp(key, "epochs") == 0) return r->outcome.epochs;
    if (r->folder[0] && strcmp(key, "checkpoint_updates") == 0) return (double)r->last_save.updates;
    if (strcmp(key, "gradients_computed") == 0) return (double)r->outcome.computed;
    if (r->replayed && strcmp(key, "replay.events") == 0) return (double)r->check.n_same;
    if (r->replayed && strcmp(key, "replay.same") == 0) return !r->check.differs;
    return NAN;
}

const char *pl_run_json(pl_run *run) {
    PL_NUMERALS;
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
    pl_json_real(&j, "target_within", run->outcome.target_within);
    pl_json_real(&j, "k_final", pl_run_number(run, "k_final"));
    pl_json_text(&j, "policy_final", pl_run_text(run, "policy_final"));
    pl_json_real(&j, "consensus", run->outcome.consensus);
    pl_json_real(&j, "core_wait", run_extra(run, "core_wait"));
    pl_json_text(&j, "diverged", pl_run_text(run, "diverged"));
    if (run->replayed) {
        pl_json_open(&j, "replay", '{');
        pl_json_whole(&j, "events", run->check.n_same);
        pl_json_whole(&j, "same", !run->check.differs);
        pl_json_text(&j, "text", run->replay);
        pl_json_close(&j, '}');
    }
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
    if (strcmp(key, "choices") == 0) return run->choices;
    if (strcmp(key, "id") == 0 && run->identity.json) return run->identity.id;
    if (strcmp(key, "run") == 0) return run->identity.json;
    if (run->diverged[0] && strcmp(key, "diverged") == 0) return run->diverged;
    if (run->outcome.policy_final[0] && strcmp(key, "policy_final") == 0)
        return run->outcome.policy_final;
    if (run->folder[0] && strcmp(key, "checkpoint") == 0) return run->folder;
    if (run->replayed && strcmp(key, "replay") == 0) return run->replay;
    if (run->outcome.trouble.text[0] && strcmp(key, "trouble") == 0)
        return run->outcome.trouble.text;
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

size_t pl_run_workers(const pl_run *run, const struct pl_worker_report **reports) {
    *reports = run->worker;
    return run->worker ? (size_t)run->n_workers : 0;
}

int pl_run_diverged(const pl_run *run) {
    return run->diverged[0] != '\0';
}
