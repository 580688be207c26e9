/* Clients, workers and evaluators: the server is another process, and all that the two
 * have in common is the path of a socket. */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "suite_train.h"

/* --- a server in a process of its own -------------------------------------------------------- */

static void check_minimum(const struct served *r, double within) {
    const char *at = strchr(r->text, '\n');
    if (!r->ok || !at) fail_msg("the server failed: %s", r->text);
    for (int i = 0; i < DIM; i++) {
        char *end;
        double w = strtod(at, &end);
        if (!(fabs(w - i) <= within)) fail_msg("w[%d] is %g: %s", i, w, r->text);
        at = end;
    }
}

/* --- clients --------------------------------------------------------------------------------- */

static void refused(const struct server *s, struct pl_client_conf conf, const char *because) {
    pl_client *c = NULL;
    char why[400] = "";
    conf.path = s->path;
    assert_int_equal(pl_client_open(&conf, &c, why, sizeof why), PL_ERUN);
    assert_null(c);
    if (!strstr(why, because)) fail_msg("%s\nis not about: %s", why, because);
}

static void *work_thread(void *arg) {
    const struct server *s = arg;
    work(join(s, (struct pl_client_conf){.dim = DIM}), 0);
    return NULL;
}

TEST(test_external) {
    struct server s = serve("model=external:dim=5 workers=2 method=sync updates=200 lr=0.1");
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, work_thread, &s), 0);
    pl_client *c = join(&s, (struct pl_client_conf){.dim = DIM});
    const char *about = pl_client_server(c);
    if (!strstr(about, "\"model\":\"external:dim=5\"") || !strstr(about, "\"method\":\"sync\"") ||
        !strstr(about, "\"rule\":\"gradient\"") || !strstr(about, "\"dim\":5,"))
        fail_msg("%s", about);
    work(c, 0);
    pthread_join(other, NULL);
    struct served r = served(&s);
    check_minimum(&r, 0.01);
    assert_true(said(&r, "updates") == 200);
    assert_true(said(&r, "loss") >= 0); /* of the workers */
    assert_true(isnan(said(&r, "test_accuracy")));
}

TEST(test_unknown_loss) {
    struct server s = serve("model=external:dim=5 workers=1 method=async updates=100 lr=0.1");
    work(join(&s, (struct pl_client_conf){0}), NAN);
    struct served r = served(&s);
    check_minimum(&r, 0.01);
    assert_true(isnan(said(&r, "loss")));
    assert_true(said(&r, "rejected") == 0);
}

/* Gradients with a NaN are rejected by the worker if the rule changes its momentum in place: by the
 * library, or by a program that wants to look itself. Otherwise the server's commit judges them,
 * from the second one on the workers. */
TEST(test_who_looks) {
    const char *optim[] = {"momentum", "sgd"};
    for (int i = 0; i < 4; i++) {
        char options[200];
        snprintf(options, sizeof options,
                 "model=external:dim=5 workers=1 method=async optim=%s updates=4 lr=0.1",
                 optim[i / 2]);
        struct server s = serve(options);
        struct pl_client_task t;
        pl_client *c = join(&s, (struct pl_client_conf){.checks = i % 2});
        for (int n = 0; pl_client_pull(c, 120, &t) == PL_OK; n++) {
            double loss = bowl(t.w, t.out);
            bool spoiled = n == 1 || n == 3;
            if (spoiled) t.out[2] = NAN;
            assert_int_equal(t.checks, i == 1 || (i == 3 && n > 1));
            assert_int_equal(pl_client_push(c, DIM, 1, t.checks && spoiled ? INFINITY : loss),
                             PL_OK);
        }
        pl_client_close(c);
        struct served r = served(&s);
        if (!r.ok || said(&r, "updates") != 4 || said(&r, "rejected") != 2) fail_msg("%s", r.text);
    }
}

/* A filter looks at a copy of a result. If it rejects the result, its worker gets the next task all
 * the same, with memory that it can write to. Here every worker answers twice in a row, and the
 * filter accepts at most one of the two: with f = 1, two others come first. */
TEST(test_rejected_by_filter) {
    enum { CLIENTS = 5, UPDATES = 40 };
    struct server s = serve("model=external:dim=5 workers=5 method=kardam filter=kardam:f=1 "
                            "updates=40 time=3600 lr=0.1");
    pl_client *c[CLIENTS];
    int rc = PL_OK;
    for (int i = 0; i < CLIENTS; i++) c[i] = join(&s, (struct pl_client_conf){.dim = DIM});
    for (int turn = 0; rc == PL_OK; turn++) rc = answer(c[turn / 2 % CLIENTS], 0);
    assert_int_equal(rc, PL_ECANCELLED);
    for (int i = 0; i < CLIENTS; i++) pl_client_close(c[i]);
    struct served r = served(&s);
    if (!r.ok || said(&r, "updates") != UPDATES || !(said(&r, "rejected") >= UPDATES - 1))
        fail_msg("%s", r.text);
}

/* Workers that hear of the end get the version that the run ended with: at once, or when they ask,
 * after the server has gone. */
TEST(test_final_version) {
    struct server s = serve("model=external:dim=5 workers=2 method=async updates=20 lr=0.1");
    pl_client *c[2];
    struct pl_client_task busy, t[2];
    for (int i = 0; i < 2; i++) c[i] = join(&s, (struct pl_client_conf){.dim = DIM});
    assert_int_equal(pl_client_pull(c[1], 120, &busy), PL_OK);
    while (pl_client_pull(c[0], 120, &t[0]) == PL_OK)
        pl_client_push(c[0], DIM, 1, bowl(t[0].w, t[0].out));
    struct served r = served(&s);
    if (!r.ok) fail_msg("%s", r.text);
    assert_int_equal(pl_client_pull(c[1], 120, &t[1]), PL_ECANCELLED);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t[i].version, 20);
        assert_non_null(t[i].w);
        assert_memory_equal(t[i].w, t[0].w, DIM * sizeof(float));
    }
    for (int i = 0; i < 2; i++) pl_client_close(c[i]);
}

TEST(test_refused) {
    struct server s = serve_with("model=external workers=1 method=async updates=10 lr=0.1", true);
    const struct pl_tensor_info same[] = {{.name = "fc.weight", .shape = {3, 1}, .n_dims = 2},
                                          {.name = "fc.bias", .shape = {2}, .n_dims = 1}};
    const struct pl_tensor_info other[] = {{.name = "fc.weight", .shape = {1, 3}, .n_dims = 2},
                                           {.name = "fc.bias", .shape = {2}, .n_dims = 1}};
    refused(&s, (struct pl_client_conf){.dim = 4}, "parameters");
    refused(&s, (struct pl_client_conf){.fingerprint = pl_fingerprint(other, 2)}, "fingerprint");
    pl_client *c =
        join(&s, (struct pl_client_conf){.fingerprint = pl_fingerprint(same, 2), .dim = DIM});
    refused(&s, (struct pl_client_conf){0}, "all its 1 worker");
    work(c, 0);
    assert_true(served(&s).ok);
}

static void waiting(void *ctx, const char *sentence) {
    say(ctx, 0, sentence);
}

TEST(test_no_server) {
    char why[400] = "";
    pl_client *c = NULL;
    char told[4096] = "";
    struct pl_client_conf conf = {
        .path = folder_path("nobody"), .wait = 0.1, .waiting = waiting, .waiting_ctx = told};
    assert_int_equal(pl_client_open(&conf, &c, why, sizeof why), PL_EIO);
    assert_non_null(strstr(why, "nobody"));
    assert_non_null(strstr(why, "after 0.1 s"));
    assert_non_null(strstr(told, "waiting up to 0.1 s"));
    conf.wait = -1;
    assert_int_equal(pl_client_open(&conf, &c, why, sizeof why), PL_EIO);
    struct server s = serve("model=external:dim=5 workers=1 wait=0.2");
    struct served r = served(&s);
    assert_false(r.ok);
    if (!strstr(r.text, "no worker joined at")) fail_msg("%s", r.text);
}

/* --- waiting --------------------------------------------------------------------------------- */

static void on_alarm(int sig) {}

static void *interrupt_later(void *client) {
    usleep(100000);
    pl_client_interrupt(client);
    return NULL;
}

TEST(test_waiting) {
    /* two workers of whom one never answers: the other waits for it */
    struct server s = serve("model=external:dim=5 workers=2 method=sync updates=100 lr=0.1");
    pl_client *a = join(&s, (struct pl_client_conf){0}), *b = join(&s, (struct pl_client_conf){0});
    struct pl_client_task t;
    assert_int_equal(answer(a, 0), PL_OK);
    assert_int_equal(pl_client_pull(a, 0, &t), PL_ETIMEDOUT);
    assert_int_equal(pl_client_pull(a, 0.05, &t), PL_ETIMEDOUT);
    assert_int_equal(pl_client_push(a, DIM, 1, 0), PL_EUSAGE);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupt_later, a), 0);
    assert_int_equal(pl_client_pull(a, -1, &t), PL_EINTR);
    pthread_join(thread, NULL);
    struct sigaction alarm = {.sa_handler = on_alarm};
    struct itimerval often = {.it_interval = {.tv_usec = 50000}, .it_value = {.tv_usec = 50000}};
    struct itimerval never = {.it_value = {.tv_usec = 0}};
    sigaction(SIGALRM, &alarm, NULL);
    setitimer(ITIMER_REAL, &often, NULL); /* the first may come before it waits */
    assert_int_equal(pl_client_pull(a, -1, &t), PL_EINTR);
    setitimer(ITIMER_REAL, &never, NULL);
    assert_int_equal(answer(b, 0), PL_OK);
    assert_int_equal(answer(a, 0), PL_OK);
    kill(s.pid, SIGKILL);
    int rc;
    while ((rc = answer(a, 0)) == PL_OK || rc == PL_ETIMEDOUT) continue;
    assert_int_equal(rc, PL_ERUN);
    assert_non_null(strstr(pl_client_why(a), "gone"));
    pl_client_close(a);
    pl_client_close(b);
    int status;
    waitpid(s.pid, &status, 0);
    unlink(s.path);
}

/* --- local rules ------------------------------------------------------------------------------ */

/* One worker of this library and one outside that knows gradients alone make the same weights. */
static void check_local(const char *method) {
    char options[400];
    snprintf(options, sizeof options,
             "model=quadratic:dim=5,cond=3,noise=0,start=2 workers=1 lr=0.1 weight-decay=0.01 "
             "updates=%d method=%s",
             sanitized ? 6 : 20, method);
    pl_setup *ours = make("%s", options);
    pl_run *run = train(ours);
    size_t n;
    const float *w = pl_run_weights(run, &n);
    char expected[400] = "";
    for (size_t i = 0; i < n; i++) pl_append(expected, sizeof expected, "%.9g ", (double)w[i]);
    pl_append(options, sizeof options, " spawn=none");
    struct server s = serve(options);
    pl_client *c = join(&s, (struct pl_client_conf){0});
    struct pl_client_task t;
    int rc;
    while ((rc = pl_client_pull(c, 120, &t)) == PL_OK) {
        double loss = 0;
        for (int i = 0; i < DIM; i++) { /* as model quadratic */
            double low = 1.0 / 3, step = log(3.0) / 4;
            float slope = (float)low * (float)exp(step * i) * t.w[i];
            t.out[i] = slope;
            loss += (double)slope * (double)t.w[i] / 2;
        }
        assert_int_equal(t.wants, PL_WANTS_GRADIENT);
        pl_client_push(c, DIM, 0, loss);
    }
    assert_int_equal(rc, PL_ECANCELLED);
    pl_client_close(c);
    struct served r = served(&s);
    const char *weights = strchr(r.text, '\n');
    if (!r.ok || !weights || strncmp(weights + 1, expected, strlen(expected)) != 0)
        fail_msg("%s: %s\nexpected %s", method, r.text, expected);
}

TEST(test_local_rules) {
    skip_processes();
    check_local("async");
    check_local("diloco");
    check_local("local-sgd");
    check_local("easgd");
    check_local("downpour");
    check_local("overlap-local-sgd");
    check_local("async local=gradient:beta=0.5");
}

/* The library's local steps have begun, and the worker leaves. */
TEST(test_leave_between_steps) {
    struct server s = serve("model=external:dim=5 workers=1 method=easgd lr=0.1 updates=3");
    pl_client *c = join(&s, (struct pl_client_conf){.dim = DIM});
    for (int i = 0; i < 5; i++) assert_int_equal(answer(c, 0), PL_OK);
    pl_client_close(c);
    struct pl_client_conf conf = {.path = s.path, .dim = DIM};
    char why[400] = "";
    for (int i = 0; i < 12000; i++) { /* the server may not have seen yet that the place is free */
        if (pl_client_open(&conf, &c, why, sizeof why) == PL_OK) break;
        if (!strstr(why, "has all its 1 workers")) fail_msg("%s", why);
        usleep(10000);
    }
    work(c, 0);
    struct served r = served(&s);
    if (!r.ok) fail_msg("%s", r.text);
}

/* A worker that takes the inner steps itself, with whatever optimizer: all at once, or, if the rule
 * pulls the model after the first step, in two parts. */
static void check_own_steps(const char *method, double digits) {
    char options[200];
    snprintf(options, sizeof options, "model=external:dim=5 workers=1 lr=0.1 updates=60 method=%s",
             method);
    struct server s = serve(options);
    pl_client *c = join(&s, (struct pl_client_conf){.steps = 1});
    struct pl_client_task t;
    int rc;
    while ((rc = pl_client_pull(c, 120, &t)) == PL_OK) {
        float g[DIM];
        double loss = 0;
        assert_int_equal(t.wants, PL_WANTS_STEPS);
        assert_true(t.steps >= 1 && t.lr > 0 && t.w == t.out);
        for (uint32_t step = 0; step < t.steps; step++) {
            loss += bowl(t.out, g) / t.steps;
            for (int i = 0; i < DIM; i++) t.out[i] -= (float)t.lr * g[i];
        }
        pl_client_push(c, DIM, 0, loss);
    }
    assert_int_equal(rc, PL_ECANCELLED);
    pl_client_close(c);
    struct served r = served(&s);
    check_minimum(&r, digits);
}

TEST(test_own_steps) {
    check_own_steps("diloco", 0.05);
    check_own_steps("sync-easgd:u=5", 0.05);
    check_own_steps("nodelay:u=4", 0.05);
}

/* --- types -------------------------------------------------------------------------------------
 */

TEST(test_bf16) {
    for (int raw = 0; raw < 2; raw++) {
        struct server s =
            serve("model=external:dim=5 workers=1 method=async updates=200 lr=0.1 wire=bf16");
        pl_client *c = join(&s, (struct pl_client_conf){.raw = raw});
        struct pl_client_task t;
        int rc;
        while ((rc = pl_client_pull(c, 120, &t)) == PL_OK) {
            float g[DIM];
            double loss = bowl(t.w, raw ? g : t.out);
            assert_non_null(t.w16);
            assert_true(raw ? !t.out && t.out16 : t.out != NULL);
            for (int i = 0; raw && i < DIM; i++) {
                uint32_t bits;
                memcpy(&bits, &g[i], sizeof bits);
                t.out16[i] = (uint16_t)(bits >> 16);
            }
            pl_client_push(c, DIM, 1, loss);
        }
        assert_int_equal(rc, PL_ECANCELLED);
        pl_client_close(c);
        struct served r = served(&s);
        check_minimum(&r, 0.02);
    }
}

TEST(test_init_file) {
    const char *path = folder_path("init.safetensors");
    const float w[3] = {1, 2, 3};
    const uint16_t half[2] = {0x3f80, 0xc000}; /* 1, -2 */
    const struct pl_tensor_info t[] = {
        {.name = "a", .shape = {3}, .n_dims = 1, .data = w},
        {.name = "b", .dtype = "BF16", .shape = {2, 1}, .n_dims = 2, .data = half}};
    char why[400] = "", options[600], saved[200];
    if (pl_save_tensors(path, t, 2, "a lr=0\n", why, sizeof why)) fail_msg("%s", why);
    assert_int_equal(pl_save_tensors(folder_path("x"), t, 2, "c lr=0\n", why, sizeof why),
                     PL_EUSAGE);
    assert_non_null(strstr(why, "'c'"));
    snprintf(saved, sizeof saved, "%s", folder_path("half"));
    snprintf(options, sizeof options,
             "model=external init=%s workers=1 method=async updates=3 lr=0.5 checkpoint=%s", path,
             saved);
    struct server s = serve(options);
    pl_client *c = join(&s, (struct pl_client_conf){.fingerprint = pl_fingerprint(t, 2)});
    struct pl_client_task task;
    assert_int_equal(pl_client_pull(c, 120, &task), PL_OK);
    assert_true(task.w[0] == 1 && task.w[2] == 3 && task.w[3] == 1 && task.w[4] == -2);
    assert_int_equal(pl_client_checkpoint(c), PL_OK);
    assert_true(server_said(&s, "worker 1 asked for a checkpoint; further requests will not be"));
    work(c, 0);
    struct served r = served(&s);
    if (!r.ok) fail_msg("%s", r.text);
    /* a does not learn; b does */
    const char *at = strchr(r.text, '\n') + 1;
    if (strncmp(at, "1 2 3 ", 6) != 0 || strncmp(at, "1 2 3 1 ", 8) == 0) fail_msg("%s", r.text);
}

/* Results have new values of buffers, which the update averages. */
TEST(test_buffers) {
    const char *path = folder_path("buffers.safetensors");
    const struct pl_tensor_info t[] = {
        {.name = "a.weight", .shape = {3}, .n_dims = 1},
        {.name = "a.running_mean", .shape = {1}, .n_dims = 1},
        {.name = "a.num_batches_tracked", .dtype = "U8", .n_dims = 0}};
    char why[400] = "", options[600];
    if (pl_save_tensors(path, t, 3, "*.running_mean buffer=yes\n*.num_* buffer=yes\n", why,
                        sizeof why))
        fail_msg("%s", why);
    snprintf(options, sizeof options,
             "model=external init=%s workers=2 method=sync updates=3 lr=0.1 optim=adam", path);
    struct server s = serve(options);
    pl_client *c[2] = {join(&s, (struct pl_client_conf){0}), join(&s, (struct pl_client_conf){0})};
    struct pl_client_task task;
    int rc = PL_OK;
    for (int turn = 0; rc != PL_ECANCELLED; turn++) {
        rc = pl_client_pull(c[turn % 2], 120, &task);
        if (rc) continue;
        bowl(task.w, task.out);
        task.out[3] = turn % 2 ? 10 : 20;
        task.out[4] = task.w[4] + 1;
        pl_client_push(c[turn % 2], DIM, 1, 0);
    }
    pl_client_close(c[0]);
    pl_client_close(c[1]);
    struct served r = served(&s);
    const char *at = strchr(r.text, '\n');
    double w[DIM] = {0};
    for (int i = 0; at && i < DIM; i++) w[i] = strtod(at, (char **)&at);
    if (!r.ok || w[3] != 15 || w[4] != 3 || !(w[2] > 0)) fail_msg("%s", r.text);
}

/* A tensor that one result lacks counts as zero there; one that all lack is left alone. */
TEST(test_absent) {
    const char *path = folder_path("absent.safetensors");
    const float w0[DIM] = {1, 1, 1, 1, 1};
    const struct pl_tensor_info t[] = {
        {.name = "a", .shape = {2}, .n_dims = 1, .data = w0},
        {.name = "empty", .shape = {0}, .n_dims = 1, .data = w0},
        {.name = "b", .shape = {2}, .n_dims = 1, .data = w0},
        {.name = "c", .shape = {1}, .n_dims = 1, .data = w0},
    };
    char why[400] = "", options[600];
    if (pl_save_tensors(path, t, 4, NULL, why, sizeof why)) fail_msg("%s", why);
    snprintf(options, sizeof options,
             "model=external init=%s workers=2 method=sync updates=2 lr=1 weight-decay=0.5", path);
    struct server s = serve(options);
    pl_client *c[2] = {join(&s, (struct pl_client_conf){0}), join(&s, (struct pl_client_conf){0})};
    const unsigned char absent[][3] = {{0, 0, 1}, {0, 1, 1}};
    struct pl_client_task task;
    int rc = PL_OK;
    assert_int_equal(pl_client_absent(c[0], absent[0], 3), PL_EUSAGE); /* there is no task */
    for (int turn = 0; rc != PL_ECANCELLED; turn++) {
        pl_client *now = c[turn % 2];
        rc = pl_client_pull(now, 120, &task);
        if (rc) continue;
        for (int i = 0; i < DIM; i++) task.out[i] = i < 2 || (i < 4 && turn % 2 == 0) ? 0.25F : 0;
        assert_int_equal(pl_client_absent(now, absent[0], 4), PL_EUSAGE);
        assert_int_equal(pl_client_absent(now, absent[turn % 2], 3), PL_OK);
        pl_client_push(now, DIM, 1, 0);
    }
    pl_client_close(c[0]);
    pl_client_close(c[1]);
    struct served r = served(&s);
    const char *at = strchr(r.text, '\n');
    double w[DIM] = {0};
    for (int i = 0; at && i < DIM; i++) w[i] = strtod(at, (char **)&at);
    /* w - (g + w / 2), twice: from 1 to 0.25 and -0.125; with half of g to 0.375 and 0.0625 */
    if (!r.ok || w[0] != -0.125 || w[3] != 0.0625 || w[4] != 1) fail_msg("%s", r.text);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
