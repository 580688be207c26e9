/* How simulated runs end: limits, targets, watchers, divergence.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <math.h>
#include <paceline.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "folder.h"
#include "seed.h"
#include "setups.h"
#include "sim_small.h"

/* ---- limits, targets, evaluations ---- */

static void epochs_end_a_run(void **state) {
    (void)state;
    /* 1000 samples, 25 a task: 40 tasks an epoch */
    pl_run *run = simulate(
        change(small, "method", "async", "updates", "0", "epochs", "2", "batch", "25", NULL));
    assert_true(number(run, "updates") == 80 && number(run, "epochs") == 2);
    pl_run_free(run);
    run = simulate(
        change(small, "method", "sync", "updates", "0", "epochs", "0.9", "batch", "25", NULL));
    assert_true(number(run, "updates") == 8); /* the first whole group that reaches it */
    pl_run_free(run);
}

static void time_ends_a_run(void **state) {
    (void)state;
    pl_run *run = simulate(change(small, "method", "async", "updates", "0", "time", "12.5", NULL));
    assert_true(number(run, "time") == 12.5);
    assert_true(number(run, "time_per_update") * number(run, "updates") <= 12.5);
    const struct pl_point *p;
    assert_int_equal(pl_run_points(run, &p), 51); /* a fiftieth, and the start */
    pl_run_free(run);
}

static void targets_end_a_run(void **state) {
    const struct pl_point *p;
    (void)state;
    pl_setup *s =
        change(small, "method", "sync", "lr", "0.2", "updates", "2000", "eval-every", "5", NULL);
    pl_run *run = simulate(change(s, "target-loss", "1.2", NULL));
    size_t n = pl_run_points(run, &p);
    assert_true(number(run, "loss") <= 1.2 && p[n - 2].loss > 1.2);
    /* between the last two evaluations, where a straight line crosses the target */
    double share = (p[n - 2].loss - 1.2) / (p[n - 2].loss - p[n - 1].loss);
    double crossed = p[n - 2].time + share * (p[n - 1].time - p[n - 2].time);
    assert_true(fabs(number(run, "time_to_target") - crossed) < 1e-9);
    assert_true(number(run, "updates") < 2000);
    pl_run_free(run);
    run = simulate(change(s, "target-accuracy", "0.6", NULL));
    n = pl_run_points(run, &p);
    assert_true(number(run, "test_accuracy") >= 0.6 && p[n - 2].test_accuracy < 0.6);
    pl_run_free(run);
    run = simulate(change(s, "target-accuracy", "1", "updates", "3", NULL));
    assert_true(isnan(number(run, "time_to_target")) && number(run, "updates") == 3);
    assert_non_null(strstr(pl_run_json(run), "\"time_to_target\":null"));
    pl_run_free(run);
    pl_setup_free(s);
}

/* On f(w) = w^2/2 the loss that is reported belongs to the weights that are handed out, also where
 * the last update and a regular evaluation fall on the same moment. */
static void the_end_is_evaluated(void **state) {
    static const char *const every[] = {"0", "1", "3", "20", "1e9"};
    (void)state;
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        size_t n;
        pl_run *run = simulate(change(small, "method", "sync", "delay", "const:t=1", "model",
                                      "quadratic:dim=1,noise=0", "lr", "0.1", "updates", "20",
                                      "eval-every", every[i], NULL));
        double w = pl_run_weights(run, &n)[0];
        assert_true(n == 1 && number(run, "time") == 20);
        assert_true(fabs(w - pow(0.9, 20)) < 1e-6);
        if (!(fabs(number(run, "loss") - w * w / 2) < 1e-9))
            fail_msg("eval-every %s: loss %g, but the weights have %g", every[i],
                     number(run, "loss"), w * w / 2);
        pl_run_free(run);
    }
}

struct watched {
    int n_points, n_ticks, stop_after;
    double last_time;
    char said[600];
    int n_said;
};

static void watch_point(void *ctx, const struct pl_point *p) {
    struct watched *w = ctx;
    w->n_points++;
    w->last_time = p->time;
}

static int watch_tick(void *ctx, const struct pl_point *p) {
    struct watched *w = ctx;
    (void)p;
    return ++w->n_ticks >= w->stop_after;
}

static void watch_say(void *ctx, int warning, const char *sentence) {
    struct watched *w = ctx;
    assert_int_equal(warning, 1);
    if (w->n_said++ == 0) snprintf(w->said, sizeof w->said, "%s", sentence);
}

static void watchers_see_and_stop(void **state) {
    const struct pl_point *p;
    struct watched w = {.stop_after = 40};
    (void)state;
    pl_setup *s = change(small, "method", "async", NULL);
    pl_setup_watch(s, watch_point, watch_tick, &w);
    pl_run *run = simulate(s);
    assert_int_equal(w.n_ticks, 40);
    assert_true(number(run, "updates") <= 40);
    assert_int_equal(w.n_points, pl_run_points(run, &p));
    assert_true(w.last_time == number(run, "time")); /* an end in good order is evaluated too */
    check_books("stopped", run);
    pl_run_free(run);
}

/* ---- divergence ---- */

static void divergence_is_reported(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        struct watched w = {.stop_after = 1000000};
        pl_setup *s = change(small, "policy", "kasync:k=1", "method", "", "optim", "momentum", "lr",
                             "10", "model", "quadratic", "updates", "100000", "threads",
                             threads == 1 ? "1" : "2", NULL);
        pl_setup_log(s, watch_say, &w);
        pl_run *run = simulate(s);
        assert_true(pl_run_diverged(run));
        assert_true(number(run, "tasks.rejected") > 10 && number(run, "updates") < 1000);
        check_books("diverged", run);
        assert_true(w.n_said >= 1);
        assert_non_null(strstr(w.said, "not finite"));
        pl_run_free(run);
    }
    pl_run *run = simulate(change(small, "method", "async", "updates", "20", NULL));
    assert_false(pl_run_diverged(run));
    pl_run_free(run);
}

int main(void) {
    test_seed = seed_of_test(1);
    slow = seed_sanitized();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_end_a_run),      cmocka_unit_test(time_ends_a_run),
        cmocka_unit_test(targets_end_a_run),     cmocka_unit_test(the_end_is_evaluated),
        cmocka_unit_test(watchers_see_and_stop), cmocka_unit_test(divergence_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
