/* Expected time per update (Dutta et al. 2018, Lemmas 3-5 and Theorems 1-2).
 *
 * Exact cells (P workers, E_w = mean of worker w):
 *   K-sync         E[X_{K:P}], see order.c; workers may differ.
 *   K-batch-sync   exponential laws: K / sum 1/E_w, because P Poisson streams add up; K = 1:
 *                  E[X_{1:P}]; one worker: K E; constant delays: the batch time of Rennala.
 *   K-async        identical workers: exponential E[X_{K:P}], constant t / floor(P/K);
 *                  K = P: E[X_{P:P}]; K = 1: 1 / sum 1/E_w.
 *   K-batch-async  K / sum 1/E_w for every law with a mean (renewal theorem).
 * The other cells are simulated by an event loop that shares nothing with src/sim but the law. All
 * workers begin together, as in a real run; a warm-up of at least 20 tasks per worker is discarded.
 * Delays that hardly vary remember that start for longer than the standard error shows.
 *
 * Staleness: an update ages the P-K tasks in flight by one in K-async (P-1 in K-batch-async, where
 * only the last contributor has just fetched), so the means P/K-1 and (P-1)/K hold for every law.
 * Fresh share: exponential K-async K/P; exponential K-batch-async 1 - (P-1)(1 - (1-1/P)^K)/K,
 * because the p-th arrival of a group is fresh iff its worker is among the p arrivals before it
 * (derived here; simulated values agree). */
#include "theory/runtime.h"

#include <math.h>
#include <stdlib.h>

#define RUNTIME_BATCHES 32      /* batch means for a standard error */
#define RUNTIME_UPDATES_MIN 320 /* per simulated cell */

const char *const pl_variant_names[PL_N_VARIANTS] = {"ksync", "kbatchsync", "kasync",
                                                     "kbatchasync"};

/* The event loop */

struct finish {
    double when;
    int who;
};

struct loop {
    const struct pl_delay *d;
    uint64_t seed;
    int n, n_queued;
    struct finish *queue; /* [n], a binary heap on (when, who) */
    uint64_t *task;       /* [n], tasks started */
    uint64_t *base;       /* [n], base version of the running task */
    int *waiting;         /* [n], K-async: contributors of the open group */
};

static bool runtime_before(struct finish a, struct finish b) {
    return a.when != b.when ? a.when < b.when : a.who < b.who;
}

static void runtime_down(struct loop *l, int i, struct finish it) {
    for (int child; (child = 2 * i + 1) < l->n_queued; i = child) {
        if (child + 1 < l->n_queued && runtime_before(l->queue[child + 1], l->queue[child]))
            child++;
        if (!runtime_before(l->queue[child], it)) break;
        l->queue[i] = l->queue[child];
    }
    l->queue[i] = it;
}

static void runtime_push(struct loop *l, struct finish it) {
    int i = l->n_queued++;
    for (; i > 0 && runtime_before(it, l->queue[(i - 1) / 2]); i = (i - 1) / 2)
        l->queue[i] = l->queue[(i - 1) / 2];
    l->queue[i] = it;
}

static struct finish runtime_pop(struct loop *l) {
    struct finish top = l->queue[0];
    l->n_queued--;
    if (l->n_queued > 0) runtime_down(l, 0, l->queue[l->n_queued]);
    return top;
}

static struct finish runtime_task(struct loop *l, int w, double now) {
    double x = pl_delay_draw(l->d, l->seed, (uint32_t)w, l->task[w]++, 1);
    return (struct finish){now + x, w};
}

/* All workers begin at `now`. */
static void runtime_all(struct loop *l, double now) {
    l->n_queued = l->n;
    for (int w = 0; w < l->n; w++) l->queue[w] = runtime_task(l, w, now);
    for (int i = l->n / 2 - 1; i >= 0; i--) runtime_down(l, i, l->queue[i]);
}

/* One update of a synchronous variant: K arrivals after a common start; returns its duration. */
static double runtime_sync(struct loop *l, enum pl_variant variant, int k) {
    runtime_all(l, 0.0);
    for (int taken = 1; taken < k; taken++) {
        struct finish f = runtime_pop(l);
        if (variant == PL_KBATCHSYNC) runtime_push(l, runtime_task(l, f.who, f.when));
    }
    return l->queue[0].when;
}

/* One update of an asynchronous variant; returns its time and adds up lags and fresh arrivals. */
static double runtime_async(struct loop *l, enum pl_variant variant, int k, uint64_t version,
                            double *lag, double *fresh) {
    double now = 0.0;
    for (int taken = 0; taken < k; taken++) {
        struct finish f = runtime_pop(l);
        now = f.when;
        *lag += (double)(version - l->base[f.who]);
        *fresh += version == l->base[f.who];
        l->base[f.who] = version + (variant == PL_KASYNC || taken == k - 1);
        if (variant == PL_KASYNC)
            l->waiting[taken] = f.who;
        else
            runtime_push(l, runtime_task(l, f.who, now));
    }
    if (variant == PL_KASYNC)
        for (int i = 0; i < k; i++) runtime_push(l, runtime_task(l, l->waiting[i], now));
    return now;
}

/* K-batch-sync for every K at once: before the cut, the time of the K-th arrival after a common
 * start does not depend on K. k[n_k] is ascending; only cells whose out[].seconds is NAN are
 * written. */
static void runtime_batchsync(struct loop *l, const int *k, int n_k, uint64_t rounds,
                              struct pl_runtime *out) {
    for (int i = 0; i < n_k; i++) {
        if (!isnan(out[i].seconds)) continue;
        out[i].how = PL_HOW_SIMULATED;
        out[i].seconds = out[i].sd_error = 0.0;
    }
    for (uint64_t r = 1; r <= rounds; r++) {
        runtime_all(l, 0.0);
        for (int i = 0, taken = 1; i < n_k; i++) {
            for (; taken < k[i]; taken++) {
                struct finish f = runtime_pop(l);
                runtime_push(l, runtime_task(l, f.who, f.when));
            }
            if (out[i].how != PL_HOW_SIMULATED) continue;
            double x = l->queue[0].when, off = x - out[i].seconds;
            out[i].seconds += off / (double)r;
            out[i].sd_error += off * (x - out[i].seconds);
        }
    }
    for (int i = 0; i < n_k; i++)
        if (out[i].how == PL_HOW_SIMULATED)
            out[i].sd_error = sqrt(out[i].sd_error / ((double)rounds * (double)(rounds - 1)));
}

static void runtime_run(struct loop *l, enum pl_variant variant, int k, uint64_t updates,
                        struct pl_runtime *out) {
    bool async = variant == PL_KASYNC || variant == PL_KBATCHASYNC;
    uint64_t per_batch = (updates + RUNTIME_BATCHES - 1) / RUNTIME_BATCHES, version = 0;
    double lag = 0.0, fresh = 0.0, last = 0.0, mean = 0.0, squares = 0.0;
    if (async) {
        uint64_t warm = updates / 10 + 20 * (uint64_t)(l->n / k + 1);
        runtime_all(l, 0.0);
        while (version < warm) last = runtime_async(l, variant, k, version++, &lag, &fresh);
        lag = fresh = 0.0;
    }
    for (int b = 0; b < RUNTIME_BATCHES; b++) {
        double sum = 0.0;
        for (uint64_t u = 0; u < per_batch; u++) {
            if (async) {
                double now = runtime_async(l, variant, k, version++, &lag, &fresh);
                sum += now - last;
                last = now;
            } else {
                sum += runtime_sync(l, variant, k);
            }
        }
        double x = sum / (double)per_batch, off = x - mean;
        mean += off / (b + 1);
        squares += off * (x - mean);
    }
    double applied = (double)per_batch * RUNTIME_BATCHES * k;
    *out = (struct pl_runtime){.seconds = mean,
                               .sd_error = sqrt(squares / (RUNTIME_BATCHES - 1) / RUNTIME_BATCHES),
                               .how = PL_HOW_SIMULATED,
                               .lag = async ? lag / applied : 0.0,
                               .fresh = async ? fresh / applied : 1.0};
}

static bool runtime_open(struct loop *l, const struct pl_delay *d, int n_workers, uint64_t seed) {
    size_t n = (size_t)n_workers;
    *l = (struct loop){.d = d, .seed = seed, .n = n_workers};
    l->queue = malloc(n * sizeof *l->queue);
    l->task = calloc(n, sizeof *l->task);
    l->base = calloc(n, sizeof *l->base);
    l->waiting = malloc(n * sizeof *l->waiting);
    return l->queue && l->task && l->base && l->waiting;
}

static void runtime_close(struct loop *l) {
    free(l->queue);
    free(l->task);
    free(l->base);
    free(l->waiting);
}

int pl_runtime_simulated(const struct pl_delay *d, int n_workers, enum pl_variant variant, int k,
                         uint64_t seed, uint64_t updates, struct pl_runtime *out) {
    struct loop l;
    bool ok = runtime_open(&l, d, n_workers, seed);
    if (ok) runtime_run(&l, variant, k, updates, out);
    runtime_close(&l);
    return ok ? PL_OK : PL_ENOMEM;
}

/* Closed forms */

/* Mean staleness: 0, 0, P/K - 1, (P-1)/K. */
static double runtime_lag_mean(enum pl_variant variant, int n_workers, int k) {
    if (variant == PL_KASYNC) return (double)n_workers / k - 1.0;
    if (variant == PL_KBATCHASYNC) return (n_workers - 1.0) / k;
    return 0.0;
}

/* What the closed forms need to know about the P laws. */
struct laws {
    bool all_exp, all_const, alike;
    double rate; /* sum of 1/E_w: mini-batches per second of workers that never wait */
};

static struct laws runtime_laws(const struct pl_delay *d, int n_workers) {
    struct laws s = {.all_exp = true, .all_const = true, .alike = pl_delay_alike(d)};
    for (int w = 0; w < n_workers; w++) {
        struct pl_delay_look look;
        pl_delay_look(d, (uint32_t)w, &look);
        s.all_exp = s.all_exp && look.kind == PL_DELAY_EXP;
        s.all_const = s.all_const && look.kind == PL_DELAY_CONST;
        s.rate += 1.0 / pl_delay_mean(d, (uint32_t)w);
    }
    return s;
}

/* Rennala with fixed delays: the smallest t with sum_i floor(t / tau_i) >= batch; tau[n] positive,
 * in any order. Takes batch * log n steps. NAN if memory runs out. */
static double runtime_batch_time(const double *tau, int n, uint64_t batch) {
    struct loop l = {.n = n};
    l.queue = malloc((size_t)n * sizeof *l.queue);
    l.task = malloc((size_t)n * sizeof *l.task);
    double t = l.queue && l.task ? 0.0 : NAN;
    for (int i = 0; i < n && !isnan(t); i++) {
        l.task[i] = 1;
        runtime_push(&l, (struct finish){tau[i], i});
    }
    for (uint64_t b = 0; b < batch && !isnan(t); b++) {
        struct finish f = runtime_pop(&l);
        t = f.when;
        f.when = (double)++l.task[f.who] * tau[f.who]; /* a product does not drift as a sum would */
        runtime_push(&l, f);
    }
    free(l.queue);
    free(l.task);
    return t;
}

/* Seconds by a closed form other than an order statistic, or NAN. */
static double runtime_closed(const struct pl_delay *d, int n_workers, const struct laws *s,
                             enum pl_variant variant, int k) {
    double *tau, t;
    switch (variant) {
    case PL_KBATCHASYNC: return k / s->rate;
    case PL_KASYNC:
        if (k == 1) return 1.0 / s->rate;
        if (s->all_const && s->alike) return pl_delay_mean(d, 0) / (n_workers / k);
        return NAN;
    case PL_KBATCHSYNC:
        if (s->all_exp || n_workers == 1) return k / s->rate;
        if (!s->all_const) return NAN;
        if (s->alike) return pl_delay_mean(d, 0) * ((k - 1) / n_workers + 1);
        tau = malloc((size_t)n_workers * sizeof *tau);
        if (!tau) return NAN;
        for (int w = 0; w < n_workers; w++) tau[w] = pl_delay_mean(d, (uint32_t)w);
        t = runtime_batch_time(tau, n_workers, (uint64_t)k);
        free(tau);
        return t;
    default: return NAN;
    }
}

/* Tells whether the cell is E[X_{K:P}]. */
static bool runtime_is_order(const struct laws *s, enum pl_variant variant, int n_workers, int k) {
    return variant == PL_KSYNC || (variant == PL_KBATCHSYNC && k == 1) ||
           (variant == PL_KASYNC && (k == n_workers || (s->alike && s->all_exp)));
}

static double runtime_fresh(const struct laws *s, enum pl_variant variant, int n_workers, int k) {
    if (variant == PL_KSYNC || variant == PL_KBATCHSYNC || n_workers == 1) return 1.0;
    if (variant == PL_KASYNC && k == n_workers) return 1.0;
    if (!s->alike || !s->all_exp) return NAN;
    if (variant == PL_KASYNC) return (double)k / n_workers;
    return 1.0 - (n_workers - 1.0) * -expm1(k * log1p(-1.0 / n_workers)) / k;
}

/* Simulates the cells whose seconds are NAN. */
static int runtime_fill(const struct pl_delay *d, int n_workers, enum pl_variant variant,
                        const int *k, int n_k, uint64_t seed, uint64_t draws,
                        struct pl_runtime *out) {
    int missing = 0;
    for (int i = 0; i < n_k; i++) missing += isnan(out[i].seconds);
    if (missing && variant == PL_KBATCHSYNC) {
        struct loop l;
        uint64_t each = (uint64_t)k[n_k - 1] + (uint64_t)n_workers;
        uint64_t rounds = draws * (uint64_t)missing / each;
        bool ok = runtime_open(&l, d, n_workers, seed);
        if (rounds < RUNTIME_UPDATES_MIN) rounds = RUNTIME_UPDATES_MIN;
        if (ok) runtime_batchsync(&l, k, n_k, rounds, out);
        runtime_close(&l);
        return ok ? PL_OK : PL_ENOMEM;
    }
    for (int i = 0; i < n_k && missing; i++) {
        if (!isnan(out[i].seconds)) continue;
        uint64_t updates = draws / (uint64_t)k[i];
        if (updates < RUNTIME_UPDATES_MIN) updates = RUNTIME_UPDATES_MIN;
        if (pl_runtime_simulated(d, n_workers, variant, k[i], seed, updates, &out[i]))
            return PL_ENOMEM;
    }
    return PL_OK;
}

static int runtime_check(enum pl_variant variant, int n_workers, const int *k, int n_k,
                         struct pl_why *why) {
    bool batch = variant == PL_KBATCHSYNC || variant == PL_KBATCHASYNC;
    for (int i = 0; i < n_k; i++) {
        if (k[i] < 1 || (k[i] > n_workers && !batch))
            return pl_fail(why, PL_EUSAGE, "k=%d is not accepted; %s with %d workers takes 1 to %d",
                           k[i], pl_variant_names[variant], n_workers, n_workers);
        if (i && k[i] <= k[i - 1])
            return pl_fail(why, PL_EUSAGE, "the values of k must be ascending");
    }
    return PL_OK;
}

int pl_runtime_of(const struct pl_delay *d, int n_workers, enum pl_variant variant, const int *k,
                  int n_k, uint64_t seed, uint64_t draws, struct pl_runtime *out,
                  struct pl_why *why) {
    int rc = runtime_check(variant, n_workers, k, n_k, why);
    if (rc) return rc;
    struct laws s = runtime_laws(d, n_workers);
    struct pl_order *order = calloc((size_t)n_k, sizeof *order);
    int *at = calloc((size_t)n_k, sizeof *at), n_at = 0;
    if (!order || !at) rc = pl_fail(why, PL_ENOMEM, "out of memory");
    for (int i = 0; i < n_k && !rc; i++)
        if (runtime_is_order(&s, variant, n_workers, k[i])) at[n_at++] = k[i];
    if (!rc && n_at) rc = pl_order_means(d, n_workers, at, n_at, seed, draws, order, why);
    for (int i = 0, o = 0; i < n_k && !rc; i++) {
        out[i] = (struct pl_runtime){.fresh = runtime_fresh(&s, variant, n_workers, k[i])};
        if (runtime_is_order(&s, variant, n_workers, k[i])) {
            out[i].seconds = order[o].mean;
            out[i].sd_error = order[o].sd_error;
            out[i].how = order[o++].how;
        } else {
            out[i].seconds = runtime_closed(d, n_workers, &s, variant, k[i]);
        }
    }
    if (!rc && runtime_fill(d, n_workers, variant, k, n_k, seed, draws, out))
        rc = pl_fail(why, PL_ENOMEM, "out of memory for %d workers", n_workers);
    for (int i = 0; i < n_k && !rc; i++) out[i].lag = runtime_lag_mean(variant, n_workers, k[i]);
    free(order);
    free(at);
    return rc;
}
