/* The real run: what one update costs, and what it is worth.
 *
 * Workers here answer at once (their gradient is what lies in their slot), so that all that is left
 * is the run itself: telling, answering, reducing, stepping. Processes over shared memory, as
 * `paceline train` runs them. Peers are timed in turn with it: the machine's own w' = w - a g on as
 * many threads and as many vectors, Open MPI's all-reduce and Gloo's over the same bytes,
 * synchronous SGD. */
#include <math.h>
#include <paceline.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"
#include "core/store.h"
#include "limits.h"
#include "sys/pool.h"

#define BENCH_DIM 10000000
#define BENCH_REPEATS 3

/* --- runs -------------------------------------------------------------------------------- */

static int bench_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                          double *loss) {
    (void)ctx;
    (void)w;
    (void)s;
    (void)g; /* finite, whatever it is */
    *loss = 1;
    return 0;
}

static void bench_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                        uint32_t *n_right) {
    (void)ctx;
    (void)w;
    (void)s;
    *loss += 1;
    *n_right += 0;
}

/* Slow workers are what (c) is about, and everybody waits for a core in (e). */
static void bench_say(void *ctx, int warning, const char *sentence) {
    (void)ctx;
    (void)warning;
    if (!strstr(sentence, "is slow")) fprintf(stderr, "benchmark: %s\n", sentence);
}

/* Where a run was when half of its time was over and every worker had had several turns: memory is
 * touched for the first time before. */
struct bench_half {
    double when, least; /* seconds, updates */
    double time, updates;
};

static int bench_tick(void *ctx, const struct pl_point *p) {
    struct bench_half *h = ctx;
    if (h->updates == 0 && p->time >= h->when && (double)p->updates >= h->least) {
        h->time = p->time;
        h->updates = (double)p->updates;
    }
    return 0;
}

/* "key=value key=value …"; dim 0: the setup's own model. */
static pl_run *bench_train(size_t dim, const char *options, struct bench_half *half) {
    struct pl_function f = {.dim = dim, .gradient = bench_gradient, .score = bench_score};
    char text[1000], *rest = text;
    pl_setup *s;
    pl_run *run = NULL;
    bench_need(!pl_setup_new(&s), "out of memory");
    pl_setup_log(s, bench_say, NULL);
    if (half) pl_setup_watch(s, NULL, bench_tick, half);
    snprintf(text, sizeof text, "%s", options);
    for (char *one; (one = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(one, '=');
        if (!value) continue;
        *value = '\0';
        bench_need(!pl_setup_set(s, one, value + 1), pl_setup_why(s));
    }
    if (dim) bench_need(!pl_setup_function(s, &f), pl_setup_why(s));
    bench_need(!pl_train(s, &run), pl_setup_why(s));
    pl_setup_free(s);
    return run;
}

/* Seconds per update, timed in the second half of a run. A run with too few updates is repeated at
 * twice the length, up to a minute; NAN if that is not enough. */
static double bench_update(const char *method, int workers, size_t dim, double seconds) {
    for (; seconds < 60; seconds *= 2) {
        char options[200];
        struct bench_half half = {.when = seconds / 2, .least = 3 * workers};
        snprintf(options, sizeof options, "method=%s workers=%d time=%g eval-every=1000 lr=1e-6",
                 method, workers, seconds);
        pl_run *run = bench_train(dim, options, &half);
        double time = pl_run_number(run, "time") - half.time;
        double updates = pl_run_number(run, "updates") - half.updates;
        pl_run_free(run);
        if (half.updates > 0 && updates >= 4) return time / updates;
    }
    return NAN;
}

/* The median of a few; NAN if any is. Sorts t. */
static double bench_middle(double *t) {
    for (int i = 0; i < BENCH_REPEATS; i++)
        if (isnan(t[i])) return NAN;
    return bench_median(t, BENCH_REPEATS);
}

/* --- the machine's own rate -------------------------------------------------------------- */

#define BENCH_ASYNC 2 /* workers of (a) */
/* What lives in such a run: the newest version, the next, and the one that each worker started
 * from; a gradient for each worker, and the one that is taken. */
#define BENCH_VERSIONS (BENCH_ASYNC + 2)
#define BENCH_GRADIENTS (BENCH_ASYNC + 1)
#define BENCH_STEPS 23

struct bench_step {
    float *version[BENCH_VERSIONS], *gradient[BENCH_GRADIENTS];
    const float *w, *g;
    float *next;
};

static void bench_step_tile(void *arg, int tile, int thread) {
    const struct bench_step *v = arg;
    size_t from, n;
    (void)thread;
    pl_tile(BENCH_DIM, tile, &from, &n);
    bench_triad(v->next + from, v->w + from, v->g + from, 1e-6f, n);
}

/* Median seconds of w' = w - a g on all cores, version after version and gradient after gradient,
 * so that no cache holds more of them than it does in the run. */
static double bench_limit(struct bench_step *v, struct pl_pool *pool) {
    double t[BENCH_STEPS];
    for (int i = -8; i < BENCH_STEPS; i++) {
        int at = i + 8;
        v->w = v->version[at % BENCH_VERSIONS];
        v->next = v->version[(at + 1) % BENCH_VERSIONS];
        v->g = v->gradient[at % BENCH_GRADIENTS];
        double start = bench_now();
        pl_pool_each(pool, PL_TILES, bench_step_tile, v);
        if (i >= 0) t[i] = bench_now() - start;
    }
    return bench_median(t, BENCH_STEPS);
}

/* (a) What an update cannot avoid: the gradient and the model are read and the next model is
 * written, 12 bytes per parameter, as many as the limit's. */
static void bench_async(void) {
    struct bench_step v;
    struct pl_pool *pool;
    double limits[BENCH_REPEATS], updates[BENCH_REPEATS];
    for (int i = 0; i < BENCH_VERSIONS; i++) v.version[i] = bench_floats(BENCH_DIM);
    for (int i = 0; i < BENCH_GRADIENTS; i++) v.gradient[i] = bench_floats(BENCH_DIM);
    bench_need(!pl_pool_new(pl_cores(), &pool), "out of memory");
    for (int i = 0; i < BENCH_REPEATS; i++) {
        limits[i] = bench_limit(&v, pool);
        updates[i] = bench_update("async", BENCH_ASYNC, BENCH_DIM, 4);
    }
    double limit = bench_middle(limits);
    double update = bench_middle(updates);
    printf("(a) asynchronous updates of %d parameters, %d workers, %d threads\n", BENCH_DIM,
           BENCH_ASYNC, pl_cores());
    printf("    %.2f ms an update, %.1f GB/s; w' = w - a g over %d versions and %d gradients "
           "%.2f ms, %.1f GB/s; ratio %.2f\n",
           update * 1e3, 12e-9 * BENCH_DIM / update, BENCH_VERSIONS, BENCH_GRADIENTS, limit * 1e3,
           12e-9 * BENCH_DIM / limit, limit / update);
    fflush(stdout);
    bench_row("run.async", update * 1e3, "ms", "w - a g", limit * 1e3, limit / update);
    pl_pool_free(pool);
    for (int i = 0; i < BENCH_VERSIONS; i++) free(v.version[i]);
    for (int i = 0; i < BENCH_GRADIENTS; i++) free(v.gradient[i]);
}

/* --- rounds ------------------------------------------------------------------------------ */

/* Milliseconds that another program prints; NAN if it is not there or fails. */
static double bench_peer(const char *format, int workers) {
    char command[400], line[200];
    double ms = NAN;
    snprintf(command, sizeof command, format, workers, BENCH_DIM);
    FILE *f = popen(command, "r");
    if (!f) return NAN;
    while (fgets(line, sizeof line, f)) {
        char *end;
        double x = strtod(line, &end);
        if (end != line && x > 0) ms = x;
    }
    return pclose(f) == 0 ? ms : NAN; /* an error message may begin with a number */
}

static void bench_round_size(int processes, const char *mpi, const char *gloo) {
    double ours[BENCH_REPEATS], a[BENCH_REPEATS], b[BENCH_REPEATS];
    char key[32];
    for (int i = 0; i < BENCH_REPEATS; i++) {
        ours[i] = 1e3 * bench_update("sync", processes, BENCH_DIM, 3);
        a[i] = bench_peer(mpi, processes);
        b[i] = bench_peer(gloo, processes);
    }
    double mine = bench_middle(ours);
    double t_mpi = bench_middle(a), t_gloo = bench_middle(b);
    double better = fmin(t_mpi, t_gloo); /* of the one that is there */
    printf("    %10d %10.2f %10.2f %10.2f %10.2f\n", processes, mine, t_mpi, t_gloo, mine / better);
    fflush(stdout);
    snprintf(key, sizeof key, "run.round.%d", processes);
    if (isnan(better))
        bench_missing(key, "neither Open MPI nor PyTorch with Gloo is installed");
    else
        bench_row(key, mine, "ms", better == t_mpi ? "Open MPI" : "Gloo", better, mine / better);
}

/* (b) All send 40 MB, all have the sum (here: the stepped model) afterwards. */
static void bench_round(void) {
    char mpi[300], gloo[300];
    const char *here = getenv("BENCH_PEERS"); /* where the peers are; scripts/bench sets them */
    const char *scripts = getenv("BENCH_SCRIPTS");
    snprintf(mpi, sizeof mpi,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
             "--mca btl self,vader -n %%d %s/peer_mpi %%d 2>/dev/null",
             here ? here : "build/bench");
    snprintf(gloo, sizeof gloo,
             "for p in python3 /usr/bin/python3; do $p -c 'import torch' && exec $p "
             "%s/peer_gloo.py %%d %%d; done 2>/dev/null",
             scripts ? scripts : "bench");
    printf("(b) a synchronous round of %d MB, milliseconds\n", BENCH_DIM / 250000);
    printf("    %10s %10s %10s %10s %10s\n", "processes", "ours", "Open MPI", "Gloo", "of better");
    bench_round_size(2, mpi, gloo);
    bench_round_size(4, mpi, gloo);
}

/* --- what it is worth -------------------------------------------------------------------- */

/* (c) One of four workers is five times slower, by injected delays; time to 85 % on the test set.
 */
static void bench_straggler(void) {
    static const char common[] =
        "data=fashion model=mlp:hidden=64 batch=32 workers=4 lr=0.1 eval-every=0.25 "
        "target-accuracy=0.85 time=200 "
        "delay=3*shiftexp:shift=0.008,mean=0.002|shiftexp:shift=0.04,mean=0.01";
    static const char *const methods[] = {"sync", "abs"};
    double t[2];
    printf("(c) Fashion-MNIST to 85 %%, one worker of four 5 times slower (50 against 10 ms)\n");
    for (int i = 0; i < 2; i++) {
        char options[600];
        double runs[BENCH_REPEATS];
        for (int r = 0; r < BENCH_REPEATS; r++) {
            snprintf(options, sizeof options, "method=%s seed=%d %s", methods[i], r + 1, common);
            pl_run *run = bench_train(0, options, NULL);
            runs[r] = pl_run_number(run, "time_to_target");
            if (isnan(runs[r])) runs[r] = INFINITY;
            pl_run_free(run);
        }
        t[i] = bench_median(runs, BENCH_REPEATS);
        printf("    %-6s %6.2f s to target\n", methods[i], t[i]);
        fflush(stdout);
    }
    printf("    %.2f times faster\n", t[0] / t[1]);
}

static double bench_cpu(void) {
    double sum = 0;
    static const int who[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
    for (int i = 0; i < 2; i++) {
        struct rusage r;
        getrusage(who[i], &r);
        sum += (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
               1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
    }
    return sum;
}

/* (d) A server and four workers that all wait: CPU seconds per second, the start not counted. */
static void bench_idle(void) {
    static const double seconds[] = {1, 6};
    double cpu[2];
    for (int i = 0; i < 2; i++) {
        char options[200];
        snprintf(options, sizeof options,
                 "method=sync workers=4 delay=const:t=100 time=%g eval-every=1000", seconds[i]);
        double before = bench_cpu();
        pl_run_free(bench_train(1000, options, NULL));
        cpu[i] = bench_cpu() - before;
    }
    printf("(d) idle: server and four workers blocked use %.3f %% of a core together\n",
           100 * fmax(0, cpu[1] - cpu[0]) / (seconds[1] - seconds[0]));
    fflush(stdout);
}

/* Whether there is memory for that many workers' vectors: two versions and a slot each. */
static bool bench_fits(int workers, size_t dim) {
    double bytes = 3.2 * (workers + 2) * 4 * (double)dim;
    return bytes < 0.7 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* (e) Microseconds per asynchronous update. */
static void bench_growth(void) {
    static const int workers[] = {2, 8, 16, 64};
    static const size_t dims[] = {1000, 100000, BENCH_DIM};
    double t[4][BENCH_REPEATS], median[4];
    printf("(e) microseconds per asynchronous update, workers across\n    %10s", "parameters");
    for (int i = 0; i < 4; i++) printf(" %9d", workers[i]);
    putchar('\n');
    for (int d = 0; d < 3; d++) {
        if (!bench_fits(64, dims[d])) {
            printf("    %10zu needs more memory than there is\n", dims[d]);
            bench_missing("run.growth", "too little memory for 64 workers");
            continue;
        }
        for (int r = 0; r < BENCH_REPEATS; r++)
            for (int i = 0; i < 4; i++)
                t[i][r] = bench_update("async", workers[i], dims[d],
                                       dims[d] < 1000000 ? 1
                                       : workers[i] < 64 ? 3
                                                         : 12);
        printf("    %10zu", dims[d]);
        for (int i = 0; i < 4; i++) {
            median[i] = bench_middle(t[i]);
            printf(" %9.1f", 1e6 * median[i]);
        }
        putchar('\n');
        fflush(stdout);
        if (dims[d] == BENCH_DIM)
            bench_row("run.growth", 1e3 * median[3], "ms", "2 workers", 1e3 * median[0],
                      median[3] / median[0]);
    }
}

/* The parts whose letters are given, as in bench_run ac; all but (c), which takes five minutes, if
 * none are. */
int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "abde";
    bench_begin();
    if (strchr(which, 'a')) bench_async();
    if (strchr(which, 'b')) bench_round();
    if (strchr(which, 'c')) bench_straggler();
    if (strchr(which, 'd')) bench_idle();
    if (strchr(which, 'e')) bench_growth();
    return 0;
}
