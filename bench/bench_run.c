/* The real run: what one update costs, and what it is worth.
 *
 * Workers here answer at once (their gradient is what lies in their slot), so that all that is left
 * is the run itself: telling, answering, reducing, stepping. Processes over shared memory, as
 * `paceline train` runs them. Peers are timed in the same run: the machine's own y = y + a x on as
 * many threads, Open MPI's all-reduce and Gloo's over the same bytes, synchronous SGD. */
#include <math.h>
#include <paceline.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"
#include "core/store.h"
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

/* Where a run was when half of its time was over: memory is touched for the first time before. */
struct bench_half {
    double when, time, updates;
};

static int bench_tick(void *ctx, const struct pl_point *p) {
    struct bench_half *h = ctx;
    if (h->updates == 0 && p->time >= h->when) {
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

/* Seconds per update in the second half of a run of so many seconds: the median of a few. */
static double bench_update(const char *method, int workers, size_t dim, double seconds) {
    double t[BENCH_REPEATS];
    char options[200];
    snprintf(options, sizeof options, "method=%s workers=%d time=%g eval-every=1000 lr=1e-6",
             method, workers, seconds);
    for (int i = 0; i < BENCH_REPEATS; i++) {
        struct bench_half half = {.when = seconds / 2};
        pl_run *run = bench_train(dim, options, &half);
        t[i] = (pl_run_number(run, "time") - half.time) /
               (pl_run_number(run, "updates") - half.updates);
        pl_run_free(run);
    }
    return bench_median(t, BENCH_REPEATS);
}

/* --- the machine's own rate -------------------------------------------------------------- */

struct bench_axpy {
    float *x, *y;
};

static void bench_axpy_tile(void *arg, int tile, int thread) {
    const struct bench_axpy *v = arg;
    size_t from, n;
    (void)thread;
    pl_tile(BENCH_DIM, tile, &from, &n);
    float *restrict y = v->y + from;
    const float *restrict x = v->x + from;
    for (size_t i = 0; i < n; i++) y[i] += 1e-6f * x[i];
}

static double bench_axpy(void) {
    struct bench_axpy v = {bench_floats(BENCH_DIM), bench_floats(BENCH_DIM)};
    struct pl_pool *pool;
    double t[31];
    bench_need(!pl_pool_new(pl_cores(), &pool), "out of memory");
    for (int i = -3; i < 31; i++) {
        double start = bench_now();
        pl_pool_each(pool, PL_TILES, bench_axpy_tile, &v);
        if (i >= 0) t[i] = bench_now() - start;
    }
    pl_pool_free(pool);
    free(v.x);
    free(v.y);
    return bench_median(t, 31);
}

/* (a) Every update reads the gradient and the model and writes the model, 12 bytes a parameter, as
 * many as y = y + a x; and its worker reads the gradient once, to see that it is finite: 4 more. */
static void bench_async(void) {
    double axpy = bench_axpy(), update = bench_update("async", 2, BENCH_DIM, 4);
    double rate = 16e-9 * BENCH_DIM / update, limit = 12e-9 * BENCH_DIM / axpy;
    printf("(a) asynchronous updates of %d parameters, 2 workers, %d threads\n", BENCH_DIM,
           pl_cores());
    printf("    %.2f ms an update, %.1f GB/s; y = y + a x %.2f ms, %.1f GB/s; ratio %.2f\n",
           update * 1e3, rate, axpy * 1e3, limit, rate / limit);
    fflush(stdout);
}

/* --- rounds ------------------------------------------------------------------------------ */

/* Milliseconds that another program prints; NAN where it is not there. */
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
    pclose(f);
    return ms;
}

/* (b) All send 40 MB, all have the sum (here: the stepped model) afterwards. */
static void bench_round(void) {
    char mpi[300], gloo[300];
    const char *here = getenv("BENCH_PEERS"); /* where the peers are; make bench says */
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
    static const int sizes[] = {2, 4};
    for (int i = 0; i < 2; i++) {
        double ours = 1e3 * bench_update("sync", sizes[i], BENCH_DIM, 4);
        double a = bench_peer(mpi, sizes[i]), b = bench_peer(gloo, sizes[i]);
        double better = fmin(isnan(a) ? INFINITY : a, isnan(b) ? INFINITY : b);
        printf("    %10d %10.2f %10.2f %10.2f %10.2f\n", sizes[i], ours, a, b, ours / better);
        fflush(stdout);
    }
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

/* (e) Microseconds per asynchronous update. */
static void bench_growth(void) {
    static const int workers[] = {2, 8, 16, 64};
    static const size_t dims[] = {1000, 100000, 10000000};
    printf("(e) microseconds per asynchronous update, workers across\n    %10s", "parameters");
    for (int i = 0; i < 4; i++) printf(" %9d", workers[i]);
    for (int d = 0; d < 3; d++) {
        printf("\n    %10zu", dims[d]);
        for (int i = 0; i < 4; i++) {
            printf(" %9.1f",
                   1e6 * bench_update("async", workers[i], dims[d], dims[d] < 1000000 ? 1 : 4));
            fflush(stdout);
        }
    }
    putchar('\n');
}

int main(void) {
    bench_async();
    bench_round();
    bench_idle();
    bench_growth();
    bench_straggler();
    return 0;
}
