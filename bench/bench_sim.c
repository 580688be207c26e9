/* What the simulator costs.
 *
 * Timing alone: nanoseconds per task of a run without a model, against a bare push and pop on the
 * same event heap with as many entries, no decision, no random number and no bookkeeping. Beside
 * it the growth with the number of workers, against that of log P, and the peak memory of a
 * process that simulates 100,000 workers.
 *
 * With a model: the time of a run against as many bare tasks (draw and gather a mini-batch,
 * gradient) and as many bare gradients (of one ready mini-batch). What the run does besides (find
 * the weights of another version, look for what is not finite, commit, decide) is the overhead.
 * Evaluation is cut down to one sample at the start and one at the end. */
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/heap.h"
#include "bench.h"
#include "model/model.h"
#include "sys/pool.h"

#define BENCH_TASKS 1000000 /* of a run without a model */
#define BENCH_TIMING_REPEATS 7
#define BENCH_MODEL_REPEATS 7
#define BENCH_THREADS_MAX 64

/* --- runs -------------------------------------------------------------------------------- */

struct bench_option {
    const char *key, *value;
};

static pl_setup *bench_setup(const struct bench_option *option) {
    pl_setup *s;
    bench_need(pl_setup_new(&s) == PL_OK, "out of memory");
    for (; option->key; option++)
        bench_need(pl_setup_set(s, option->key, option->value) == PL_OK, pl_setup_why(s));
    return s;
}

static void bench_set(pl_setup *s, const char *key, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.0f", value);
    bench_need(pl_setup_set(s, key, text) == PL_OK, pl_setup_why(s));
}

/* Seconds of one run; *number is what came of it under that name. */
static double bench_simulate(pl_setup *s, const char *name, double *number) {
    pl_run *run;
    double start = bench_now();
    bench_need(pl_simulate(s, &run) == PL_OK, pl_setup_why(s));
    double seconds = bench_now() - start;
    *number = pl_run_number(run, name);
    pl_run_free(run);
    return seconds;
}

/* --- timing alone ------------------------------------------------------------------------ */

#define BENCH_DELAYS 4096 /* ready-made, for the bare heap; a power of two */

/* Nanoseconds of one pop and one push on a heap of n_workers entries. */
static double bench_heap(int n_workers) {
    static uint64_t delay[BENCH_DELAYS];
    struct pl_heap heap = {0};
    struct pl_rng rng;
    pl_rng_init(&rng, 1, PL_STREAM_TEST, 0, 0);
    for (int i = 0; i < BENCH_DELAYS; i++) delay[i] = (uint64_t)(1e9 * pl_rng_exp(&rng));
    for (int i = 0; i < n_workers; i++)
        bench_need(!pl_heap_push(&heap, (uint64_t)(1e9 * pl_rng_exp(&rng)), 0, i, 0),
                   "out of memory");
    double start = bench_now();
    for (int i = 0; i < BENCH_TASKS; i++) {
        struct pl_timed t = pl_heap_pop(&heap);
        pl_heap_push(&heap, t.when_ns + delay[i % BENCH_DELAYS], t.what, t.who, t.task + 1);
    }
    double seconds = bench_now() - start;
    pl_heap_free(&heap);
    return seconds / BENCH_TASKS * 1e9;
}

static pl_setup *bench_timing_setup(const char *policy, int n_workers, double per_update) {
    const struct bench_option option[] = {
        {"policy", policy}, {"delay", "exp:mean=1"}, {"model", "none"}, {NULL, NULL}};
    pl_setup *s = bench_setup(option);
    bench_set(s, "workers", n_workers);
    bench_set(s, "updates", ceil(BENCH_TASKS / per_update));
    return s;
}

/* One row; returns nanoseconds per task. `per_update`: tasks that one update starts; at_8: the time
 * with 8 workers, NAN if this is it, 0 if growth is not of interest. */
static double bench_timing(const char *policy, int n_workers, double per_update, double at_8) {
    double run[BENCH_TIMING_REPEATS], heap[BENCH_TIMING_REPEATS], tasks;
    pl_setup *s = bench_timing_setup(policy, n_workers, per_update);
    for (int i = -1; i < BENCH_TIMING_REPEATS; i++) {
        double t_heap = bench_heap(n_workers);
        double t_run = bench_simulate(s, "tasks.started", &tasks);
        if (i < 0) continue;
        heap[i] = t_heap;
        run[i] = t_run / tasks * 1e9;
    }
    pl_setup_free(s);
    double t_run = bench_median(run, BENCH_TIMING_REPEATS);
    double t_heap = bench_median(heap, BENCH_TIMING_REPEATS);
    printf("%-21s %8d %10.2f %8.0f %10.0f %8.1f", policy, n_workers, 1e3 / t_run, t_run, t_heap,
           t_run / t_heap);
    if (at_8 > 0) printf(" %8.2f %8.2f", t_run / at_8, log(n_workers) / log(8));
    printf("\n");
    fflush(stdout);
    if (isnan(at_8)) { /* the first row */
        bench_row("sim.task.ns", t_run, "ns", "100 ns", 100, t_run / 100);
        bench_row("sim.task.heap", t_run, "ns", "heap", t_heap, t_run / t_heap);
    }
    return t_run;
}

static void bench_timings(void) {
    static const int n_workers[] = {8, 100, 1000, 10000, 100000};
    static const struct {
        const char *policy;
        double per_update; /* 0: one per worker */
    } other[] = {
        {"kbatchasync:k=8", 8},
        {"ksync:k=50%", 0},
        {"ksync:k=50%,cancel=no", 0},
    };
    printf("\ntiming alone, exponential delays, %d tasks, medians of %d\n", BENCH_TASKS,
           BENCH_TIMING_REPEATS);
    printf("%-21s %8s %10s %8s %10s %8s %8s %8s\n", "policy", "workers", "Mtasks/s", "ns/task",
           "heap ns", "ratio", "growth", "of log");
    double at_8 = 0;
    for (size_t i = 0; i < sizeof n_workers / sizeof *n_workers; i++) {
        double t = bench_timing("kasync:k=1", n_workers[i], 1, at_8 > 0 ? at_8 : NAN);
        if (i == 0) at_8 = t;
    }
    for (size_t p = 0; p < sizeof other / sizeof *other; p++)
        for (size_t i = 0; i < sizeof n_workers / sizeof *n_workers; i += 2)
            bench_timing(other[p].policy, n_workers[i],
                         other[p].per_update > 0 ? other[p].per_update : n_workers[i], 0);
}

/* Peak memory in MB of a child that runs it; called before this process has grown. */
static void bench_memory(const char *policy, double updates) {
    pid_t child = fork();
    bench_need(child >= 0, "cannot fork");
    if (child == 0) {
        double tasks;
        pl_setup *s = bench_timing_setup(policy, 100000, 1);
        bench_set(s, "updates", updates);
        bench_simulate(s, "tasks.started", &tasks);
        pl_setup_free(s);
        _exit(0);
    }
    int status;
    struct rusage use;
    bench_need(wait4(child, &status, 0, &use) == child && status == 0, "a child failed");
    printf("%-21s %8d %8.0f\n", policy, 100000, (double)use.ru_maxrss / 1024);
    fflush(stdout);
}

/* --- with a model --------------------------------------------------------------------- */

#define BENCH_BATCH 128

struct bench_case {
    const char *method, *model, *data;
    int updates;
    const char *key; /* of its rows in the summary, less the number of threads; NULL: none */
};

static const struct bench_case bench_cases[] = {
    {"async", "mlp:hidden=256", "digits:side=28,samples=4096,test=0", 240, "sim.mlp"},
    {"gap-aware", "mlp:hidden=256", "digits:side=28,samples=4096,test=0", 240, "sim.gap"},
    {"async", "cnn:filters=8,16,dense=64", "digits:samples=4096,test=0", 60, NULL},
};

/* What it takes to compute gradients without a simulator. */
struct bench_bare {
    struct pl_data *data;
    struct pl_partition *partition;
    struct pl_model *model;
    float *w;
    struct { /* of one thread */
        float *x, *g, *scratch;
        uint16_t label[BENCH_BATCH];
        uint32_t index[BENCH_BATCH];
    } desk[BENCH_THREADS_MAX + 1];
};

static void bench_gradient(void *arg, int i, int thread) {
    struct bench_bare *b = arg;
    struct pl_batch batch = {
        .n = BENCH_BATCH, .x = b->desk[thread].x, .label = b->desk[thread].label};
    double loss;
    (void)i;
    b->model->kind->gradient(b->model, b->w, &batch, b->desk[thread].g, &loss,
                             b->desk[thread].scratch, NULL);
}

/* With a mini-batch of its own. */
static void bench_task(void *arg, int i, int thread) {
    struct bench_bare *b = arg;
    uint32_t *index = b->desk[thread].index;
    pl_partition_draw(b->partition, PL_SAMPLE_IID, 1, 0, (uint64_t)i, BENCH_BATCH, index);
    pl_data_rows(b->data, false, index, BENCH_BATCH, b->desk[thread].x, b->desk[thread].label);
    bench_gradient(arg, i, thread);
}

static void bench_bare_open(struct bench_bare *b, const struct bench_case *c, int n_threads) {
    struct pl_why why;
    bench_need(!pl_data_open(c->data, 1, &b->data, &why), why.text);
    bench_need(!pl_partition_open("whole", b->data, 1, 1, &b->partition, &why), why.text);
    bench_need(!pl_model_open(c->model, b->data, &b->model, &why), why.text);
    b->w = bench_floats(b->model->dim);
    b->model->kind->init(b->model, 1, b->w);
    for (int t = 0; t <= n_threads; t++) {
        b->desk[t].x = bench_floats((size_t)BENCH_BATCH * b->data->dim);
        b->desk[t].g = bench_floats(b->model->dim);
        b->desk[t].scratch = bench_floats(b->model->kind->scratch(b->model, BENCH_BATCH));
        bench_task(b, 0, t);
    }
}

static void bench_bare_close(struct bench_bare *b, int n_threads) {
    for (int t = 0; t <= n_threads; t++) {
        free(b->desk[t].x);
        free(b->desk[t].g);
        free(b->desk[t].scratch);
    }
    free(b->w);
    pl_model_close(b->model);
    pl_partition_free(b->partition);
    pl_data_free(b->data);
}

/* Milliseconds per bare gradient or task, on all threads of the pool. */
static double bench_bare_run(struct bench_bare *b, struct pl_pool *pool, int n,
                             void (*job)(void *arg, int i, int thread)) {
    double start = bench_now();
    pl_pool_each(pool, n, job, b);
    return (bench_now() - start) * 1e3 / n;
}

/* One row. What a run costs before its first update is measured by a run of one and left out. Times
 * are per gradient computed: on several threads the last few are computed ahead in vain. */
static void bench_overhead(const struct bench_case *c, int n_threads, double *alone) {
    const struct bench_option option[] = {
        {"method", c->method}, {"workers", "8"}, {"delay", "exp:mean=1"}, {"model", c->model},
        {"data", c->data},     {"batch", "128"}, {"lr", "0.01"},          {"eval-every", "1e9"},
        {"eval-samples", "1"}, {NULL, NULL}};
    static struct bench_bare bare;
    double run[BENCH_MODEL_REPEATS], task[BENCH_MODEL_REPEATS], gradient[BENCH_MODEL_REPEATS];
    double begin[BENCH_MODEL_REPEATS], n_begin, n_run;
    struct pl_pool *pool;
    pl_setup *s = bench_setup(option);
    bench_set(s, "threads", n_threads);
    bench_bare_open(&bare, c, n_threads);
    bench_need(!pl_pool_new(n_threads, &pool), "out of memory");
    for (int i = -1; i < BENCH_MODEL_REPEATS; i++) {
        double t_gradient = bench_bare_run(&bare, pool, c->updates, bench_gradient);
        double t_task = bench_bare_run(&bare, pool, c->updates, bench_task);
        bench_set(s, "updates", 1);
        double t_begin = bench_simulate(s, "gradients_computed", &n_begin) * 1e3;
        bench_set(s, "updates", 1 + c->updates);
        double t_run = bench_simulate(s, "gradients_computed", &n_run) * 1e3;
        if (i < 0) continue;
        gradient[i] = t_gradient;
        task[i] = t_task;
        begin[i] = t_begin;
        run[i] = (t_run - t_begin) / (n_run - n_begin);
    }
    pl_pool_free(pool);
    bench_bare_close(&bare, n_threads);
    pl_setup_free(s);
    double t_run = bench_median(run, BENCH_MODEL_REPEATS);
    double t_task = bench_median(task, BENCH_MODEL_REPEATS);
    double t_gradient = bench_median(gradient, BENCH_MODEL_REPEATS);
    if (n_threads == 1) *alone = t_run;
    printf("%-10s %.3s %7d %7.1f %9.3f %7.3f %8.1f%% %9.3f %8.1f%% %8.2f\n", c->method, c->model,
           n_threads, bench_median(begin, BENCH_MODEL_REPEATS), t_run, t_task,
           100 * (t_run / t_task - 1), t_gradient, 100 * (t_run / t_gradient - 1), *alone / t_run);
    fflush(stdout);
    if (c->key && n_threads <= 2) {
        char key[64];
        snprintf(key, sizeof key, "%s.%d", c->key, n_threads);
        bench_row(key, t_run, "ms", "bare gradients", t_gradient, t_run / t_gradient);
    }
}

int main(void) {
    bench_begin();
    printf("peak memory of the process, MB\n%-21s %8s %8s\n", "policy", "workers", "MB");
    bench_memory("kasync:k=1", 1000000);
    bench_memory("kbatchasync:k=8", 100000);
    bench_memory("ksync:k=50%", 30);
    bench_memory("ksync:k=1", 30);
    bench_timings();

    int n_cores = pl_cores() < BENCH_THREADS_MAX ? pl_cores() : BENCH_THREADS_MAX;
    printf("\nbatch of %d, medians of %d; start in ms, all else in ms per gradient\n", BENCH_BATCH,
           BENCH_MODEL_REPEATS);
    printf("%-14s %7s %7s %9s %7s %9s %9s %9s %8s\n", "method, model", "threads", "start",
           "simulate", "task", "overhead", "gradient", "overhead", "speedup");
    for (size_t i = 0; i < sizeof bench_cases / sizeof *bench_cases; i++) {
        double alone = NAN;
        bench_overhead(&bench_cases[i], 1, &alone);
        if (n_cores > 1) bench_overhead(&bench_cases[i], 2, &alone);
        if (n_cores > 2) bench_overhead(&bench_cases[i], n_cores, &alone);
    }
    if (n_cores < 2) {
        bench_missing("sim.mlp.2", "there is one core");
        bench_missing("sim.gap.2", "there is one core");
    }
    return 0;
}
