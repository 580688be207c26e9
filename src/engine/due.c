/* What is due by the clock: the end of the run, evaluations, the policy's timer, deadlines of
 * workers. Every host has a
 * clock, virtual or real, and asks here what it means. */
#include <math.h>

#include "engine/engine_state.h"

#define DUE_QUIET 100 /* evaluations in a row of a run in which nothing happens */
#define DUE_DENSE 16  /* evaluations for one, at most, near a target */
#define DUE_AHEAD 4   /* evaluations until the target is met, at the present speed */

void pl_due_begin(struct pl_engine *e) {
    double seconds = e->job->limits.seconds;
    bool limited = seconds > 0 && !e->conf.replays && !e->conf.follows;
    e->scores.due.end_ns = limited ? pl_delay_ns(seconds) : UINT64_MAX;
    e->scores.due.score_ns = e->job->model && e->job->eval_every > 0 ? e->view->now_ns : UINT64_MAX;
    e->scores.score_every = e->job->eval_every;
    pl_due_next(e);
}

void pl_due_next(struct pl_engine *e) {
    e->scores.due.next_ns =
        e->scores.due.end_ns < e->lives.life_ns ? e->scores.due.end_ns : e->lives.life_ns;
}

const struct pl_due *pl_engine_due(const struct pl_engine *e) {
    return &e->scores.due;
}

int pl_engine_time(struct pl_engine *e, uint64_t now_ns, struct pl_why *why) {
    int rc = PL_OK;
    if (now_ns >= e->view->timer_ns) {
        struct pl_event timer = {.kind = PL_TIMER, .now_ns = now_ns};
        rc = pl_engine_event(e, &timer, NULL, why);
    }
    if (!rc) rc = pl_life_time(e, now_ns, why);
    if (!rc && e->trust.n_due > 0) rc = pl_life_verdicts(e, now_ns, why);
    if (now_ns >= e->scores.due.end_ns) pl_engine_limit_reached(e);
    return rc;
}

/* --- evaluations ----------------------------------------------------------------------------- */

static uint64_t due_interval(const struct pl_engine *e) {
    uint64_t ns = pl_delay_ns(e->scores.score_every);
    return ns > 0 ? ns : 1;
}

/* Seconds until a value that fell from `before` to `now` in `took` seconds is at `goal`. */
static double due_left(double before, double now, double goal, double took) {
    return now < before ? (now - goal) / (before - now) * took : NAN;
}

void pl_due_scored(struct pl_engine *e, const struct pl_score *before, double from,
                   const struct pl_point *p) {
    const struct pl_limits *l = &e->job->limits;
    double took = p->time - from, every = e->job->eval_every;
    double left =
        fmin(due_left(before->loss, p->loss, l->target_loss, took),
             due_left(-before->test_accuracy, -p->test_accuracy, -l->target_accuracy, took));
    if (e->conf.beat_ns == 0 || !(every > 0) || isnan(left)) return;
    e->scores.score_every = fmin(every, fmax(left / DUE_AHEAD, every / DUE_DENSE));
    uint64_t next_ns = pl_delay_ns(p->time + e->scores.score_every);
    if (next_ns < e->scores.due.score_ns) e->scores.due.score_ns = next_ns;
}

bool pl_engine_score_due(struct pl_engine *e, uint64_t now_ns) {
    if (now_ns < e->scores.due.score_ns) return false;
    e->scores.due.score_ns = now_ns + due_interval(e);
    return true;
}

void pl_engine_score_quiet(struct pl_engine *e, uint64_t now_ns, uint64_t quiet_ns) {
    uint64_t interval = due_interval(e);
    uint64_t n = quiet_ns > now_ns ? (quiet_ns - now_ns) / interval : 0;
    if (n > DUE_QUIET) e->scores.due.score_ns = now_ns + n * interval;
}

void pl_engine_score_later(struct pl_engine *e, uint64_t at_ns) {
    if (e->scores.due.score_ns < at_ns) e->scores.due.score_ns = at_ns;
}
