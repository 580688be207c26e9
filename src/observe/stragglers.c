#include "observe/stragglers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/seconds.h"

/* How long a task took, in ns; at least that long if it was cut short. */
struct stragglers_task {
    double ns;
    int worker;
    bool cut;
};

struct stragglers_worker {
    uint64_t paused_ns; /* of its current task */
    double work;        /* size of its current task */
    uint64_t waited_ns; /* for a core, in all that was told */
    struct stragglers_task last[PL_SLOW_WORKER_RING];
    uint64_t n_tasks; /* in `last`, since it joined */
    int n_well;       /* its last tasks in a row that were fast enough */
    bool named;
    bool reported; /* its current task was: it is no example of what is usual */
};

struct pl_stragglers {
    int n_workers;
    struct stragglers_worker *worker;
    uint64_t lost_ns; /* in which the whole run stood still, in all that was told */
    struct stragglers_task ring[PL_SLOW_RING];         /* the last tasks */
    uint64_t n_tasks;                                  /* ever put into the ring, */
    uint64_t n_arrived;                                /* and those of them that came to an end */
    bool changed;                                      /* since the last look */
    double (*work)(const void *ctx, int row, int col); /* NULL: all tasks have the same size */
    const void *ctx;
};

int pl_stragglers_new(int n_workers, struct pl_stragglers **out) {
    struct pl_stragglers *s = calloc(1, sizeof *s);
    if (!s) return PL_ENOMEM;
    s->n_workers = n_workers;
    s->worker = calloc((size_t)n_workers, sizeof *s->worker);
    if (!s->worker) {
        pl_stragglers_free(s);
        return PL_ENOMEM;
    }
    *out = s;
    return PL_OK;
}

void pl_stragglers_free(struct pl_stragglers *s) {
    if (!s) return;
    free(s->worker);
    free(s);
}

void pl_stragglers_work(struct pl_stragglers *s, double (*work)(const void *ctx, int row, int col),
                        const void *ctx) {
    s->work = work;
    s->ctx = ctx;
}

void pl_stragglers_lost(struct pl_stragglers *s, uint64_t ns) {
    for (int i = 0; i < s->n_workers; i++) s->worker[i].paused_ns += ns - s->lost_ns;
    s->lost_ns = ns;
}

void pl_stragglers_waited(struct pl_stragglers *s, int worker, uint64_t ns) {
    struct stragglers_worker *w = &s->worker[worker];
    if (ns <= w->waited_ns) return;
    w->paused_ns += ns - w->waited_ns;
    w->waited_ns = ns;
}

void pl_stragglers_served_late(struct pl_stragglers *s, int worker, uint64_t ns) {
    s->worker[worker].paused_ns += ns;
}

uint64_t pl_stragglers_excused(const struct pl_stragglers *s, int worker) {
    return s->worker[worker].paused_ns;
}

/* How long a task has taken that began then, without pauses. */
static double stragglers_took(const struct stragglers_worker *w, uint64_t from_ns, uint64_t to_ns) {
    return to_ns > from_ns + w->paused_ns ? (double)(to_ns - from_ns - w->paused_ns) : 0;
}

/* --- what is usual ------------------------------------------------------------------------- */

static int stragglers_less(const void *a, const void *b) {
    const struct stragglers_task *x = a, *y = b;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Copies the tasks of the ring, without those of one worker (-1: of all), in ascending order. */
static size_t stragglers_sorted(const struct pl_stragglers *s, int without,
                                struct stragglers_task *out) {
    size_t n = 0, all = s->n_tasks < PL_SLOW_RING ? (size_t)s->n_tasks : PL_SLOW_RING;
    for (size_t i = 0; i < all; i++)
        if (s->ring[i].worker != without) out[n++] = s->ring[i];
    qsort(out, n, sizeof *out, stragglers_less);
    return n;
}

/* The lower of two middle values; 0 if there are none. A task that was cut short counts with the
 * time it had: the median is too small then, which the tail makes up for. */
static double stragglers_median(const struct stragglers_task *sorted, size_t n) {
    return n ? sorted[(n - 1) / 2].ns : 0;
}

/* The time that one task in PL_SLOW_TASK_RARE exceeds, from the largest tenth, sorted[n] ascending:
 *
 *     X_(k+1) (k / (n p))^gamma,   gamma = sum over the k largest of log(X / X_(k+1)) / finished
 *
 * with gamma raised by its standard error. INFINITY if no large task finished: the tail is unknown
 * then. */
static double stragglers_rare(const struct stragglers_task *sorted, size_t n) {
    size_t k = n / 10 > 2 ? n / 10 : 2, n_finished = 0;
    if (n <= k) return INFINITY;
    double from = sorted[n - k - 1].ns, sum = 0;
    if (!(from > 0)) return INFINITY;
    for (size_t i = n - k; i < n; i++) {
        sum += log(sorted[i].ns / from);
        n_finished += !sorted[i].cut;
    }
    if (n_finished == 0) return INFINITY;
    double gamma = sum / (double)n_finished * (1 + 1 / sqrt((double)n_finished));
    return from * pow((double)k * PL_SLOW_TASK_RARE / (double)n, gamma);
}

/* --- what happened ----------------------------------------------------------------------- */

/* The current task of a worker has ended, or was cut short. */
static void stragglers_end(struct pl_stragglers *s, int worker, double ns, bool cut) {
    struct stragglers_worker *w = &s->worker[worker];
    if (w->work < PL_SLOW_LITTLE) return;
    struct stragglers_task task = {ns / w->work, worker, cut};
    struct stragglers_task sorted[PL_SLOW_RING];
    s->changed = true;
    w->last[w->n_tasks++ % PL_SLOW_WORKER_RING] = task;
    if (!w->reported) s->ring[s->n_tasks++ % PL_SLOW_RING] = task;
    if (!w->reported && !cut) s->n_arrived++;
    w->reported = false;
    if (!w->named || cut) return;
    size_t n = stragglers_sorted(s, -1, sorted);
    bool well = task.ns <= PL_SLOW * stragglers_median(sorted, n);
    w->n_well = well ? w->n_well + 1 : 0;
    if (w->n_well >= PL_SLOW_WELL_TASKS) w->named = false;
}

/* The timeline has the tasks that the event ended: of one that was used, computing and, right after
 * it, sending. */
void pl_stragglers_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                         const struct pl_plan *plan) {
    struct pl_stragglers *s = ctx;
    const struct pl_timeline *l = pl_control_timeline(c);
    for (const struct pl_span *t = l->span, *end = t + l->n_spans; t < end; t++) {
        if (t->kind == PL_SPAN_IDLE || t->again || e->kind == PL_END) continue;
        uint64_t from_ns = t->from_ns;
        if (t + 1 < end && t[1].kind == PL_SPAN_COMMUNICATE && t[1].task == t->task) t++;
        bool arrived = e->kind == PL_ARRIVE && t->worker == e->worker;
        double ns = stragglers_took(&s->worker[t->worker], from_ns, t->to_ns);
        stragglers_end(s, t->worker, ns, !arrived);
    }
    if (e->kind == PL_JOIN || e->kind == PL_LEAVE) /* a worker that rejoins counts as new */
        s->worker[e->worker] =
            (struct stragglers_worker){.waited_ns = s->worker[e->worker].waited_ns};
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        if (a->verb != PL_START) continue;
        s->worker[a->worker].paused_ns = 0;
        s->worker[a->worker].work = s->work ? s->work(s->ctx, a->row, a->col) : 1;
    }
}

/* --- looking ----------------------------------------------------------------------------- */

/* Busy workers are listed in order of start, so the first fast enough one ends the search. */
static bool stragglers_running(struct pl_stragglers *s, const struct pl_view *v, uint64_t now_ns,
                               struct pl_stragglers_found *found) {
    struct stragglers_task sorted[PL_SLOW_RING];
    if (s->n_arrived < PL_SLOW_TASK_ARRIVALS) return false;
    size_t n = stragglers_sorted(s, -1, sorted);
    double median = stragglers_median(sorted, n), rare = stragglers_rare(sorted, n);
    for (int i = v->busy; i >= 0; i = pl_next(v, i)) {
        struct stragglers_worker *w = &s->worker[i];
        double ns = stragglers_took(w, v->worker[i].since_ns, now_ns);
        if (s->work) ns /= w->work > PL_SLOW_LITTLE ? w->work : PL_SLOW_LITTLE;
        if (ns <= PL_SLOW * median || ns < median + PL_SLOW_TASK_NS || ns <= rare) {
            if (s->work) continue; /* a later task may be smaller */
            return false;
        }
        if (w->named) continue;
        *found = (struct pl_stragglers_found){PL_SLOW_TASK, i, ns * 1e-9, median * 1e-9};
        w->reported = true;
        return true;
    }
    return false;
}

/* The probability of at least c successes in n trials with probability q each. The terms fall from
 * c on, which is above the mean; what is left after a million of a sum is nothing. */
static double stragglers_tail(uint64_t c, uint64_t n, double q) {
    double sum = 0, all = lgamma((double)n + 1);
    for (uint64_t i = c; i <= n; i++) {
        double x = (double)i, y = (double)(n - i);
        double term = exp(all - lgamma(x + 1) - lgamma(y + 1) + x * log(q) + y * log1p(-q));
        sum += term;
        if (term < 1e-6 * sum) break;
    }
    return sum;
}

/* Whether c of n tasks of one worker are more than chance, if that share of the others' are. */
static bool stragglers_no_chance(uint64_t c, uint64_t n, double share) {
    return (double)c > (double)n * share && stragglers_tail(c, n, share) * PL_SLOW_WORKER_RARE <= 1;
}

/* The share of the others' tasks, sorted[n], that are longer than the limit; a little more than
 * they show. A task that was cut short tells something only if it was too long by then. */
static double stragglers_share(const struct stragglers_task *sorted, size_t n, double limit) {
    int n_known = 0, n_long = 0;
    for (size_t i = 0; i < n; i++) {
        if (sorted[i].cut && sorted[i].ns <= limit) continue;
        n_known++;
        n_long += sorted[i].ns > limit;
    }
    return (n_long + 1.0) / (n_known + 2.0);
}

/* Compares a worker's last tasks with those of the others. */
static bool stragglers_often(const struct pl_stragglers *s, int worker,
                             struct pl_stragglers_found *found) {
    const struct stragglers_worker *w = &s->worker[worker];
    struct stragglers_task sorted[PL_SLOW_RING], own[PL_SLOW_WORKER_RING];
    size_t n_sorted = stragglers_sorted(s, worker, sorted);
    double median = stragglers_median(sorted, n_sorted), limit = PL_SLOW * median;
    double share = stragglers_share(sorted, n_sorted, limit), sum = 0;
    int n = 0, n_long = 0;
    for (uint64_t i = w->n_tasks; n_sorted > 0 && i-- > 0;) { /* the last one first */
        if (w->n_tasks - i > PL_SLOW_WORKER_RING) break;
        const struct stragglers_task *task = &w->last[i % PL_SLOW_WORKER_RING];
        if (task->cut && task->ns <= limit) continue;
        own[n++] = *task;
        n_long += task->ns > limit;
        sum += task->ns;
        if (n < PL_SLOW_WORKER_TASKS || 2 * n_long <= n || sum < PL_SLOW_WORKER_NS) continue;
        if (!stragglers_no_chance((uint64_t)n_long, (uint64_t)n, share)) continue;
        qsort(own, (size_t)n, sizeof *own, stragglers_less);
        *found = (struct pl_stragglers_found){
            PL_SLOW_WORKER, worker, stragglers_median(own, (size_t)n) * 1e-9, median * 1e-9};
        return true;
    }
    return false;
}

/* Looks only at workers whose last task took more than the median of all, of which most are not
 * slow. */
static bool stragglers_usually(struct pl_stragglers *s, struct pl_stragglers_found *found) {
    struct stragglers_task sorted[PL_SLOW_RING];
    if (!s->changed) return false;
    double median = stragglers_median(sorted, stragglers_sorted(s, -1, sorted));
    for (int i = 0; i < s->n_workers; i++) {
        const struct stragglers_worker *w = &s->worker[i];
        if (w->named || w->n_tasks < PL_SLOW_WORKER_TASKS) continue;
        if (w->last[(w->n_tasks - 1) % PL_SLOW_WORKER_RING].ns < median) continue;
        if (stragglers_often(s, i, found)) return true;
    }
    s->changed = false;
    return false;
}

bool pl_stragglers_look(struct pl_stragglers *s, const struct pl_view *v, uint64_t now_ns,
                        struct pl_stragglers_found *found) {
    if (!stragglers_running(s, v, now_ns, found) && !stragglers_usually(s, found)) return false;
    s->worker[found->worker].named = true;
    s->worker[found->worker].n_well = 0;
    return true;
}

/* --- afterwards ---------------------------------------------------------------------------- */

static int stragglers_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pl_stragglers_task(const struct pl_timeline_row *row) {
    return row->n_timed ? pl_seconds(row->arrived_ns) / (double)row->n_timed : NAN;
}

struct pl_usual pl_stragglers_usual(const struct pl_timeline_row *row, int n) {
    struct pl_usual usual = {.task = NAN};
    double *t = malloc(((size_t)n + 1) * sizeof *t);
    size_t known = 0;
    for (int i = 0; i < n; i++) {
        if (t && row[i].n_timed) t[known++] = pl_stragglers_task(&row[i]);
        usual.n_tasks += row[i].n_used + row[i].n_wasted;
        usual.n_timed += row[i].n_timed;
        usual.n_long += row[i].n_long;
    }
    if (known) {
        qsort(t, known, sizeof *t, stragglers_double);
        usual.task = t[(known - 1) / 2];
    }
    free(t);
    return usual;
}

/* The share of the others, a little more than they show. */
static double stragglers_of_others(uint64_t some, uint64_t all) {
    return ((double)some + 1) / ((double)all + 2);
}

enum pl_pace pl_stragglers_pace(const struct pl_timeline_row *row, const struct pl_usual *usual) {
    double unfinished = pl_seconds(row->unfinished_ns), share;
    uint64_t n = row->n_used + row->n_wasted, missing = n - row->n_timed;
    bool slow;
    if (unfinished > PL_SLOW_STUCK * usual->task && unfinished > 1) return PL_PACE_STUCK;
    if (isnan(usual->task) || n < PL_SLOW_WORKER_TASKS) return PL_PACE_UNKNOWN;
    if (row->n_timed == 0) {
        share = stragglers_of_others(usual->n_tasks - usual->n_timed - missing, usual->n_tasks - n);
        slow = stragglers_no_chance(n, n, share);
    } else {
        share = stragglers_of_others(usual->n_long - row->n_long, usual->n_timed - row->n_timed);
        slow = pl_stragglers_task(row) > PL_SLOW * usual->task &&
               stragglers_no_chance(row->n_long, row->n_timed, share);
    }
    return slow ? PL_PACE_SLOW : PL_PACE_USUAL;
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

void pl_stragglers_sentence(const struct pl_stragglers_found *found, const struct pl_log *log,
                            const char *phase, char *out, size_t max) {
    char elapsed[48], usual[48];
    stragglers_seconds(found->elapsed, elapsed, sizeof elapsed);
    stragglers_seconds(found->usual, usual, sizeof usual);
    snprintf(out, max, "%s is slow: %s %s (median %s)%s%s", PL_WHO(log, found->worker),
             found->kind == PL_SLOW_TASK ? "its task has run for" : "its tasks take", elapsed,
             usual, phase && phase[0] ? "; it is " : "", phase && phase[0] ? phase : "");
}
