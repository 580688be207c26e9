/* How much faster one simulated run of training gets with more threads, beside what its schedule
 * allows.
 *
 * A run is a graph. A gradient needs the version that it is computed on, a commit needs its
 * gradients and the commits before it, and a version is there once its commit is. The event log of
 * the run has this graph. Its longest chain limits the speed-up with any number of threads. The
 * columns of n threads are
 *
 *   allowed   the speed-up if every thread takes what is ready, commits first, then gradients by
 *             arrival; durations are the mean ones of the run on one thread
 *   one com.  the same if one thread makes all commits, as in the simulator: while it computes a
 *             gradient it is late for the next commit
 *   slowed    that with the mean durations of the run on n threads, which share caches and memory
 *
 * The linker sends the simulator's calls that compute and commit through this file
 * (bench/CMakeLists.txt), which adds up their times on the processor. A run is timed from its first
 * gradient to its last commit; it is evaluated only before and after that. The fastest of several
 * short runs counts, because other processes only add time. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "core/store.h"
#include "learn/task.h"
#include "paceline.h"

#define INSIDE_REPEATS 15
#define INSIDE_WORKERS 8
#define INSIDE_EVENTS 1000
#define INSIDE_COUNTS 5 /* 1, 2, 4, 8 and 16 threads */

/* --- times of what a run does --------------------------------------------------------------- */

static struct {
    _Atomic uint64_t gradient_ns, n_gradients;
    double commit, n_commits; /* seconds of the thread that makes them all */
    double first, last;       /* the first gradient began, the last commit ended */
} inside;

int __real_pl_task_run(const struct pl_job *, struct pl_workspace *, const struct pl_task_at *,
                       struct pl_local_state *, float *, double *, const struct pl_cancel *);
int __wrap_pl_task_run(const struct pl_job *, struct pl_workspace *, const struct pl_task_at *,
                       struct pl_local_state *, float *, double *, const struct pl_cancel *);
bool __real_pl_task_finite(const struct pl_job *, const struct pl_task_at *, float *, double);
bool __wrap_pl_task_finite(const struct pl_job *, const struct pl_task_at *, float *, double);
int __real_pl_store_commit(struct pl_store *, double, struct pl_measure *);
int __wrap_pl_store_commit(struct pl_store *, double, struct pl_measure *);

/* Of this thread, so that it does not contain the time of other processes. */
static double inside_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void inside_add(double begun) {
    atomic_fetch_add(&inside.gradient_ns, (uint64_t)(1e9 * (inside_cpu() - begun)));
}

int __wrap_pl_task_run(const struct pl_job *job, struct pl_workspace *workspace,
                       const struct pl_task_at *at, struct pl_local_state *state, float *out,
                       double *loss, const struct pl_cancel *cancel) {
    double begun = inside_cpu();
    if (atomic_fetch_add(&inside.n_gradients, 1) == 0) inside.first = bench_now();
    int rc = __real_pl_task_run(job, workspace, at, state, out, loss, cancel);
    inside_add(begun);
    return rc;
}

/* A part of the task, like drawing the mini-batch. */
bool __wrap_pl_task_finite(const struct pl_job *job, const struct pl_task_at *at, float *out,
                           double loss) {
    double begun = inside_cpu();
    bool finite = __real_pl_task_finite(job, at, out, loss);
    inside_add(begun);
    return finite;
}

int __wrap_pl_store_commit(struct pl_store *s, double factor, struct pl_measure *measure) {
    double begun = inside_cpu();
    int rc = __real_pl_store_commit(s, factor, measure);
    inside.commit += inside_cpu() - begun;
    inside.last = bench_now();
    inside.n_commits++;
    return rc;
}

/* --- the graph ------------------------------------------------------------------------------ */

/* Arrivals are handled in their order; each needs a gradient, and some commit. */
struct inside_graph {
    int n, n_commits;
    struct {
        int after;    /* the arrival whose handling started this gradient; -1: the beginning */
        bool commits; /* a version when it is handled */
    } at[INSIDE_EVENTS];
};

struct inside_cost {
    double gradient, commit; /* seconds */
};

static void inside_read(const char *path, struct inside_graph *g) {
    static char line[4096];
    int started[INSIDE_WORKERS + 1] = {0}, worker;
    FILE *f = fopen(path, "r");
    bench_need(f != NULL, "the event log cannot be read");
    memset(g, 0, sizeof *g);
    for (int i = 0; i <= INSIDE_WORKERS; i++) started[i] = -1;
    while (fgets(line, sizeof line, f)) {
        int now = -1;
        if (sscanf(line, "%*s arrive W%d#", &worker) == 1) {
            bench_need(worker <= INSIDE_WORKERS && g->n < INSIDE_EVENTS, "too many events");
            now = g->n++;
            g->at[now].after = started[worker];
            g->at[now].commits = strstr(line, ", commit w") != NULL;
            g->n_commits += g->at[now].commits;
        }
        for (const char *s = line; (s = strstr(s, "start W")); s++)
            if (sscanf(s, "start W%d@", &worker) == 1 && worker <= INSIDE_WORKERS)
                started[worker] = now;
    }
    fclose(f);
    bench_need(g->n > 0 && g->at[g->n - 1].commits, "the event log does not end with a commit");
}

static double inside_work(const struct inside_graph *g, struct inside_cost cost) {
    return g->n * cost.gradient + g->n_commits * cost.commit;
}

static double inside_chain(const struct inside_graph *g, struct inside_cost cost) {
    double end[INSIDE_EVENTS], before = 0;
    for (int i = 0; i < g->n; i++) {
        double there = (g->at[i].after < 0 ? 0 : end[g->at[i].after]) + cost.gradient;
        before = end[i] = fmax(before, there) + (g->at[i].commits ? cost.commit : 0);
    }
    return before;
}

/* Seconds of a list schedule on n threads. `one`: only the first of them commits. */
static double inside_schedule(const struct inside_graph *g, struct inside_cost cost, int n,
                              bool one) {
    double end[INSIDE_EVENTS], there[INSIDE_EVENTS], at[INSIDE_EVENTS + 1] = {0};
    int next = 0; /* arrival to be handled; there[i] < 0: its gradient has not begun */
    for (int i = 0; i < g->n; i++) there[i] = -1;
    for (;;) {
        for (; next < g->n && there[next] >= 0 && !g->at[next].commits; next++)
            end[next] = fmax(next > 0 ? end[next - 1] : 0, there[next]);
        if (next == g->n) return end[g->n - 1];
        int t = 0;
        for (int i = 1; i < n; i++)
            if (at[i] < at[t]) t = i;
        double later = one && t > 0 ? at[0] : INFINITY;
        if (there[next] >= 0 && (t == 0 || !one)) {
            double ready = fmax(next > 0 ? end[next - 1] : 0, there[next]);
            if (ready <= at[t]) {
                at[t] = end[next++] = at[t] + cost.commit;
                continue;
            }
            later = ready;
        }
        int i = next;
        for (; i < g->n; i++) {
            if (there[i] >= 0 || g->at[i].after >= next) continue;
            double ready = g->at[i].after < 0 ? 0 : end[g->at[i].after];
            if (ready <= at[t]) break;
            later = fmin(later, ready);
        }
        at[t] = i < g->n ? (there[i] = at[t] + cost.gradient) : later;
    }
}

/* --- runs ----------------------------------------------------------------------------------- */

struct inside_run {
    double seconds;
    struct inside_cost cost;
};

static struct inside_run inside_run(pl_setup *s, int n_threads) {
    pl_run *run;
    char text[16];
    snprintf(text, sizeof text, "%d", n_threads);
    bench_need(pl_setup_set(s, "threads", text) == PL_OK, pl_setup_why(s));
    inside.gradient_ns = inside.n_gradients = 0;
    inside.commit = inside.n_commits = 0;
    bench_need(pl_simulate(s, &run) == PL_OK, pl_setup_why(s));
    pl_run_free(run);
    return (struct inside_run){
        .seconds = inside.last - inside.first,
        .cost = {1e-9 * (double)inside.gradient_ns / (double)inside.n_gradients,
                 inside.commit / inside.n_commits}};
}

static void inside_method(const char *method, const char *updates, const char *log) {
    const char *option[][2] = {
        {"method", method},    {"delay", "exp:mean=1"},
        {"workers", "8"},      {"model", "mlp:hidden=256"},
        {"batch", "128"},      {"data", "digits:side=28,samples=4096,test=0"},
        {"lr", "0.01"},        {"eval-every", "1e9"},
        {"eval-samples", "1"}, {"updates", updates}};
    static struct inside_graph g;
    struct inside_run best[INSIDE_COUNTS];
    int n = 0; /* numbers of threads that there are cores for: 1, 2, 4, … */
    pl_setup *s;
    bench_need(pl_setup_new(&s) == PL_OK, "out of memory");
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        bench_need(pl_setup_set(s, option[i][0], option[i][1]) == PL_OK, pl_setup_why(s));
    bench_need(pl_setup_set(s, "events", log) == PL_OK, pl_setup_why(s));
    inside_run(s, 1);
    inside_read(log, &g);
    remove(log);
    bench_need(pl_setup_set(s, "events", "") == PL_OK, pl_setup_why(s));
    while (n < INSIDE_COUNTS && 1 << n <= pl_cores()) n++;
    for (int r = 0; r < INSIDE_REPEATS; r++)
        for (int k = 0; k < n; k++) {
            struct inside_run run = inside_run(s, 1 << k);
            if (r == 0 || run.seconds < best[k].seconds) best[k] = run;
        }
    pl_setup_free(s);
    struct inside_cost alone = best[0].cost;
    double work = inside_work(&g, alone);
    for (int k = 0; k < INSIDE_COUNTS; k++) {
        printf("%-7s %7d %8.2f %8.2f", method, 1 << k,
               work / inside_schedule(&g, alone, 1 << k, false),
               work / inside_schedule(&g, alone, 1 << k, true));
        if (k < n)
            printf(" %8.2f %8.2f %8.3f %9.3f %9.3f",
                   work / inside_schedule(&g, best[k].cost, 1 << k, true),
                   best[0].seconds / best[k].seconds, 1e3 * best[k].seconds / g.n,
                   1e3 * best[k].cost.gradient, 1e3 * best[k].cost.commit);
        printf("\n");
    }
    printf("%-7s     any %8.2f  %d gradients and %d commits, %.0f %% of the time on one thread\n\n",
           method, work / inside_chain(&g, alone), g.n, g.n_commits, 100 * work / best[0].seconds);
    fflush(stdout);
}

int main(void) {
    char folder[] = "/tmp/paceline-inside-XXXXXX", log[64];
    bench_need(mkdtemp(folder) != NULL, "no folder could be made in /tmp");
    snprintf(log, sizeof log, "%s/events", folder);
    bench_begin();
    printf("one simulated run, mlp 784-256-10, batch of 128, %d workers, the fastest of %d; ms\n"
           "%-7s %7s %8s %8s %8s %8s %8s %9s %9s\n",
           INSIDE_WORKERS, INSIDE_REPEATS, "method", "threads", "allowed", "one com.", "slowed",
           "speed-up", "per grad", "gradient", "commit");
    inside_method("async", "240", log);
    inside_method("sync", "30", log);
    rmdir(folder);
    return 0;
}
