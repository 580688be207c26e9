/* fpsgd against LIBMF on the same ratings: real runs, as `paceline train` does them, and LIBMF's
 * mf-train, which BENCH_LIBMF names. It is not part of Debian, and nothing here builds it; its
 * Makefile says how it is built for AVX, which is what should be compared.
 *
 * Both have k = 40, l2 = 0.05 and the learning rate 0.1 of their adaptive steps. Neither side's
 * first pass counts: it begins from cold caches and changes only a few factors. LIBMF's time is
 * that between the lines it prints, without a validation set; ours has no evaluations either. The
 * test RMSE is that after all passes. Our workers are threads, as LIBMF's are, and prefer a block
 * near their last. */
#include <paceline.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "data/data.h"
#include "sys/pool.h"

#define BENCH_DATA "lowrank:users=40000,items=16000,ratings=5000000,test=0.05"
#define BENCH_PASSES 10 /* that count */
#define BENCH_REPEATS 3

static char bench_folder[250], bench_train_file[300], bench_test_file[300];

/* --- ours -------------------------------------------------------------------------------- */

/* When the first pass was over. */
struct bench_first {
    double time, epochs;
};

static int bench_tick(void *ctx, const struct pl_point *p) {
    struct bench_first *f = ctx;
    if (f->epochs == 0 && p->epochs >= 1) *f = (struct bench_first){p->time, p->epochs};
    return 0;
}

/* Seconds of the passes that count; *rmse is that of the test set. */
static double bench_ours(int threads, double *rmse) {
    char n_workers[16], n_passes[16];
    struct bench_first first = {0};
    pl_setup *s;
    pl_run *run;
    snprintf(n_workers, sizeof n_workers, "%d", threads);
    snprintf(n_passes, sizeof n_passes, "%d", 1 + BENCH_PASSES);
    const char *const option[][2] = {{"method", "fpsgd"},
                                     {"model", "mf:k=40,l2=0.05"},
                                     {"data", BENCH_DATA},
                                     {"lr", "0.1"},
                                     {"workers", n_workers},
                                     {"epochs", n_passes},
                                     {"eval-every", "100000"},
                                     {"transport", "inproc"},
                                     {"policy", "blocks:fine=yes,near=yes"}};
    bench_need(!pl_setup_new(&s), "out of memory");
    pl_setup_watch(s, NULL, bench_tick, &first);
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        bench_need(!pl_setup_set(s, option[i][0], option[i][1]), pl_setup_why(s));
    bench_need(!pl_train(s, &run), pl_setup_why(s));
    double passes = pl_run_number(run, "epochs") - first.epochs;
    double seconds = (pl_run_number(run, "time") - first.time) * BENCH_PASSES / passes;
    const struct pl_point *point;
    size_t n = pl_run_points(run, &point);
    *rmse = n ? sqrt(point[n - 1].test_loss) : NAN;
    pl_run_free(run);
    pl_setup_free(s);
    return seconds;
}

/* --- LIBMF ------------------------------------------------------------------------------- */

static void bench_write(const char *path, const struct pl_rating *r, size_t n) {
    FILE *f = fopen(path, "w");
    bench_need(f != NULL, "a file for LIBMF cannot be written to the folder for temporary files");
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%u %u %.6g\n", r[i].user, r[i].item, (double)r[i].value);
    bench_need(fclose(f) == 0, "a file for LIBMF cannot be written");
}

static void bench_remove(void) {
    unlink(bench_train_file);
    unlink(bench_test_file);
    rmdir(bench_folder);
}

/* The same ratings as text. */
static void bench_files(void) {
    struct pl_data *data;
    struct pl_why why;
    const char *folder = getenv("TMPDIR");
    if (!folder || strlen(folder) > 200) folder = "/tmp";
    snprintf(bench_folder, sizeof bench_folder, "%s/libmf-XXXXXX", folder);
    bench_need(mkdtemp(bench_folder) != NULL, "there can be no folder for temporary files");
    snprintf(bench_train_file, sizeof bench_train_file, "%s/train", bench_folder);
    snprintf(bench_test_file, sizeof bench_test_file, "%s/test", bench_folder);
    bench_need(!pl_data_open(BENCH_DATA, 1, &data, &why), why.text);
    bench_need(atexit(bench_remove) == 0, "out of memory");
    bench_write(bench_train_file, data->ratings->rating, data->ratings->n_train);
    bench_write(bench_test_file, data->ratings->rating + data->ratings->n_train,
                data->ratings->n_test);
    printf("fpsgd against LIBMF, k = 40, %u ratings, %d passes, medians of %d\n",
           data->ratings->n_train, BENCH_PASSES, BENCH_REPEATS);
    fflush(stdout);
    pl_data_free(data);
}

/* Seconds between the line of pass 0 and that of the last; the last number but one of a line is the
 * RMSE of the validation set if there is one. NAN if the program does not print such lines. */
static double bench_libmf(const char *program, int threads, bool validate, double *rmse) {
    char command[1500], line[200];
    double start = NAN, end = NAN;
    snprintf(command, sizeof command,
             "exec '%s' -k 40 -l2 0.05 -r 0.1 -t %d -s %d %s %s %s /dev/null", program,
             1 + BENCH_PASSES, threads, validate ? "-p" : "", validate ? bench_test_file : "",
             bench_train_file);
    FILE *f = popen(command, "r");
    bench_need(f != NULL, "BENCH_LIBMF cannot be started");
    while (fgets(line, sizeof line, f)) {
        int pass;
        double train, test;
        int n = sscanf(line, "%d %lf %lf", &pass, &train, &test);
        if (n < 2) continue;
        if (pass == 0) start = bench_now();
        if (pass == BENCH_PASSES) end = bench_now();
        if (validate && n == 3) *rmse = test;
    }
    pclose(f);
    return end - start;
}

/* --- rows -------------------------------------------------------------------------------- */

static void bench_threads(const char *program, int threads, double *ours_rmse) {
    double ours[BENCH_REPEATS], theirs[BENCH_REPEATS];
    char key[32];
    for (int i = 0; i < BENCH_REPEATS; i++) {
        ours[i] = bench_ours(threads, ours_rmse);
        theirs[i] = bench_libmf(program, threads, false, NULL);
        bench_need(theirs[i] > 0, "BENCH_LIBMF does not print one line per pass, as mf-train does");
    }
    double mine = bench_median(ours, BENCH_REPEATS), other = bench_median(theirs, BENCH_REPEATS);
    printf("%2d threads: %.2f s; LIBMF %.2f s; %.2f times as fast\n", threads, mine, other,
           other / mine);
    fflush(stdout);
    snprintf(key, sizeof key, "mf.libmf.%d", threads);
    bench_row(key, mine, "s", "LIBMF", other, other / mine);
}

int main(void) {
    static const int threads[] = {1, 2, 8};
    const char *program = getenv("BENCH_LIBMF");
    double ours = NAN, theirs = NAN;
    char key[32];
    bench_begin();
    if (!program || !*program) {
        static const char why[] = "BENCH_LIBMF does not name LIBMF's mf-train";
        printf("skipped: %s\n", why);
        for (int i = 0; i < 3; i++) {
            snprintf(key, sizeof key, "mf.libmf.%d", threads[i]);
            bench_missing(key, why);
        }
        bench_missing("mf.libmf.rmse", why);
        return 0;
    }
    bench_need(!strchr(program, '\'') && strlen(program) < 500 && access(program, X_OK) == 0,
               "BENCH_LIBMF does not name a program");
    bench_files();
    for (int i = 0; i < 3; i++) {
        if (threads[i] <= pl_cores()) {
            bench_threads(program, threads[i], &ours);
            continue;
        }
        snprintf(key, sizeof key, "mf.libmf.%d", threads[i]);
        bench_missing(key, "there are too few cores");
    }
    bench_libmf(program, pl_cores() < 8 ? pl_cores() : 8, true, &theirs);
    printf("test RMSE %.4f; LIBMF %.4f\n", ours, theirs);
    bench_row("mf.libmf.rmse", ours, "RMSE", "LIBMF", theirs, ours / theirs);
    return 0;
}
