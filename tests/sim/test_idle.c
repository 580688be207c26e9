/* Times in which nothing happens: virtual time that stands still ends a run, idle times are
 * skipped, and a model that does not change is scored once. */
#include <stdatomic.h>

#include "recorded.h"

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

static int end(void **state) {
    static const char *const names[] = {"script", "idle.rec"};
    return recorded_end(names, sizeof names / sizeof *names);
}

ALL_TESTS_BETWEEN(recorded_begin, end)
