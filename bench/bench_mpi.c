/* Runs on ranks: what MPI itself takes for the same bytes, and what we take.
 *
 * Started alone it starts itself with mpirun, once for every question; there both sides are timed
 * in turn, repetition by repetition, by the same processes. */
#include <math.h>
#include <mpi.h>
#include <paceline.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"
#include "sys/futex.h"
#include "transport/mpi.h"

#define REPEATS 41
#define ROUND_DIM 10000000

/* --- push and pull ------------------------------------------------------------------------ */

static void bare_round(int rank, float *a, float *b, int n) {
    if (rank == 0) {
        MPI_Send(a, n, MPI_FLOAT, 1, 7, MPI_COMM_WORLD);
        MPI_Recv(b, n, MPI_FLOAT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(a, n, MPI_FLOAT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(b, n, MPI_FLOAT, 0, 7, MPI_COMM_WORLD);
    }
}

/* The server's half: a new version to the worker, its answer back. */
static void our_round(struct pl_port *p, float *version, float *slot, uint64_t task) {
    struct pl_news news = {.kind = PL_NEWS_NONE};
    struct pl_input input = {.v = version, .c = 1, .writer = -1};
    pl_mpi_transport()->port.tell(
        p, 0, &(struct pl_order){.task = task, .n_inputs = 1, .input = &input, .out = slot});
    while (news.kind != PL_NEWS_RESULT) pl_mpi_transport()->port.news(p, PL_FOREVER, &news);
}

static void push_pull_server(int n, double *bare, double *ours) {
    struct pl_port_conf conf = {.n_workers = 1, .dim = (size_t)n, .n_versions = 2, .n_slots = 2};
    struct pl_port *p;
    struct pl_news news = {.kind = PL_NEWS_NONE};
    float *vector[4];
    bench_need(!pl_mpi_transport()->port.open(&conf, &p, NULL), "no port");
    for (int i = 0; i < 4; i++) {
        vector[i] = pl_mpi_transport()->port.vector(p, i < 2 ? -1 : 0);
        for (int j = 0; j < n; j++) vector[i][j] = 1;
    }
    while (news.kind != PL_NEWS_JOINED) pl_mpi_transport()->port.news(p, PL_FOREVER, &news);
    for (int i = -3; i < REPEATS; i++) {
        double start = bench_now();
        bare_round(0, vector[i & 1], vector[2 + (i & 1)], n);
        double middle = bench_now();
        our_round(p, vector[i & 1], vector[2 + (i & 1)], (uint64_t)(i + 4));
        if (i >= 0) bare[i] = middle - start;
        if (i >= 0) ours[i] = bench_now() - middle;
    }
    pl_mpi_transport()->port.shutdown(p, 1000000000);
    pl_mpi_transport()->port.close(p);
}

static void push_pull_worker(int n) {
    struct pl_link *l;
    struct pl_order o;
    int worker;
    float *a = bench_floats((size_t)n), *b = bench_floats((size_t)n);
    bench_need(!pl_mpi_connect(&(struct pl_range){0, (size_t)n}, 1, &l, &worker, NULL), "no link");
    for (int i = -3; i < REPEATS; i++) {
        bare_round(1, a, b, n);
        if (pl_mpi_transport()->link.pull(l, &o)) break;
        pl_mpi_transport()->link.push(l, &(struct pl_result){.task = o.task, .samples = 1});
    }
    pl_mpi_transport()->link.pull(l, &o);
    pl_mpi_transport()->link.detach(l);
    free(a);
    free(b);
}

static void push_pull(int rank) {
    static const int sizes[] = {1000000, 10000000};
    for (int i = 0; i < 2; i++) {
        double bare[REPEATS], ours[REPEATS];
        if (rank == 0)
            push_pull_server(sizes[i], bare, ours);
        else
            push_pull_worker(sizes[i]);
        if (rank != 0) continue;
        double b = bench_median(bare, REPEATS), o = bench_median(ours, REPEATS);
        printf("    %3d MB: %.2f ms; MPI_Send and MPI_Recv %.2f ms, %.1f GB/s; ratio %.2f\n",
               sizes[i] / 250000, 1e3 * o, 1e3 * b, 8e-9 * sizes[i] / b, b / o);
        fflush(stdout);
        if (sizes[i] == ROUND_DIM)
            bench_row("mpi.pushpull", 1e3 * o, "ms", "MPI_Send and MPI_Recv", 1e3 * b, o / b);
    }
}

/* --- rounds ------------------------------------------------------------------------------- */

static int quick_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                          double *loss) {
    (void)ctx;
    (void)w;
    (void)s;
    (void)g; /* finite, whatever it is */
    *loss = 1;
    return 0;
}

/* "key=value …" on all ranks; seconds per update at rank 0. */
static double train(size_t dim, const char *options) {
    struct pl_function f = {.dim = dim, .gradient = quick_gradient};
    char text[400], *rest = text;
    pl_setup *s;
    pl_run *run = NULL;
    bench_need(!pl_setup_new(&s), "out of memory");
    snprintf(text, sizeof text, "%s eval-every=1000 lr=1e-6", options);
    for (char *one; (one = strsep(&rest, " ")) != NULL;) {
        char *value = strchr(one, '=');
        if (!value) continue;
        *value = '\0';
        bench_need(!pl_setup_set(s, one, value + 1), pl_setup_why(s));
    }
    bench_need(!pl_setup_function(s, &f) && !pl_train(s, &run), pl_setup_why(s));
    double t = run ? pl_run_number(run, "time_per_update") : NAN;
    pl_run_free(run);
    pl_setup_free(s);
    return t;
}

/* The workers' all-reduce, rank 0 left out: milliseconds, at rank 0. */
static double all_reduce(int rank) {
    MPI_Comm workers;
    double t[REPEATS / 2], median = 0, most = 0;
    float *v = bench_floats(ROUND_DIM);
    MPI_Comm_split(MPI_COMM_WORLD, rank > 0, rank, &workers);
    for (int i = -2; rank > 0 && i < REPEATS / 2; i++) {
        MPI_Barrier(workers);
        double start = bench_now();
        MPI_Allreduce(MPI_IN_PLACE, v, ROUND_DIM, MPI_FLOAT, MPI_SUM, workers);
        if (i >= 0) t[i] = bench_now() - start;
    }
    if (rank > 0) median = bench_median(t, REPEATS / 2);
    MPI_Reduce(&median, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Comm_free(&workers);
    free(v);
    return 1e3 * most;
}

static void rounds(int rank, int size, bool shared) {
    double ours[3], theirs[3];
    for (int i = 0; i < 3; i++) {
        theirs[i] = all_reduce(rank);
        ours[i] = 1e3 * train(ROUND_DIM, "method=sync time=3");
    }
    if (rank != 0) return;
    double o = bench_median(ours, 3), t = bench_median(theirs, 3);
    printf("    %d workers%s: %.1f ms; MPI_Allreduce %.1f ms; ratio %.2f\n", size - 1,
           shared ? "" : ", vectors sent as between hosts", o, t, o / t);
    if (!shared) return;
    char key[32];
    snprintf(key, sizeof key, "mpi.round.%d", size - 1);
    bench_row(key, o, "ms", "MPI_Allreduce", t, o / t);
}

/* --- idle --------------------------------------------------------------------------------- */

static double cpu_seconds(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* A server that waits, a worker in a long delay, and others that wait for it. */
static void idle(int rank, int size) {
    static const char *const options[] = {"method=sync delay=const:t=100|3*const:t=0.01 time=1",
                                          "method=sync delay=const:t=100|3*const:t=0.01 time=6"};
    double used[2], all[64];
    for (int i = 0; i < 2; i++) {
        double before = cpu_seconds();
        train(1000, options[i]);
        used[i] = cpu_seconds() - before;
    }
    double percent = 100 * fmax(0, used[1] - used[0]) / 5;
    MPI_Gather(&percent, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank != 0) return;
    printf("    server %.2f %%, workers", all[0]);
    for (int i = 1; i < size && i < 64; i++) printf(" %.2f %%", all[i]);
    printf(" of a core\n");
}

/* --- all together ------------------------------------------------------------------------- */

static int as_rank(const char *what) {
    int rank, size;
    bench_need(!pl_mpi_begin(&rank, &size, NULL), "MPI does not begin");
    if (strcmp(what, "push-pull") == 0) push_pull(rank);
    if (strcmp(what, "rounds") == 0) rounds(rank, size, true);
    if (strcmp(what, "rounds-sent") == 0) rounds(rank, size, false);
    if (strcmp(what, "idle") == 0) idle(rank, size);
    fflush(stdout);
    return 0;
}

/* `shared`: ranks share vectors, as they do on one host; otherwise they are sent. */
static void ask(const char *self, int ranks, bool shared, const char *what) {
    char command[600];
    snprintf(command, sizeof command,
             "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PACELINE_MPI_SHARED=%s "
             "mpirun --oversubscribe --bind-to none --mca btl self,vader -n %d %s %s",
             shared ? "yes" : "no", ranks, self, what);
    bench_need(system(command) == 0, "mpirun failed");
}

int main(int argc, char **argv) {
    if (argc > 1) return as_rank(argv[1]);
    bench_begin();
    printf("(a) push and pull of a vector that is sent, one worker\n");
    fflush(stdout);
    ask(argv[0], 2, false, "push-pull");
    printf("(b) a synchronous round of %d MB, workers and a server against workers alone\n",
           ROUND_DIM / 250000);
    fflush(stdout);
    for (int workers = 2; workers <= 4; workers += 2) {
        char options[60];
        snprintf(options, sizeof options, "method=sync time=3 workers=%d", workers);
        ask(argv[0], workers + 1, true, "rounds");
        ask(argv[0], workers + 1, false, "rounds-sent");
        printf("      the same over shared memory, without MPI: %.1f ms\n",
               1e3 * train(ROUND_DIM, options));
        fflush(stdout);
    }
    printf("(c) idle ranks\n");
    fflush(stdout);
    ask(argv[0], 5, true, "idle");
    return 0;
}
