/* Waits that must end: files that are pipes or bombs, virtual time that stands still, idle times in
 * recordings, and replays that are interrupted. */
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "data/data.h"
#include "recorded.h"

/* --- files -------------------------------------------------------------------------------- */

TEST(pipes_are_refused) {
    char law[300];
    const char *pipe = fresh("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    pl_run *run = NULL;
    pl_setup *s = plain();
    set(s, "script", path("pipe"));
    assert_int_equal(pl_simulate(s, &run), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    set(s, "script", "");
    snprintf(law, sizeof law, "trace:file=%s", path("pipe"));
    set(s, "delay", law);
    assert_int_equal(pl_simulate(s, &run), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    s = plain();
    set(s, "layout", path("pipe"));
    assert_int_equal(pl_train(s, &run), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    snprintf(law, sizeof law, "%s", path("pipe"));
    assert_int_equal(pl_report(s, &(const char *){law}, 1, path("page.html")), PL_EIO);
    assert_non_null(strstr(pl_setup_why(s), "is not a plain file"));
    unlink(path("pipe"));
}

/* The stream is damaged after a megabyte. Who reads the first bytes only does not notice. */
static void write_zeros(const char *to) {
    gzFile gz = gzopen(to, "wb1");
    static const char zeros[1 << 16];
    assert_non_null(gz);
    for (int i = 0; i < 64; i++) assert_true(gzwrite(gz, zeros, sizeof zeros) > 0);
    gzclose(gz);
    struct stat st;
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(truncate(to, st.st_size / 2), 0);
}

TEST(idx_looks_at_the_magic_first) {
    static const char *const name[] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                       "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
    struct pl_data *data = NULL;
    struct pl_why why = {.text = ""};
    char spec[300], dir[200], file[300];
    snprintf(dir, sizeof dir, "%s", fresh("zeros"));
    mkdir(dir, 0700);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", dir, name[i]);
        write_zeros(file);
    }
    snprintf(spec, sizeof spec, "idx:%s", dir);
    assert_int_equal(pl_data_open(spec, 1, &data, &why), PL_EDATA);
    if (!strstr(why.text, "begins with 00000000")) fail_msg("%s", why.text);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", dir, name[i]);
        unlink(file);
    }
    rmdir(dir);
}

/* --- virtual time ------------------------------------------------------------------------- */

static void write_script(const char *to, const char *text) {
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Every buffer needs a gradient, and one belongs to a frozen worker; the others' tasks take no
 * time, so its time never comes. */
TEST(a_frozen_worker_among_fast_ones) {
    pl_run *run = NULL;
    pl_setup *s = plain();
    write_script(fresh("script"), "0 freeze 1 5\n");
    set_all(s, "model=none policy=buffers:b=all workers=4 delay=const:t=0 updates=100");
    set(s, "script", path("script"));
    assert_int_equal(pl_simulate(s, &run), PL_ERUN);
    if (!strstr(pl_setup_why(s), "virtual time stands still")) fail_msg("%s", pl_setup_why(s));
    /* but updates that take no time are none of that */
    s = setup_of("model=none method=async delay=const:t=0 updates=3000000");
    run = simulate(s);
    assert_true(pl_run_number(run, "updates") == 3000000);
}

static atomic_int n_scores;

static int bowl(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss) {
    memcpy(g, w, 3 * sizeof *g);
    *loss = 1;
    return 0;
}

static void score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                  uint32_t *n_right) {
    atomic_fetch_add(&n_scores, 1);
    *loss = 1;
    *n_right = 0;
}

static const struct pl_function counted = {.dim = 3, .gradient = bowl, .score = score};

/* The sync run makes ten updates, and then waits for a worker: longer than any evaluation every
 * interval would end. */
TEST(idle_times_are_skipped) {
    pl_setup *s = plain();
    write_script(fresh("script"), "10.5 freeze 1 900000000\n");
    pl_setup_function(s, &counted);
    set_all(s, "method=sync workers=2 delay=const:t=1 evict=off updates=12 eval-every=0.001");
    set(s, "script", path("script"));
    set(s, "record", fresh("idle.rec"));
    atomic_store(&n_scores, 0);
    pl_run *run = simulate(s);
    const struct pl_point *point;
    size_t n_points = pl_run_points(run, &point);
    assert_true(pl_run_number(run, "time") > 9e8);
    /* the curve is flat until the end of the idle time, at a few points */
    assert_true(n_points < 3000);
    assert_true(point[n_points - 2].time > 9e8);
    /* every version is scored once */
    assert_in_range(atomic_load(&n_scores), 10, 20);
    s = plain();
    pl_setup_function(s, &counted);
    atomic_store(&n_scores, 0);
    run = replay(s, path("idle.rec"));
    assert_true(pl_run_number(run, "replay.same") == 1);
    assert_in_range(atomic_load(&n_scores), 10, 20);
}

static int long_enough(void *ctx, const struct pl_point *p) {
    return p->time > 1;
}

/* A real run that stands still evaluates its model once. */
TEST(a_stalled_run_is_scored_once) {
    pl_setup *s = plain();
    pl_setup_function(s, &counted);
    pl_setup_watch(s, NULL, long_enough, NULL);
    set_all(s, "spawn=threads workers=2 delay=const:t=1000 updates=5 eval-every=0.01");
    atomic_store(&n_scores, 0);
    pl_run *run = train(s);
    const struct pl_point *point;
    assert_true(pl_run_points(run, &point) > 3);
    assert_int_equal(atomic_load(&n_scores), 1);
}

static int at_once(void *ctx, const struct pl_point *p) {
    return p->updates >= 20;
}

TEST(an_interrupted_replay_says_so) {
    pl_setup *s = setup_of("method=kasync:k=2 data=blobs workers=4 updates=100");
    set(s, "record", fresh("int.rec"));
    simulate(s);
    s = plain();
    pl_setup_watch(s, NULL, at_once, NULL);
    pl_run *run = replay(s, path("int.rec"));
    const char *said = pl_run_text(run, "replay");
    if (strncmp(said, "interrupted after ", 18) != 0) fail_msg("%s", said);
}

/* --- filters ------------------------------------------------------------------------------ */

/* The server's gradient is computed again every ten updates. It used to reject every gradient of
 * these honest workers after the first few updates, and so it was never computed again. */
TEST(zeno_lets_honest_workers_train) {
    pl_run *run = NULL;
    pl_setup *s = setup_of("method=zeno++ data=fashion updates=400");
    int rc = pl_simulate(s, &run);
    if (rc == PL_EIO) {
        print_message("skipped: %s\n", pl_setup_why(s));
        skip();
    }
    if (rc) fail_msg("%s", pl_setup_why(s));
    own_run(run);
    assert_null(pl_run_text(run, "trouble"));
    assert_true(pl_run_number(run, "tasks.rejected") < 400);
    if (pl_run_number(run, "test_accuracy") < 0.55)
        fail_msg("accuracy %g", pl_run_number(run, "test_accuracy"));
}

static int end(void **state) {
    static const char *const names[] = {"pipe", "script", "idle.rec", "int.rec"};
    return recorded_end(names, sizeof names / sizeof *names);
}

ALL_TESTS_BETWEEN(recorded_begin, end)
