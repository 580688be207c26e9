/* How far workers can be trusted: what follows if their results cannot be used.
 *
 * One worker that fails does not end the run of the others. It is quarantined, each time for twice
 * as long, and evicted in the end. If the newest version is out of range, or all workers that are
 * present fail on it, the model itself is the reason, and the run has diverged. */
#include <float.h>
#include <math.h>

#include "base/seconds.h"
#include "engine/engine_state.h"

#define STANDING_NAMED 3         /* workers named for results that cannot be used */
#define STANDING_FAILS 4         /* in a row, of every worker: the run has diverged */
#define STANDING_PATIENCE 10     /* in a row: the worker is quarantined, if others do not fail */
#define STANDING_PAUSES 3        /* quarantines before it is evicted */
#define STANDING_TASKS 10        /* the first quarantine lasts as long as this many of its tasks, */
#define STANDING_MIN_NS 1000000u /* but not less than this */

static void standing_warn(struct pl_engine *e, const struct pl_event *event, const char *defect) {
    struct engine_standing *s = &e->trust.standing[event->worker];
    if (s->warned || !defect[0]) return;
    s->warned = true;
    if (++e->trust.n_named == STANDING_NAMED + 1)
        pl_log_warn(&e->job->log, "more workers send gradients that cannot be used; further "
                                  "workers will not be named");
    if (e->trust.n_named > STANDING_NAMED) return;
    pl_log_warn(&e->job->log,
                "%s %s (task %llu at %.3g s); rejected; further ones from "
                "this worker will not be reported",
                PL_WHO(&e->job->log, event->worker), defect, (unsigned long long)event->task,
                pl_seconds(event->now_ns));
}

/* Parts of a model and models of workers have no version in common. */
static bool standing_is_current(const struct pl_engine *e, const struct engine_standing *s) {
    return !e->store || s->failed_version == e->view->version;
}

/* Whether the square of the newest version's norm is not finite in single precision: a version of
 * which gradients overflow need not be infinite itself. No worker is to blame for what it computes
 * from it. It is looked at once per version, when a result cannot be used. */
static bool standing_model_is_lost(struct pl_engine *e) {
    bool sees = e->store && !e->conf.host.offload && e->conf.slice.whole == 0;
    if (!sees || !e->job->model) return false; /* with several servers each has a slice alone */
    const struct pl_version *v = pl_store_newest(e->store);
    if (e->trust.n_checked == v->id + 1) return false;
    e->trust.n_checked = v->id + 1;
    return !(pl_vec_dot(v->lookahead, v->lookahead, e->job->model->dim) <= FLT_MAX);
}

/* Whether the worker says nothing about a version: its last task was on an older one. */
static bool standing_is_older(const struct pl_engine *e, int worker, uint64_t version) {
    return e->store && e->worker[worker].base_id < version;
}

/* All workers that are present fail, except those that wait with a result of an older version. */
static bool standing_all_fail(const struct pl_engine *e) {
    bool any = false;
    for (int i = 0; i < e->job->n_workers; i++) {
        const struct engine_standing *s = &e->trust.standing[i];
        enum pl_worker_state state = e->view->worker[i].state;
        bool waits = state == PL_IDLE && standing_is_older(e, i, e->view->version);
        if (state == PL_GONE || waits) continue;
        if (s->n_failed < STANDING_FAILS || !standing_is_current(e, s)) return false;
        any = true;
    }
    return any;
}

/* Whether another worker is present that does not fail on what this one fails on. */
static bool standing_others_work(const struct pl_engine *e, int worker) {
    uint64_t version = e->trust.standing[worker].failed_version;
    for (int i = 0; i < e->job->n_workers; i++)
        if (i != worker && e->view->worker[i].state != PL_GONE &&
            e->trust.standing[i].n_failed == 0 && !standing_is_older(e, i, version))
            return true;
    return false;
}

static void standing_judge(struct pl_engine *e, int worker, uint64_t now_ns) {
    struct engine_standing *s = &e->trust.standing[worker];
    uint64_t patience = s->n_pauses > 0 ? 1 : STANDING_PATIENCE;
    if (s->due || s->n_strikes < patience || !standing_others_work(e, worker)) return;
    uint64_t pause = STANDING_TASKS * (s->failed_ns / s->n_strikes);
    if (pause < STANDING_MIN_NS) pause = STANDING_MIN_NS;
    s->until_ns = now_ns + (pause << s->n_pauses);
    if (s->n_pauses++ == STANDING_PAUSES) s->until_ns = UINT64_MAX;
    s->due = true;
    e->trust.n_due++;
}

void pl_standing_failed(struct pl_engine *e, const struct pl_event *event, const char *defect) {
    struct engine_standing *s = &e->trust.standing[event->worker];
    uint64_t began = e->view->worker[event->worker].since_ns;
    standing_warn(e, event, defect);
    s->n_failed++;
    s->n_strikes++;
    s->failed_ns += event->now_ns > began ? event->now_ns - began : 0;
    s->failed_version = e->worker[event->worker].base_id;
    if (standing_model_is_lost(e) || standing_all_fail(e)) {
        e->out->diverged = true;
        pl_engine_limit_reached(e);
    } else if (!e->conf.replays && !e->conf.follows) { /* otherwise the events have it */
        standing_judge(e, event->worker, event->now_ns);
    }
}

void pl_standing_arrived(struct pl_engine *e, int worker) {
    e->trust.standing[worker].n_failed = 0;
}

void pl_standing_good(struct pl_engine *e, int worker) {
    struct engine_standing *s = &e->trust.standing[worker];
    s->n_strikes = s->failed_ns = 0;
    s->n_pauses = 0;
}

bool pl_standing_verdict(struct pl_engine *e, int *worker, uint64_t *until_ns) {
    for (int i = 0; e->trust.n_due > 0 && i < e->job->n_workers; i++) {
        struct engine_standing *s = &e->trust.standing[i];
        if (!s->due) continue;
        s->due = false;
        e->trust.n_due--;
        if (e->view->worker[i].state == PL_GONE) continue;
        *worker = i;
        *until_ns = s->until_ns;
        if (s->until_ns == UINT64_MAX) {
            e->out->n_evicted++;
            pl_log_warn(&e->job->log,
                        "%s is evicted: its results still cannot be used after %d "
                        "quarantines",
                        PL_WHO(&e->job->log, i), STANDING_PAUSES);
        } else {
            e->out->n_quarantines++;
            if (!s->told)
                pl_log_warn(&e->job->log,
                            "%s is quarantined: its last %llu results could not be used",
                            PL_WHO(&e->job->log, i), (unsigned long long)s->n_strikes);
            s->told = true;
        }
        s->n_failed = s->n_strikes = s->failed_ns = 0;
        return true;
    }
    return false;
}

void pl_standing_reset(struct pl_engine *e, int worker) {
    struct engine_standing *s = &e->trust.standing[worker];
    if (s->due) e->trust.n_due--;
    *s = (struct engine_standing){.warned = s->warned, .told = s->told};
}
