/* How far workers can be trusted: what follows if their results cannot be used, or do not come.
 *
 * One worker that fails does not end the run of the others. It is quarantined, each time for twice
 * as long, and evicted in the end. If all workers that are present fail on the current version, the
 * model itself is the reason, and the run has diverged. */
#include <math.h>

#include "engine/engine_state.h"

#define STANDING_NAMED 3         /* workers named for results that cannot be used */
#define STANDING_FAILS 4         /* in a row, of every worker: the run has diverged */
#define STANDING_PATIENCE 10     /* in a row: the worker is quarantined, if others do not fail */
#define STANDING_PAUSES 3        /* quarantines before it is evicted */
#define STANDING_TASKS 10        /* the first quarantine lasts as long as this many of its tasks, */
#define STANDING_MIN_NS 1000000u /* but not less than this */

#define STANDING_LONGEST 10            /* a task is overdue after this many times the longest */
#define STANDING_LEAST_NS 10000000000u /* and not before this */

/* --- results that cannot be used ------------------------------------------------------------ */

static void standing_warn(struct pl_engine *e, const struct pl_event *event, const char *defect) {
    struct engine_standing *s = &e->standing[event->worker];
    if (s->warned || !defect[0]) return;
    s->warned = true;
    if (++e->n_named == STANDING_NAMED + 1)
        pl_log_warn(&e->job->log, "more workers send gradients that cannot be used; further "
                                  "workers will not be named");
    if (e->n_named > STANDING_NAMED) return;
    pl_log_warn(&e->job->log,
                "worker %d sent a gradient %s (task %llu at %.3g s); rejected; further ones from "
                "this worker will not be reported",
                event->worker + 1, defect, (unsigned long long)event->task,
                (double)event->now_ns * 1e-9);
}

/* Parts of a model and models of workers have no version in common. */
static bool standing_is_current(const struct pl_engine *e, const struct engine_standing *s) {
    return !e->store || e->job->grid || s->failed_version == e->view->version;
}

/* All workers that are present fail. */
static bool standing_diverged(const struct pl_engine *e) {
    for (int i = 0; i < e->job->n_workers; i++) {
        const struct engine_standing *s = &e->standing[i];
        if (e->view->worker[i].state == PL_GONE) continue;
        if (s->n_failed < STANDING_FAILS || !standing_is_current(e, s)) return false;
    }
    return true;
}

/* Whether another worker is present that does not fail. */
static bool standing_others_work(const struct pl_engine *e, int worker) {
    for (int i = 0; i < e->job->n_workers; i++)
        if (i != worker && e->view->worker[i].state != PL_GONE && e->standing[i].n_failed == 0)
            return true;
    return false;
}

static void standing_judge(struct pl_engine *e, int worker, uint64_t now_ns) {
    struct engine_standing *s = &e->standing[worker];
    uint64_t patience = s->n_pauses > 0 ? 1 : STANDING_PATIENCE;
    if (s->due || s->n_strikes < patience || !standing_others_work(e, worker)) return;
    uint64_t pause = STANDING_TASKS * (s->failed_ns / s->n_strikes);
    if (pause < STANDING_MIN_NS) pause = STANDING_MIN_NS;
    s->until_ns = now_ns + (pause << s->n_pauses);
    if (s->n_pauses++ == STANDING_PAUSES) s->until_ns = UINT64_MAX;
    s->due = true;
    e->n_due++;
}

void pl_standing_failed(struct pl_engine *e, const struct pl_event *event, const char *defect) {
    struct engine_standing *s = &e->standing[event->worker];
    uint64_t began = e->view->worker[event->worker].since_ns;
    standing_warn(e, event, defect);
    s->n_failed++;
    s->n_strikes++;
    s->failed_ns += event->now_ns > began ? event->now_ns - began : 0;
    s->failed_version = e->worker[event->worker].base_id;
    if (standing_diverged(e)) {
        e->out->diverged = true;
        pl_engine_over(e);
    } else if (!e->conf.replays && !e->conf.follows) { /* otherwise the events have it */
        standing_judge(e, event->worker, event->now_ns);
    }
}

void pl_standing_arrived(struct pl_engine *e, int worker) {
    e->standing[worker].n_failed = 0;
}

void pl_standing_good(struct pl_engine *e, int worker) {
    struct engine_standing *s = &e->standing[worker];
    s->n_strikes = s->failed_ns = 0;
    s->n_pauses = 0;
}

bool pl_engine_verdict(struct pl_engine *e, struct pl_verdict *out) {
    for (int i = 0; e->n_due > 0 && i < e->job->n_workers; i++) {
        struct engine_standing *s = &e->standing[i];
        if (!s->due) continue;
        s->due = false;
        e->n_due--;
        if (e->view->worker[i].state == PL_GONE) continue;
        *out = (struct pl_verdict){i, s->until_ns == UINT64_MAX, s->until_ns};
        s->away = true;
        if (out->evicted) {
            e->out->n_evicted++;
            pl_log_warn(&e->job->log,
                        "worker %d is evicted: its results still cannot be used after %d "
                        "quarantines",
                        i + 1, STANDING_PAUSES);
        } else {
            e->out->n_quarantines++;
            if (!s->told)
                pl_log_warn(&e->job->log,
                            "worker %d is quarantined: its last %llu results could not be used",
                            i + 1, (unsigned long long)s->n_strikes);
            s->told = true;
        }
        s->n_failed = s->n_strikes = s->failed_ns = 0;
        return true;
    }
    return false;
}

/* A worker that leaves for another reason than a quarantine, or its successor, starts from the
 * beginning. */
void pl_standing_left(struct pl_engine *e, int worker) {
    struct engine_standing *s = &e->standing[worker];
    if (s->due) e->n_due--;
    if (!s->away) *s = (struct engine_standing){.warned = s->warned, .told = s->told};
    s->due = s->away = false;
}

/* --- results that do not come --------------------------------------------------------------- */

/* The delay that was injected into a worker's current task is no reason to wait less. */
static double standing_delay(const struct pl_engine *e, int worker) {
    const struct pl_job *job = e->job;
    const struct pl_worker *w = &e->view->worker[worker];
    if (!job->delay) return 0;
    double seconds =
        pl_delay_draw(job->delay, job->seed, (uint32_t)worker, w->task, pl_job_steps(job));
    return seconds * pl_part_work(job, (struct pl_part){w->row, w->col});
}

uint64_t pl_engine_deadline(const struct pl_engine *e, int worker, uint64_t since_ns,
                            bool replaced) {
    const struct pl_worker *w = &e->view->worker[worker];
    double wait = e->job->evict * 1e9;
    /* without the last worker that is present nothing would happen at all */
    bool last = e->view->n_alive < 2 && !replaced;
    if (w->state != PL_BUSY || wait == 0 || last) return UINT64_MAX;
    if (wait < 0) { /* learnt from the times of all tasks so far */
        if (e->longest_ns == 0) return UINT64_MAX;
        wait = STANDING_LONGEST * (double)e->longest_ns;
        if (wait < STANDING_LEAST_NS) wait = STANDING_LEAST_NS;
    }
    wait += standing_delay(e, worker) * 1e9;
    uint64_t from = w->since_ns > since_ns ? w->since_ns : since_ns;
    return wait < 9e18 - (double)from ? from + (uint64_t)llround(wait) : UINT64_MAX;
}

void pl_engine_frozen(struct pl_engine *e, int worker, uint64_t now_ns, const char *what_next) {
    double seconds = (double)(now_ns - e->view->worker[worker].since_ns) * 1e-9;
    e->out->n_frozen++;
    pl_log_warn(&e->job->log, "worker %d does not answer: its task has run for %.3g s%s",
                worker + 1, seconds, what_next);
}
