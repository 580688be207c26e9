/* The simulator through the public header: a run is its setup and its seed, bit for bit, on any
 * number of threads; books balance; every method of the table trains; scripts and networks do what
 * they say. How runs end is in test_sim_ends.c. */

#include "blocks.h"
#include "sim_small.h"

#define MAX_METHODS 64

/* ---- setting up and running ---- */

/* The points are in order of time and end with what the run reports. */
static void check_points(const char *what, const pl_run *run) {
    const struct pl_point *p;
    size_t n = pl_run_points(run, &p);
    if (n < 2) fail_msg("%s: %zu evaluations", what, n);
    for (size_t i = 1; i < n; i++)
        assert_true(p[i].time >= p[i - 1].time && p[i].updates >= p[i - 1].updates);
    assert_true(p[n - 1].time == number(run, "time"));
    assert_true((double)p[n - 1].updates == number(run, "updates"));
    assert_true(p[n - 1].loss == number(run, "loss"));
    assert_true(p[0].time == 0 && p[0].updates == 0);
}

static const char *script(const char *text) {
    folder_write("script", text, strlen(text));
    return folder_path("script");
}

/* ---- every method ---- */

static char methods[MAX_METHODS][64];
static size_t n_methods;

static void collect_method(void *ctx, const struct pl_item *item) {
    assert_true(n_methods < MAX_METHODS);
    snprintf(methods[n_methods++], sizeof *methods, "%s", item->name);
}

/* A rate at which the method should learn in a few hundred updates. */
static const char *sensible_rate(const char *method) {
    static const struct {
        const char *method, *lr;
    } row[] = {{"gap-aware", "0.02"},
               {"dana", "0.02"},
               {"dana-ga", "0.02"},
               {"ormo", "0.01"},
               {"sa-adasync", "0.15"},
               {"staleness-aware", "0.15"},
               {"adasync-ksync", "0.05"},
               {"fastest-k", "0.05"},
               /* an update moves one worker of many */
               {"gossip-pull", "0.4"},
               {"gossip-push", "0.4"},
               {"gosgd", "0.4"},
               {"ad-psgd", "0.4"},
               {"sgp", "0.4"},
               {"zeno++", "0.1"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (strcmp(row[i].method, method) == 0) return row[i].lr;
    return "0.05";
}

/* Methods of which an update is ten local steps of every worker, or more. */
static bool many_steps(const char *method) {
    static const char *const some[] = {"local-sgd", "diloco", "nodelay", "nodelay-async", "cocod"};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (strcmp(some[i], method) == 0) return true;
    return false;
}

/* The same bits on one thread, on two, on five and once more; other bits from another seed; books
 * that balance; and a loss that falls. */
static void check_repeats(const pl_setup *base, const char *what, bool learns) {
    static const char *const threads[] = {"1", "2", "5", "5"};
    pl_run *first = NULL;
    char seed[32];
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        if (sanitized && t % 2) continue;
        pl_run *run = simulate(change(base, "threads", threads[t], NULL));
        check_books(run);
        check_points(what, run);
        if (!first) {
            first = run;
            continue;
        }
        if (!same_weights(first, run))
            fail_msg("%s: other weights on %s threads", what, threads[t]);
        assert_string_equal(pl_run_json(first), pl_run_json(run));
    }
    const struct pl_point *p;
    size_t n = pl_run_points(first, &p);
    if (learns && !(p[n - 1].loss < 0.8 * p[0].loss))
        fail_msg("%s: the loss went from %g to %g", what, p[0].loss, p[n - 1].loss);
    snprintf(seed, sizeof seed, "%llu", test_seed + 1);
    pl_setup *few = change(base, "threads", "2", "updates", "5", NULL);
    pl_run *same = simulate(few), *other = simulate(change(few, "seed", seed, NULL));
    assert_false(same_weights(same, other));
}

TEST(every_method_repeats_and_learns) {
    assert_int_equal(pl_list("method", collect_method, NULL), 0);
    assert_true(n_methods > 20);
    for (size_t m = 0; m < n_methods; m++) {
        pl_setup *s = change(small, "method", methods[m], "lr", sensible_rate(methods[m]), NULL);
        if (needs_blocks(methods[m])) set(s, "model", BLOCKS_MODEL);
        if (needs_blocks(methods[m])) set(s, "data", BLOCKS_DATA);
        if (many_steps(methods[m])) set(s, "updates", sanitized ? "20" : "50");
        check_repeats(s, methods[m], !sanitized);
    }
}

TEST(other_models_repeat_too) {
    static const char *const some[] = {"sync", "ksync", "async", "abs", "dana-ga", "local-sgd"};
    for (size_t m = 0; m < sizeof some / sizeof *some; m++) {
        pl_setup *s = change(small, "method", some[m], "model", "quadratic:dim=300,noise=0.1",
                             "updates", "200", "lr", "0.02", "eval-every", "10", NULL);
        check_repeats(s, "quadratic", !sanitized);
        s = change(small, "method", some[m], "model", "cnn:filters=2,2,dense=8", "lr", "0.05",
                   "updates", sanitized ? "5" : "30", "batch", "8", "eval-samples", "100", NULL);
        if (m % 2) set(s, "weight-decay", "0.001");
        check_repeats(s, "cnn", false);
    }
}

/* With the same seed two methods see the same delays and the same mini-batches. */
TEST(methods_share_their_random_numbers) {
    pl_run *a = simulate(change(small, "method", "async", NULL));
    pl_run *b = simulate(change(small, "method", "ssp:s=inf", NULL));
    assert_true(same_weights(a, b));
    a = simulate(change(small, "method", "sync", "updates", "50", NULL));
    b = simulate(change(small, "method", "kasync:k=all", "updates", "50", NULL));
    assert_true(same_weights(a, b));
    assert_true(number(a, "time") == number(b, "time"));
}

/* ---- local steps ---- */

static void check_close(const pl_run *a, const pl_run *b) {
    size_t na, nb;
    const float *wa = pl_run_weights(a, &na), *wb = pl_run_weights(b, &nb);
    assert_int_equal(na, nb);
    for (size_t i = 0; i < na; i++)
        if (!(fabs(wa[i] - wb[i]) <= 2e-5 * (1 + fabs(wa[i]))))
            fail_msg("weight %zu is %.9g and %.9g", i, wa[i], wb[i]);
}

/* One worker that sends its momentum and a plain server take the steps of a plain worker and a
 * server with that momentum, whose rate is smaller by 1-beta; also where others are cancelled. */
TEST(momentum_at_the_worker) {
    pl_setup *s =
        change(small, "policy", "ksync:k=1", "method", "", "updates", "60", "workers", "1", NULL);
    pl_run *there = simulate(change(s, "local", "gradient:beta=0.9", "lr", "0.2", NULL));
    pl_run *here = simulate(change(s, "optim", "momentum:beta=0.9", "lr", "0.02", NULL));
    assert_true(fabs(number(there, "loss") - number(here, "loss")) < 1e-4);
    set_all(s, "workers=6 policy=ksync:k=2,cancel=yes local=gradient:beta=0.9");
    check_repeats(s, "momentum at the worker", false);
}

/* One local step is a gradient; u steps of one worker are u updates of one worker. */
TEST(local_steps_are_steps) {
    pl_setup *s = change(small, "policy", "ksync", "method", "", "updates", "40", "weight-decay",
                         "0.01", "lr-schedule", "warmup:over=20,unit=updates", NULL);
    pl_run *gradient = simulate(change(s, "local", "gradient", NULL));
    pl_run *steps = simulate(change(s, "local", "steps:u=1", NULL));
    check_close(gradient, steps);
    assert_true(number(gradient, "time") == number(steps, "time"));
    set_all(s, "workers=1 lr-schedule=constant");
    gradient = simulate(change(s, "local", "gradient", NULL));
    steps = simulate(change(s, "local", "steps:u=4", "updates", "10", NULL));
    check_close(gradient, steps);
    assert_true(number(gradient, "epochs") == number(steps, "epochs"));
}

/* ---- computing ahead ---- */

/* What is sure to be cancelled is not computed. */
TEST(little_is_computed_in_vain) {
    static const char *const policies[] = {"ksync:k=1", "ksync:k=2", "ksync:k=4", "kasync:k=2",
                                           "ksync:k=3,cancel=no"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        for (int threads = 1; threads <= 5; threads += 2) {
            char text[16];
            snprintf(text, sizeof text, "%d", threads);
            pl_run *run = simulate(change(small, "policy", policies[i], "method", "", "threads",
                                          text, "updates", sanitized ? "50" : "300", NULL));
            double most = number(run, "tasks.applied") + number(run, "tasks.dropped") +
                          number(run, "tasks.running") + 4 * threads;
            double computed = number(run, "gradients_computed");
            if (!(computed <= most))
                fail_msg("%s on %d threads computed %g gradients where %g arrived", policies[i],
                         threads, computed, number(run, "tasks.applied"));
            assert_true(computed >= number(run, "tasks.applied"));
        }
}

/* ---- scripts ---- */

TEST(workers_leave_and_join) {
    pl_setup *s = change(small, "updates", "0", "time", "40", "eval-every", "1", "script",
                         script("# two leave, one comes back, one comes late\n"
                                "5.5 leave 2\n"
                                "5.5 leave 3\n\n"
                                "20.25 join 2   # again\n"
                                "10.5 join 5\n"
                                "12 freeze 1 3.5\n"),
                         NULL);
    static const char *const some[] = {"sync", "async",   "kasync",  "ksync", "abs",
                                       "ssp",  "dana-ga", "rennala", "pbsp"};
    for (size_t m = 0; m < sizeof some / sizeof *some; m++) {
        pl_run *first = NULL;
        for (int threads = 1; threads <= 3; threads++) {
            pl_run *run = simulate(change(s, "method", some[m], "lr", sensible_rate(some[m]),
                                          "threads", threads == 1 ? "1" : "3", NULL));
            const struct pl_point *p;
            size_t n = pl_run_points(run, &p);
            check_books(run);
            assert_true(number(run, "tasks.lost") <= 2);
            assert_int_equal(n, 41);
            assert_true(p[0].workers == 0 || p[0].workers == 4); /* before or after the joins */
            assert_true(p[5].workers == 4 && p[6].workers == 2 && p[11].workers == 3);
            assert_true(p[21].workers == 4 && p[40].workers == 4);
            if (first) {
                assert_true(same_weights(first, run));
                assert_string_equal(pl_run_json(first), pl_run_json(run));
            } else {
                first = run;
            }
        }
        assert_true(number(first, "loss") < 2.5);
    }
}

static double time_of(const char *policy, const char *lines, const char *updates, const char *net) {
    pl_run *run = simulate(change(small, "method", "", "policy", policy, "model", "none", "workers",
                                  "2", "delay", "const:t=1", "updates", updates, "script",
                                  script(lines), "net", net, "evict", "off", NULL));
    double time = number(run, "time");
    check_books(run);
    return time;
}

/* Two workers, a second a task: when the last update comes is computed by hand. */
TEST(frozen_workers_stand_still) {
    assert_true(time_of("ksync", "", "3", "") == 3);
    assert_true(time_of("ksync", "0.5 freeze 2 10\n", "1", "") == 11);
    assert_true(time_of("ksync", "0.5 freeze 2 10\n", "3", "") == 13);
    assert_true(time_of("ksync", "0.5 freeze 2 2\n0.75 freeze 1 1\n", "1", "") == 3);
    /* a freeze inside another adds nothing; one that overlaps adds what is longer */
    assert_true(time_of("ksync", "0.5 freeze 2 10\n1 freeze 2 1\n", "1", "") == 11);
    assert_true(time_of("ksync", "0.5 freeze 2 10\n1 freeze 2 11\n", "1", "") == 12.5);
    assert_true(time_of("ksync", "0.5 freeze 2 1\n3.25 freeze 2 1\n", "4", "") == 6);
    /* nobody waits for a frozen worker that is not needed, whatever way its model is sent */
    assert_true(time_of("ksync:k=1", "0.5 freeze 2 1000\n", "20", "") == 20);
    assert_true(fabs(time_of("ksync:k=1", "0.5 freeze 2 1000\n", "20", "server=1000,bytes=1") -
                     20.06) < 0.03);
}

TEST(bad_scripts_are_refused) {
    static const struct {
        const char *text, *word;
    } row[] = {
        {"1 leave\n", "line 1: write TIME leave|join|freeze WORKER"},
        {"\n1 go 1\n", "line 2: 'go' is not one of leave, join, freeze"},
        {"1 leave 6\n", "there is no worker 6; workers are numbered 1 to 5"},
        {"1 leave 0\n", "worker 0"},
        {"1 freeze 1\n", "freeze takes a worker and seconds"},
        {"1 leave 1 2\n", "leave takes only a worker"},
        {"-1 leave 1\n", "times must be from 0"},
        {"nan leave 1\n", "times must be from 0"},
        {"1 freeze 1 -2\n", "times must be from 0"},
        {"1 leave 1\n1 leave 2\n1 leave 3\n1 leave 4\n1 leave 5\n", "all workers have left at 1 s"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        pl_run *run = NULL;
        pl_setup *s = change(small, "method", "async", "script", script(row[i].text), NULL);
        assert_true(pl_simulate(s, &run) < 0);
        if (!strstr(pl_setup_why(s), row[i].word))
            fail_msg("\"%s\" lacks '%s'", pl_setup_why(s), row[i].word);
        assert_null(run);
    }
}

/* ---- the network ---- */

TEST(networks_take_time) {
    static const char *const nets[] = {"", "latency=0.1", "latency=0.1,bandwidth=1e5",
                                       "latency=0.1,bandwidth=1e5,server=1e5"};
    double share = -1, time = -1;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        pl_run *run =
            simulate(change(small, "method", "kasync:k=2", "updates", "100", "net", nets[i], NULL));
        check_books(run);
        assert_true(number(run, "worker_time.communication") > share);
        assert_true(number(run, "time") > time);
        if (i == 0) assert_true(number(run, "worker_time.communication") == 0);
        share = number(run, "worker_time.communication");
        time = number(run, "time");
    }
    /* by hand: a second of work and a tenth each way */
    pl_run *run = simulate(change(small, "method", "sync", "model", "none", "updates", "10",
                                  "delay", "const:t=1", "net", "latency=0.1", NULL));
    assert_true(fabs(number(run, "time") - 12) < 1e-6);
    assert_true(fabs(number(run, "worker_time.communication") - 0.2 / 1.2) < 1e-9);
}

/* ---- data ---- */

TEST(sampling_and_partitions) {
    static const char *const partitions[] = {"whole", "iid", "label:alpha=0.1"};
    static const char *const samplings[] = {"iid", "epoch"};
    pl_run *run[6];
    int n = 0;
    for (int p = 0; p < 3; p++)
        for (int s = 0; s < 2; s++) {
            pl_setup *setup = change(small, "method", "sync", "updates", "30", "partition",
                                     partitions[p], "sampling", samplings[s], NULL);
            run[n] = simulate(change(setup, "threads", "1", NULL));
            pl_run *again = simulate(change(setup, "threads", "3", NULL));
            assert_true(same_weights(run[n], again));
            for (int i = 0; i < n; i++) assert_false(same_weights(run[i], run[n]));
            n++;
        }
}

/* The classes of digits take turns, so every tenth or fifth sample would be of one or two. */
TEST(few_samples_stand_for_all) {
    double loss[3];
    static const char *const samples[] = {"1000", "100", "200"};
    for (int i = 0; i < 3; i++)
        loss[i] = number(simulate(change(small, "method", "async", "model", "softmax", "updates",
                                         "20", "lr", "1", "eval-samples", samples[i], NULL)),
                         "loss");
    assert_true(fabs(loss[1] - loss[0]) < 0.1 * loss[0]);
    assert_true(fabs(loss[2] - loss[0]) < 0.1 * loss[0]);
}

TEST(timing_alone_needs_no_data) {
    size_t n = 7;
    pl_run *run = simulate(change(small, "method", "abs", "model", "none", "data", "idx:/nowhere",
                                  "updates", "300", NULL));
    assert_null(pl_run_weights(run, &n));
    assert_int_equal(n, 0);
    assert_true(isnan(number(run, "loss")) && number(run, "updates") == 300);
    assert_non_null(strstr(pl_run_json(run), "\"loss\":null"));
    check_books(run);
}

ALL_TESTS_BETWEEN(setup, teardown)
