#include "learn/outcome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/seconds.h"

/* Converts seconds to shares of their sum. */
static struct pl_worker_time outcome_shares(struct pl_worker_time t) {
    double all = t.compute + t.communication + t.idle + t.wasted;
    if (!(all > 0)) return t;
    return (struct pl_worker_time){t.compute / all, t.communication / all, t.idle / all,
                                   t.wasted / all};
}

/* Without data, or with data that only the workers have, the length of an epoch is unknown. */
static double outcome_epochs(const struct pl_progress *p) {
    return p && p->epoch > 0 ? pl_progress_epochs(p) : (double)NAN;
}

struct pl_point pl_point_now(const struct pl_control *control, const struct pl_progress *progress,
                             uint64_t now_ns) {
    const struct pl_view *v = pl_control_view(control);
    struct pl_fates f = pl_control_fates(control);
    struct pl_staleness stale = pl_control_staleness(control);
    return (struct pl_point){.time = pl_seconds(now_ns),
                             .updates = v->version,
                             .epochs = outcome_epochs(progress),
                             .loss = NAN,
                             .test_loss = NAN,
                             .test_accuracy = NAN,
                             .k = pl_control_k(control, v->n_alive),
                             .staleness = stale.mean,
                             .unused = f.dropped + f.cancelled + f.lost + f.rejected,
                             .workers = v->n_alive,
                             .expected = v->n_workers,
                             .staleness_max = stale.max,
                             .samples = progress ? progress->samples : NAN,
                             .consensus = NAN};
}

struct pl_outcome pl_outcome_none(void) {
    return (struct pl_outcome){.last_update = NAN,
                               .epochs = NAN,
                               .core_wait = NAN,
                               .score = {NAN, NAN, NAN},
                               .scored = NAN,
                               .time_to_target = NAN,
                               .target_within = NAN,
                               .consensus = NAN,
                               .first_loss = NAN,
                               .first_test_loss = NAN,
                               .last_test_loss = NAN,
                               .steps = {NAN, NAN, NAN}};
}

void pl_outcome_unscored(const struct pl_outcome *out, const struct pl_log *log) {
    const char *what = "the model at the end was not evaluated, because the run was interrupted";
    if (isnan(out->scored))
        pl_log_warn(log, "%s; there are no losses", what);
    else
        pl_log_warn(log, "%s; the losses are those of the evaluation at %.4g s", what, out->scored);
}

bool pl_score_meets(const struct pl_score *score, const struct pl_limits *limits) {
    /* a target that is not set is NAN, and comparisons with it are false */
    return score->loss <= limits->target_loss || score->test_accuracy >= limits->target_accuracy;
}

bool pl_outcome_score(struct pl_outcome *out, const struct pl_limits *limits,
                      const struct pl_score *score, struct pl_point *p) {
    const double from = out->scored;
    out->score = *score;
    out->scored = p->time;
    p->loss = score->loss;
    p->test_loss = score->test_loss;
    p->test_accuracy = score->test_accuracy;
    bool met = pl_score_meets(score, limits);
    if (met && isnan(out->time_to_target)) {
        out->target_within = from < p->time ? (p->time - from) / 2 : 0;
        out->time_to_target = p->time - out->target_within;
    }
    return met;
}

static int outcome_less(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int outcome_steps(struct pl_steps *out, const struct pl_view *v) {
    uint64_t *clock = malloc(((size_t)v->n_alive + 1) * sizeof *clock);
    size_t n = 0;
    if (!clock) return PL_ENOMEM;
    for (int i = 0; i < v->n_workers; i++)
        if (v->worker[i].state != PL_GONE) clock[n++] = v->worker[i].clock;
    qsort(clock, n, sizeof *clock, outcome_less);
    if (n > 0)
        *out =
            (struct pl_steps){(double)clock[0], (double)clock[(n - 1) / 2], (double)clock[n - 1]};
    free(clock);
    return PL_OK;
}

int pl_outcome_end(struct pl_outcome *out, const struct pl_control *control,
                   const struct pl_progress *progress, const float *w, size_t dim,
                   uint64_t now_ns) {
    const struct pl_view *v = pl_control_view(control);
    out->time = pl_seconds(now_ns);
    out->time_ns = now_ns;
    out->updates = v->version;
    out->fates = pl_control_fates(control);
    out->staleness = pl_control_staleness(control);
    out->worker_time = outcome_shares(pl_control_worker_time(control, now_ns));
    out->k_final = pl_control_k(control, out->present);
    pl_control_policy(control, out->policy_final, sizeof out->policy_final);
    int rc = outcome_steps(&out->steps, v);
    if (rc || !progress) return rc;
    out->epochs = outcome_epochs(progress);
    if (!w) return PL_OK;
    out->weights = malloc(dim * sizeof *out->weights);
    if (!out->weights) return PL_ENOMEM;
    memcpy(out->weights, w, dim * sizeof *out->weights);
    return PL_OK;
}
