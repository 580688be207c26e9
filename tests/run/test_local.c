/* Workers with models of their own, in whole runs: what no-delay averaging promises about idle
 * workers, and what does not depend on who is fast. Distances: engine/test_distances.c; the golden
 * traces: double_local.c. */
#include "suite_train.h"

static double told(const char *options, const char *key) {
    double value = pl_run_number(simulate(make("%s", options)), key);
    if (isnan(value)) fail_msg("'%s' does not tell %s", options, key);
    return value;
}

/* Up to the order in which a mean was added up. */
static void check_close(const pl_run *a, const pl_run *b) {
    size_t n, m;
    const float *x = pl_run_weights(a, &n), *y = pl_run_weights(b, &m);
    assert_true(n > 0 && n == m);
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i] - y[i]) > 1e-5f * (1 + fabsf(x[i])))
            fail_msg("weight %zu: %.9g, %.9g", i, (double)x[i], (double)y[i]);
}

/* Rounds have the same numbers whoever is fast: only the time differs. */
TEST(speed_does_not_matter) {
    static const char *const methods[] = {"nodelay:u=3", "sync-easgd", "overlap-local-sgd",
                                          "cocod"};
    static const char *const laws[] = {"const:t=1", "exp:mean=1", "const:t=1|const:t=7|const:t=2",
                                       "pareto:shape=1.2,scale=1"};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        pl_run *first = NULL;
        for (size_t l = 0; l < sizeof laws / sizeof *laws; l++) {
            pl_run *run =
                simulate(make("method=%s workers=5 delay=%s updates=25", methods[m], laws[l]));
            if (first) check_close(first, run);
            if (!first) first = run;
        }
    }
}

/* An update of 2 s behind tasks of 4 x 1 s: nobody waits for it with rounds, and everybody does
 * where all wait for the update: 2 of 6 s. Behind tasks of 1 s it takes longer than they do, and
 * one round in two seconds is all there is. */
TEST(updates_hide_behind_tasks) {
    pl_run *run = simulate(make("method=nodelay:u=4 delay=const:t=1 update-time=2 updates=50"));
    assert_true(number(run, "worker_time.compute") > 0.9999);
    run = simulate(make("method=local-sgd:u=4 delay=const:t=1 update-time=2 updates=50"));
    double away = number(run, "worker_time.idle") + number(run, "worker_time.communication");
    /* the first task does not wait, and 49 of 50 do */
    if (fabs(away - 98.0 / (50 * 4 + 98)) > 1e-9) fail_msg("%g of the time is not computing", away);
    run = simulate(make("method=nodelay:u=1 delay=const:t=1 update-time=2 updates=50"));
    double per_update = number(run, "time") / 50;
    if (fabs(per_update - 2) > 0.1) fail_msg("%g s for an update of 2 s", per_update);
}

/* A worker ten times as slow: with rounds everybody else is at most one round ahead and waits;
 * fully asynchronous they wait only when they are as far as `ahead` says. */
TEST(the_slowest_sets_the_pace) {
    const char *law = "delay=const:t=10|const:t=1|const:t=1|const:t=1";
    char options[300];
    snprintf(options, sizeof options, "method=nodelay:u=1 %s updates=40", law);
    double cyclic = told(options, "worker_time.idle");
    snprintf(options, sizeof options, "method=nodelay-async:ahead=20 %s updates=40", law);
    double free_ = told(options, "worker_time.idle");
    snprintf(options, sizeof options, "method=nodelay-async:ahead=5 %s updates=40", law);
    double held = told(options, "worker_time.idle");
    if (!(cyclic > 0.6 && free_ == 0 && held > 0.2 && held < cyclic))
        fail_msg("idle: cyclic %g, ahead=20 %g, ahead=5 %g", cyclic, free_, held);
}

/* What is remembered, kept and fetched is the same where workers are real. */
TEST(real_runs_replay) {
    check_replay("method=downpour:push=2,fetch=3 workers=3 updates=60");
    check_replay("method=downpour:push=3 optim=sgd workers=4 updates=60 delay=exp:mean=0.002");
    check_replay("method=easgd:u=3 workers=4 updates=80 delay=exp:mean=0.001");
    check_replay("method=eamsgd:u=2,delta=0.95 workers=3 updates=60");
    check_replay("method=nodelay:u=2 workers=4 updates=60 delay=exp:mean=0.002");
    check_replay("method=nodelay-async:u=2,ahead=3 workers=4 updates=60 delay=exp:mean=0.002");
    check_replay("method=nodelay workers=3 updates=20 update-time=0.004 delay=exp:mean=0.001");
    check_replay("method=overlap-local-sgd workers=4 updates=40 weight-decay=0.01");
    check_replay("method=diloco:u=4 workers=3 updates=20");
    check_replay("policy=kasync:k=2,early=yes,fetch=2 local=overlap:u=2 workers=5 updates=40");
    check_replay("policy=ksync:k=3 local=elastic:u=2 workers=5 updates=40");
}

TEST(what_does_not_fit_is_refused) {
    static const char *const options[] = {"policy=kasync:stop=yes,early=yes",
                                          "policy=kasync:stop=yes,max_lag=3,fetch=2"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        pl_setup *s = make("%s", options[i]);
        assert_int_equal(pl_setup_check(s), PL_EUSAGE);
        assert_non_null(strstr(pl_setup_why(s), "would cancel"));
    }
}

ALL_TESTS_FROM_SEED(11, folder_make, folder_clear)
