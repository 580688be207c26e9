#include "observe/stragglers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOW_WEIGHT 0.25 /* weight of the newest task in a worker's mean */

struct stragglers_worker {
    bool busy;
    uint64_t start_ns;
    double work;      /* size of its current task */
    double mean;      /* ns */
    uint64_t n_tasks; /* number of tasks in the mean */
    bool named;
};

struct stragglers_mean {
    double mean;
    int worker;
};

struct pl_stragglers {
    int n_workers;
    struct stragglers_worker *worker;
    double ring[PL_SLOW_RING]; /* durations of the last tasks in ns */
    uint64_t n_arrived;
    struct stragglers_mean *sorted; /* [n_sorted] workers present, by mean */
    int n_sorted;
    bool changed;                                      /* since the last sort */
    double (*work)(const void *ctx, int row, int col); /* NULL: all tasks have the same size */
    const void *ctx;
};

int pl_stragglers_new(int n_workers, struct pl_stragglers **out) {
    struct pl_stragglers *s = calloc(1, sizeof *s);
    if (!s) return PL_ENOMEM;
    s->n_workers = n_workers;
    s->worker = calloc((size_t)n_workers, sizeof *s->worker);
    s->sorted = calloc((size_t)n_workers, sizeof *s->sorted);
    if (!s->worker || !s->sorted) {
        pl_stragglers_free(s);
        return PL_ENOMEM;
    }
    *out = s;
    return PL_OK;
}

void pl_stragglers_free(struct pl_stragglers *s) {
    if (!s) return;
    free(s->worker);
    free(s->sorted);
    free(s);
}

void pl_stragglers_work(struct pl_stragglers *s, double (*work)(const void *ctx, int row, int col),
                        const void *ctx) {
    s->work = work;
    s->ctx = ctx;
}

/* --- what happened ----------------------------------------------------------------------- */

static int stragglers_less(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The median of the last tasks of all workers; the lower of two middle values. */
static double stragglers_median(const struct pl_stragglers *s) {
    double sorted[PL_SLOW_RING];
    size_t n = s->n_arrived < PL_SLOW_RING ? (size_t)s->n_arrived : PL_SLOW_RING;
    if (n == 0) return 0;
    memcpy(sorted, s->ring, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, stragglers_less);
    return sorted[(n - 1) / 2];
}

static void stragglers_arrive(struct pl_stragglers *s, struct stragglers_worker *w,
                              uint64_t now_ns) {
    if (!w->busy) return; /* it started before the first event seen here */
    w->busy = false;
    if (w->work < PL_SLOW_LITTLE) return;
    double ns = (double)(now_ns - w->start_ns) / w->work;
    s->ring[s->n_arrived++ % PL_SLOW_RING] = ns;
    w->mean = w->n_tasks++ ? w->mean + SLOW_WEIGHT * (ns - w->mean) : ns;
    s->changed = true;
    if (!w->named) return;
    double enough = PL_SLOW_WELL_MEDIANS * stragglers_median(s);
    if (ns <= enough && w->mean <= enough) w->named = false;
}

void pl_stragglers_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                         const struct pl_plan *plan) {
    struct pl_stragglers *s = ctx;
    (void)c;
    if (pl_event_has_worker(e) && e->worker >= 0 && e->worker < s->n_workers) {
        struct stragglers_worker *w = &s->worker[e->worker];
        if (e->kind == PL_ARRIVE) stragglers_arrive(s, w, e->now_ns);
        if (e->kind == PL_JOIN || e->kind == PL_LEAVE) { /* a worker that rejoins counts as new */
            *w = (struct stragglers_worker){0};
            s->changed = true;
        }
    }
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        if (a->verb != PL_START) continue;
        s->worker[a->worker].busy = true;
        s->worker[a->worker].start_ns = e->now_ns;
        s->worker[a->worker].work = s->work ? s->work(s->ctx, a->row, a->col) : 1;
    }
}

/* --- looking ----------------------------------------------------------------------------- */

/* Busy workers are listed in order of start, so the first fast enough one ends the search. */
static bool stragglers_running(struct pl_stragglers *s, const struct pl_view *v, uint64_t now_ns,
                               struct pl_stragglers_found *found) {
    if (s->n_arrived < PL_SLOW_TASK_ARRIVALS) return false;
    double median = stragglers_median(s);
    for (int i = v->busy; i >= 0; i = pl_next(v, i)) {
        uint64_t since_ns = v->worker[i].since_ns;
        double ns = now_ns > since_ns ? (double)(now_ns - since_ns) : 0;
        double work = s->worker[i].work > PL_SLOW_LITTLE ? s->worker[i].work : PL_SLOW_LITTLE;
        if (s->work) ns /= work;
        if (ns <= PL_SLOW_TASK_MEDIANS * median || ns < median + PL_SLOW_TASK_NS) {
            if (s->work) continue; /* a later task may be smaller */
            return false;
        }
        if (s->worker[i].named) continue;
        *found = (struct pl_stragglers_found){PL_SLOW_TASK, i, ns * 1e-9, median * 1e-9};
        return true;
    }
    return false;
}

static int stragglers_less_mean(const void *a, const void *b) {
    const struct stragglers_mean *x = a, *y = b;
    if (x->mean != y->mean) return x->mean > y->mean ? 1 : -1;
    return (x->worker > y->worker) - (x->worker < y->worker);
}

static void stragglers_sort(struct pl_stragglers *s) {
    if (!s->changed) return;
    s->n_sorted = 0;
    for (int i = 0; i < s->n_workers; i++)
        if (s->worker[i].n_tasks)
            s->sorted[s->n_sorted++] = (struct stragglers_mean){s->worker[i].mean, i};
    qsort(s->sorted, (size_t)s->n_sorted, sizeof *s->sorted, stragglers_less_mean);
    s->changed = false;
}

/* Goes from the slowest down; the first one that is fast enough ends the search. */
static bool stragglers_on_average(struct pl_stragglers *s, struct pl_stragglers_found *found) {
    stragglers_sort(s);
    for (int place = s->n_sorted - 1; place > 0; place--) {
        int i = s->sorted[place].worker;
        /* the median of the others, without this worker */
        double others = s->sorted[(s->n_sorted - 2) / 2].mean;
        double mean = s->sorted[place].mean;
        if (mean <= PL_SLOW_WORKER_MEDIANS * others) return false;
        if (s->worker[i].named || s->worker[i].n_tasks < PL_SLOW_WORKER_TASKS) continue;
        *found = (struct pl_stragglers_found){PL_SLOW_WORKER, i, mean * 1e-9, others * 1e-9};
        return true;
    }
    return false;
}

bool pl_stragglers_look(struct pl_stragglers *s, const struct pl_view *v, uint64_t now_ns,
                        struct pl_stragglers_found *found) {
    if (!stragglers_running(s, v, now_ns, found) && !stragglers_on_average(s, found)) return false;
    s->worker[found->worker].named = true;
    return true;
}

/* --- the sentence ------------------------------------------------------------------------ */

/* Three digits, without an exponent. */
static void stragglers_seconds(double s, char *out, size_t max) {
    if (s >= 100)
        snprintf(out, max, "%.0f s", s);
    else if (s >= 0.001)
        snprintf(out, max, "%.3g s", s);
    else
        snprintf(out, max, "%.3g µs", s * 1e6);
}

void pl_stragglers_sentence(const struct pl_stragglers_found *found, const char *phase, char *out,
                            size_t max) {
    char elapsed[48], usual[48];
    stragglers_seconds(found->elapsed, elapsed, sizeof elapsed);
    stragglers_seconds(found->usual, usual, sizeof usual);
    snprintf(out, max, "worker %d is slow: %s %s (median %s)%s%s", found->worker + 1,
             found->kind == PL_SLOW_TASK ? "its task has run for" : "its tasks take", elapsed,
             usual, phase && phase[0] ? "; it is " : "", phase && phase[0] ? phase : "");
}
