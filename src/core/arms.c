#include "core/arms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/twin.h"

#define ARMS_MOST 96      /* arms */
#define ARMS_TIMES 16     /* tasks that are remembered per worker */
#define ARMS_FIRST 2      /* tasks per worker before the first forecast */
#define ARMS_AGAIN 1      /* tasks per worker between two forecasts, at least, */
#define ARMS_OFTEN 64     /* and at most, if nothing changes */
#define ARMS_DRIFT 3      /* a worker whose mean time has changed by this factor is another */
#define ARMS_WORKERS 4096 /* more would take too long */

struct arms_worker {
    double seconds[ARMS_TIMES];
    unsigned char done[ARMS_TIMES];
    int n, next;  /* tasks that are remembered, and the place of the next one */
    double known; /* mean time at the last forecast; 0: none */
};

struct arms_counts {
    uint64_t n_tasks, due;      /* tasks so far; the next forecast is due after this many */
    uint64_t n_forecasts, last; /* and the number of tasks at the last one */
    uint64_t moved;             /* workers have come, gone or changed */
};

struct pl_arms {
    struct pl_arm arm[ARMS_MOST];
    int n, n_workers;
    uint64_t seed;
    struct arms_counts counts;
    struct arms_worker *worker; /* [n_workers] */
    int *present;               /* [n_workers] those that are there, for a forecast */
    struct pl_rng rng;
};

/* --- the table ---------------------------------------------------------------------------- */

/* Why a policy cannot take over between two events, or NULL. */
static const char *arms_no(const struct pl_policy *p) {
    if (!(p->uses & PL_USES_K)) return "has no K";
    bool plain = p->state_size <= p->id.conf_size && !p->room && !p->grid && !p->peers &&
                 !p->join && !p->timer;
    return plain ? NULL : "keeps a state of its own and cannot take over from another policy";
}

/* The K after k: 1, 2, 3, 4, 6, 8, 12, 16, … and, of many workers, powers of two; then all. */
static int arms_next_k(int k, int n_workers) {
    if (k >= n_workers) return n_workers + 1;
    bool power = (k & (k - 1)) == 0;
    int next = k < 2 || n_workers > 64 ? 2 * k : power ? k + k / 2 : k / 3 * 4;
    return next > n_workers ? n_workers : next;
}

static int arms_add(struct pl_arms *a, const char *name, int k, struct pl_why *why) {
    char spec[PL_NAME_MAX + 16];
    const struct pl_entry *entry;
    void *conf;
    int rc = pl_entry_find(&pl_policy_family, name, &entry, why);
    if (rc) return rc;
    const struct pl_policy *p = (const struct pl_policy *)entry;
    const char *no = a->n < ARMS_MOST ? arms_no(p) : "is one too many";
    if (no) return pl_fail(why, PL_EUSAGE, "policy '%s' %s; choose from others", name, no);
    snprintf(spec, sizeof spec, "%s:k=%d", name, k);
    rc = pl_spec_parse(&pl_policy_family, spec, a->n_workers, &entry, &conf, why);
    if (rc) return rc;
    a->arm[a->n++] = (struct pl_arm){p, conf, p->knobs(conf), NAN, NAN, NAN};
    return PL_OK;
}

int pl_arms_new(const char *names, int n_workers, uint64_t seed, struct pl_arms **out,
                struct pl_why *why) {
    if (n_workers > ARMS_WORKERS)
        return pl_fail(why, PL_EUSAGE,
                       "policies are chosen for at most %d workers; use --tuner fixed",
                       ARMS_WORKERS);
    struct pl_arms *a = calloc(1, sizeof *a);
    if (a) a->worker = calloc((size_t)n_workers, sizeof *a->worker);
    if (a) a->present = calloc((size_t)n_workers, sizeof *a->present);
    int rc = a && a->worker && a->present ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
    if (a) a->n_workers = n_workers;
    if (a) a->seed = seed;
    for (const char *at = names, *end; !rc && at; at = *end ? end + 1 : NULL) {
        char name[PL_NAME_MAX];
        end = at + strcspn(at, "+");
        snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        if (end == at)
            rc = pl_fail(why, PL_EUSAGE,
                         "arms '%s' has an empty name; write names of policies with + between them",
                         names);
        for (int k = 1; !rc && k <= n_workers; k = arms_next_k(k, n_workers))
            rc = arms_add(a, name, k, why);
    }
    if (rc)
        pl_arms_free(a);
    else
        *out = a;
    return rc;
}

void pl_arms_free(struct pl_arms *a) {
    if (!a) return;
    for (int i = 0; i < a->n; i++) free((void *)a->arm[i].conf);
    free(a->worker);
    free(a->present);
    free(a);
}

const struct pl_arm *pl_arms_table(const struct pl_arms *a, int *n) {
    *n = a->n;
    return a->arm;
}

int pl_arms_find(const struct pl_arms *a, const struct pl_policy *policy, int k) {
    for (int i = 0; i < a->n; i++)
        if (a->arm[i].policy == policy && a->arm[i].knobs.k == k) return i;
    return -1;
}

/* --- measuring ---------------------------------------------------------------------------- */

/* The mean time of a worker's tasks, as if those that were cancelled had an exponential rest. */
static double arms_mean(const struct arms_worker *w) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < w->n; i++) {
        sum += w->seconds[i];
        n += w->done[i] != 0;
    }
    return sum / (n > 0 ? n : 1);
}

void pl_arms_task(struct pl_arms *a, int worker, double seconds, bool done) {
    if (!a) return;
    struct arms_worker *w = &a->worker[worker];
    w->seconds[w->next] = seconds;
    w->done[w->next] = done;
    w->next = (w->next + 1) % ARMS_TIMES;
    if (w->n < ARMS_TIMES) w->n++;
    a->counts.n_tasks++;
    if (w->known <= 0 || w->n < ARMS_TIMES) return;
    double mean = arms_mean(w);
    if (mean > ARMS_DRIFT * w->known || mean < w->known / ARMS_DRIFT) a->counts.moved = 1;
}

void pl_arms_moved(struct pl_arms *a) {
    if (a) a->counts.moved = 1;
}

/* --- forecasts ---------------------------------------------------------------------------- */

/* One of the n tasks at place[], at random. */
static int arms_pick(struct pl_arms *a, const int *place, int n) {
    int i = (int)(pl_rng_unit(&a->rng) * n);
    return place[i < n ? i : n - 1];
}

static double arms_draw(void *ctx, int present) {
    struct pl_arms *a = ctx;
    const struct arms_worker *w = &a->worker[a->present[present]];
    int place[ARMS_TIMES], n = w->n;
    for (int i = 0; i < n; i++) place[i] = i;
    int at = arms_pick(a, place, n);
    while (!w->done[at]) {
        int longer = 0;
        for (int i = 0; i < w->n; i++)
            if (w->seconds[i] > w->seconds[at]) place[longer++] = i;
        if (longer == 0) return w->seconds[at] + arms_mean(w) * pl_rng_exp(&a->rng);
        at = arms_pick(a, place, longer);
    }
    return w->seconds[at];
}

/* Lists the workers that are present and measured; those that have just come count as soon as they
 * are. Returns how many there are. */
static int arms_present(struct pl_arms *a, const struct pl_view *v) {
    int n = 0;
    for (int i = 0; i < v->n_workers; i++)
        if (v->worker[i].state != PL_GONE && a->worker[i].n > 0) a->present[n++] = i;
    return n;
}

static bool arms_due(const struct pl_arms *a, const struct pl_view *v) {
    uint64_t first = ARMS_FIRST * (uint64_t)v->n_alive;
    uint64_t again = a->counts.last + ARMS_AGAIN * (uint64_t)v->n_alive;
    if (a->counts.n_tasks < first || a->counts.n_tasks < again) return false;
    return a->counts.moved != 0 || a->counts.n_tasks >= a->counts.due;
}

/* Forecasts are made from few measurements: unless something has changed, a new one counts half. */
static void arms_learn(struct pl_arm *arm, const struct pl_forecast *f, bool fresh) {
    double old = fresh || !isfinite(arm->time) ? 0 : 0.5;
    if (old == 0) *arm = (struct pl_arm){arm->policy, arm->conf, arm->knobs, 0, 0, 0};
    arm->time = old * arm->time + (1 - old) * f->time;
    arm->lag = old * arm->lag + (1 - old) * f->lag;
    arm->size = old * arm->size + (1 - old) * f->size;
}

int pl_arms_forecast(struct pl_arms *a, const struct pl_view *v, struct pl_why *why) {
    if (!a || !arms_due(a, v)) return PL_OK;
    int n = arms_present(a, v), rc = PL_OK;
    uint64_t more = a->counts.n_tasks / 2, most = ARMS_OFTEN * (uint64_t)v->n_alive;
    a->counts.due = a->counts.n_tasks + (more < most ? more : most) + 1;
    bool fresh = a->counts.moved != 0;
    a->counts.moved = 0;
    a->counts.last = a->counts.n_tasks;
    a->counts.n_forecasts++;
    for (int i = 0; i < n; i++)
        a->worker[a->present[i]].known = arms_mean(&a->worker[a->present[i]]);
    for (int i = 0; !rc && i < a->n; i++) {
        struct pl_arm *arm = &a->arm[i];
        struct pl_forecast f = {NAN, NAN, NAN};
        struct pl_twin_conf twin = {arm->policy, arm->conf, n, arms_draw, a};
        pl_rng_init(&a->rng, a->seed, PL_STREAM_TWIN, 0, a->counts.n_forecasts);
        bool fits = n > 0 && (arm->policy->by_batch || arm->knobs.k <= n);
        if (fits) rc = pl_twin_run(&twin, &f, why);
        arms_learn(arm, &f, fresh);
    }
    return rc;
}

void pl_arms_archive(struct pl_arms *a, const struct pl_archive *k) {
    pl_archive_bytes(k, "arms.counts", &a->counts, sizeof a->counts);
    pl_archive_bytes(k, "arms.workers", a->worker, (size_t)a->n_workers * sizeof *a->worker);
    for (int i = 0; k->restoring && i < a->n_workers; i++) {
        struct arms_worker *w = &a->worker[i];
        bool sane = w->n >= 0 && w->n <= ARMS_TIMES && w->next >= 0 && w->next < ARMS_TIMES;
        if (!sane) *w = (struct arms_worker){.n = 0};
    }
    if (k->restoring) a->counts.moved = 1;
}
