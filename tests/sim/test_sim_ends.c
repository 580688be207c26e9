/* How simulated runs end: limits, targets, watchers, divergence. */

#include "sim_small.h"

/* ---- limits, targets, evaluations ---- */

TEST(epochs_end_a_run) {
    /* 1000 samples, 25 a task: 40 tasks an epoch */
    pl_run *run = simulate(
        change(small, "method", "async", "updates", "0", "epochs", "2", "batch", "25", NULL));
    assert_true(number(run, "updates") == 80 && number(run, "epochs") == 2);
    run = simulate(
        change(small, "method", "sync", "updates", "0", "epochs", "0.9", "batch", "25", NULL));
    assert_true(number(run, "updates") == 8); /* the first whole group that reaches it */
}

TEST(time_ends_a_run) {
    pl_run *run = simulate(change(small, "method", "async", "updates", "0", "time", "12.5", NULL));
    assert_true(number(run, "time") == 12.5);
    assert_true(number(run, "time_per_update") * number(run, "updates") <= 12.5);
    const struct pl_point *p;
    assert_int_equal(pl_run_points(run, &p), 51); /* a fiftieth, and the start */
}

/* The point that met the target, which the one before did not. */
static const struct pl_point *met(const pl_run *run, double loss) {
    const struct pl_point *p;
    size_t n = pl_run_points(run, &p), i = 1;
    while (i < n && p[i].loss > loss) i++;
    assert_true(i < n);
    assert_true(p[i - 1].updates == p[i].updates - 1 && p[i - 1].time == p[i].time);
    return &p[i];
}

/* A target is met after the same update, whenever the model is evaluated and however long the run
 * may take; that update meets it, and the one before does not. */
TEST(targets_end_a_run) {
    static const char *const every[] = {"5", "0.1", "300"}, *const limit[] = {"0", "400", "5000"};
    (void)state;
    pl_setup *s = change(small, "method", "sync", "lr", "0.2", "updates", "2000", NULL);
    double time = 0;
    uint64_t updates = 0;
    for (int i = 0; i < 3; i++) {
        pl_run *run = simulate(
            change(s, "target-loss", "1.2", "eval-every", every[i], "time", limit[i], NULL));
        const struct pl_point *p = met(run, 1.2);
        assert_true(number(run, "time_to_target") == p->time && number(run, "target_within") == 0);
        assert_true(number(run, "updates") < 2000 && number(run, "time") >= p->time);
        assert_true(i == 0 || (p->time == time && p->updates == updates));
        time = p->time;
        updates = p->updates;
    }
    for (int before = 0; before < 2; before++) {
        char text[24];
        snprintf(text, sizeof text, "%.0f", (double)updates - before);
        pl_run *run = simulate(change(s, "updates", text, NULL));
        assert_true((number(run, "loss") <= 1.2) == (before == 0));
        assert_true(before || number(run, "time") == time);
    }
}

/* The last update of a run may be the one that meets the target, and the first model as well. */
TEST(targets_at_the_ends) {
    (void)state;
    pl_setup *s = change(small, "method", "sync", "lr", "0.2", "updates", "2000", NULL);
    pl_run *run = simulate(change(s, "target-accuracy", "0.6", NULL));
    assert_true(number(run, "time_to_target") > 0 && number(run, "updates") < 2000);
    run = simulate(change(s, "target-loss", "1.2", NULL));
    char text[24];
    double time = number(run, "time_to_target");
    snprintf(text, sizeof text, "%.0f", (double)met(run, 1.2)->updates);
    run = simulate(change(s, "target-loss", "1.2", "updates", text, NULL));
    assert_true(number(run, "time_to_target") == time && number(run, "time") == time);
    run = simulate(change(s, "target-loss", "100", NULL));
    assert_true(number(run, "time_to_target") == 0 && number(run, "updates") == 0);
    run = simulate(change(s, "target-accuracy", "1", "updates", "3", NULL));
    assert_true(isnan(number(run, "time_to_target")) && number(run, "updates") == 3);
    assert_non_null(strstr(pl_run_json(run), "\"time_to_target\":null,\"target_within\":null"));
}

/* On f(w) = w^2/2 the loss that is reported belongs to the weights that are handed out, also where
 * the last update and a regular evaluation fall on the same moment. */
TEST(the_end_is_evaluated) {
    static const char *const every[] = {"0", "1", "3", "20", "1e9"};
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
    return ++w->n_ticks >= w->stop_after;
}

static void watch_say(void *ctx, int level, const char *sentence) {
    struct watched *w = ctx;
    assert_int_equal(level, PL_WARNING);
    if (w->n_said++ == 0) snprintf(w->said, sizeof w->said, "%s", sentence);
}

TEST(watchers_see_and_stop) {
    const struct pl_point *p;
    struct watched w = {.stop_after = 40};
    pl_setup *s = change(small, "method", "async", NULL);
    pl_setup_watch(s, watch_point, watch_tick, &w);
    pl_run *run = simulate(s);
    assert_int_equal(w.n_ticks, 40);
    assert_true(number(run, "updates") <= 40);
    assert_int_equal(w.n_points, pl_run_points(run, &p));
    assert_true(w.last_time == number(run, "time")); /* an end in good order is evaluated too */
    check_books(run);
}

/* ---- divergence ---- */

TEST(divergence_is_reported) {
    for (int threads = 1; threads <= 2; threads++) {
        struct watched w = {.stop_after = 1000000};
        pl_setup *s = change(small, "policy", "kasync:k=1", "method", "", "optim", "momentum", "lr",
                             "10", "model", "quadratic", "updates", "100000", "threads",
                             threads == 1 ? "1" : "2", NULL);
        pl_setup_log(s, watch_say, &w);
        pl_run *run = simulate(s);
        assert_true(pl_run_diverged(run));
        assert_true(number(run, "updates") < 1000);
        check_books(run);
        assert_true(w.n_said >= 1);
        assert_non_null(strstr(w.said, "not finite"));
    }
    pl_run *run = simulate(change(small, "method", "async", "updates", "20", NULL));
    assert_false(pl_run_diverged(run));
}

ALL_TESTS_BETWEEN(setup, teardown)
