#include "core/arms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/twin.h"

#define ARMS_MOST 96  /* arms */
#define ARMS_TIMES 32 /* tasks that are remembered per worker */
#define ARMS_FIRST 2  /* completed tasks per worker before the first forecast */
#define ARMS_PLAY 16  /* results that forecasts may play per completed task, */
#define ARMS_FREE 8   /* beside those of this many forecasts, */
#define ARMS_QUIET 2  /* and while nothing changes */
#define ARMS_DONE 16  /* completed tasks whose mean time is compared with the one before */
#define ARMS_DRIFT 3  /* a worker whose mean time has changed by this factor is another */

/* The mean time of completed tasks is that of all tasks, as if the rest of those that were
 * cancelled were exponential. */
struct arms_worker {
    double seconds[ARMS_TIMES];
    unsigned char done[ARMS_TIMES];
    int n, next;       /* tasks that are remembered, and the place of the next one */
    int n_new, n_done; /* tasks remembered since the mean was last compared; all completed ones, */
    double spent;      /* the time of all tasks since, */
    double known;      /* and the mean before; 0: not known */
};

/* A worker's tasks in order of time, to draw from. */
struct arms_times {
    double seconds[ARMS_TIMES], mean;
    unsigned char done[ARMS_TIMES], longer[ARMS_TIMES]; /* the first one that took longer */
    int n;
};

struct arms_counts {
    uint64_t n_done;             /* completed tasks */
    uint64_t last, due, changed; /* n_done at the last forecast, the next, and the last change */
    uint64_t n_forecasts;
    uint64_t work, n_played; /* results played by the last forecast, and by all of them */
    uint64_t moved;          /* workers have come, gone or changed since the last forecast */
};

struct pl_arms {
    struct pl_arm arm[ARMS_MOST];
    int n, n_workers;
    uint64_t seed;
    struct arms_counts counts;
    struct arms_worker *worker; /* [n_workers] */
    struct arms_times *times;   /* [n_workers] of those that are present, for a forecast */
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
    if (n_workers > PL_ARMS_WORKERS)
        return pl_fail(why, PL_EUSAGE,
                       "policies are chosen for at most %d workers; use --tuner fixed",
                       PL_ARMS_WORKERS);
    struct pl_arms *a = calloc(1, sizeof *a);
    if (a) a->worker = calloc((size_t)n_workers, sizeof *a->worker);
    if (a) a->times = calloc((size_t)n_workers, sizeof *a->times);
    int rc = a && a->worker && a->times ? PL_OK : pl_fail(why, PL_ENOMEM, "out of memory");
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
    free(a->times);
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

/* Compares the mean time of the last completed tasks with the one before. A worker that has become
 * slow is known as soon as they have taken too long together. */
static bool arms_drifts(struct arms_worker *w) {
    double known = w->known, mean = w->spent / ARMS_DONE;
    bool slow = known > 0 && mean > ARMS_DRIFT * known;
    if (w->n_done < ARMS_DONE && !slow) return false;
    bool drifts = slow || (known > 0 && mean < known / ARMS_DRIFT);
    w->known = drifts ? 0 : known > 0 ? (known + mean) / 2 : mean;
    if (drifts && w->n > w->n_new) w->n = w->n_new; /* the others are of what it was */
    w->n_new = 0;
    w->n_done = 0;
    w->spent = 0;
    return drifts;
}

void pl_arms_task(struct pl_arms *a, int worker, double seconds, bool done) {
    if (!a) return;
    struct arms_worker *w = &a->worker[worker];
    w->seconds[w->next] = seconds;
    w->done[w->next] = done;
    w->next = (w->next + 1) % ARMS_TIMES;
    if (w->n < ARMS_TIMES) w->n++;
    w->spent += seconds;
    if (w->n_new < ARMS_TIMES) w->n_new++;
    w->n_done += done;
    a->counts.n_done += done;
    if (arms_drifts(w)) pl_arms_moved(a);
}

void pl_arms_moved(struct pl_arms *a) {
    if (!a) return;
    a->counts.moved = 1;
    a->counts.changed = a->counts.n_done;
}

/* --- forecasts ---------------------------------------------------------------------------- */

static void arms_sort(struct arms_times *t, const struct arms_worker *w) {
    double sum = 0;
    int n_done = 0;
    t->n = w->n;
    for (int i = 0; i < w->n; i++) {
        int from = (w->next + ARMS_TIMES - 1 - i) % ARMS_TIMES, at = i;
        for (; at > 0 && t->seconds[at - 1] > w->seconds[from]; at--) {
            t->seconds[at] = t->seconds[at - 1];
            t->done[at] = t->done[at - 1];
        }
        t->seconds[at] = w->seconds[from];
        t->done[at] = w->done[from];
        sum += w->seconds[from];
        n_done += w->done[from];
    }
    t->mean = w->known > 0 ? w->known : sum / (n_done > 0 ? n_done : 1);
    for (int i = t->n - 1; i >= 0; i--) {
        bool tie = i + 1 < t->n && t->seconds[i + 1] <= t->seconds[i];
        t->longer[i] = tie ? t->longer[i + 1] : (unsigned char)(i + 1);
    }
}

/* One of the tasks from `from` on, at random. */
static int arms_pick(struct pl_arms *a, int from, int n) {
    int i = from + (int)(pl_rng_unit(&a->rng) * (n - from));
    return i < n ? i : n - 1;
}

static double arms_draw(void *ctx, int present) {
    struct pl_arms *a = ctx;
    const struct arms_times *t = &a->times[present];
    int at = arms_pick(a, 0, t->n);
    while (!t->done[at]) {
        if (t->longer[at] == t->n) return t->seconds[at] + t->mean * pl_rng_exp(&a->rng);
        at = arms_pick(a, t->longer[at], t->n);
    }
    return t->seconds[at];
}

/* The times of the workers that are present and measured; those that have just come count as soon
 * as they are. Returns how many there are. */
static int arms_present(struct pl_arms *a, const struct pl_view *v) {
    int n = 0;
    for (int i = 0; i < v->n_workers; i++)
        if (v->worker[i].state != PL_GONE && a->worker[i].n > 0)
            arms_sort(&a->times[n++], &a->worker[i]);
    return n;
}

static bool arms_due(const struct pl_arms *a, const struct pl_view *v) {
    const struct arms_counts *c = &a->counts;
    uint64_t each = (uint64_t)v->n_alive;
    if (c->n_done < ARMS_FIRST * each || c->n_done < c->last + each) return false;
    if (c->n_played > ARMS_PLAY * c->n_done + ARMS_FREE * c->work) return false;
    return c->moved != 0 || c->n_done >= c->due;
}

/* While nothing changes, the next forecast is made when half as many tasks again were completed,
 * but at a moderate cost. */
static void arms_wait(struct arms_counts *c) {
    uint64_t more = (c->n_done - c->changed) / 2, most = c->work / ARMS_QUIET;
    c->due = c->n_done + (more < most ? more : most) + 1;
    c->last = c->n_done;
    c->moved = 0;
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
    struct arms_counts *c = &a->counts;
    int n = arms_present(a, v), rc = PL_OK;
    c->n_forecasts++;
    c->work = 0;
    for (int i = 0; !rc && i < a->n; i++) {
        struct pl_arm *arm = &a->arm[i];
        struct pl_forecast f = {NAN, NAN, NAN, 0};
        struct pl_twin_conf twin = {arm->policy, arm->conf, n, arms_draw, a};
        pl_rng_init(&a->rng, a->seed, PL_STREAM_TWIN, 0, c->n_forecasts);
        bool fits = n > 0 && (arm->policy->by_batch || arm->knobs.k <= n);
        if (fits) rc = pl_twin_run(&twin, &f, why);
        c->work += f.n_played;
        arms_learn(arm, &f, c->moved != 0);
    }
    c->n_played += c->work;
    arms_wait(c);
    return rc;
}

void pl_arms_archive(struct pl_arms *a, const struct pl_archive *k) {
    pl_archive_bytes(k, "arms.counts", &a->counts, sizeof a->counts);
    pl_archive_bytes(k, "arms.workers", a->worker, (size_t)a->n_workers * sizeof *a->worker);
    for (int i = 0; k->restoring && i < a->n_workers; i++) {
        struct arms_worker *w = &a->worker[i];
        bool sane = w->n >= 0 && w->n <= ARMS_TIMES && w->next >= 0 && w->next < ARMS_TIMES &&
                    w->n_new >= 0 && w->n_new <= ARMS_TIMES && w->n_done >= 0 &&
                    w->n_done < ARMS_DONE;
        if (!sane) *w = (struct arms_worker){.n = 0};
    }
    if (k->restoring) pl_arms_moved(a);
}
