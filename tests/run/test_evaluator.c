/* Evaluators, and requests of workers: the server is another process, as in
 * test_client.c. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

/* --- the evaluator and requests ----------------------------------------------------------------
 */

static void *evaluate_thread(void *arg) {
    const struct server *s = arg;
    pl_client *c = join(s, (struct pl_client_conf){.role = PL_ROLE_EVALUATOR, .dim = DIM});
    struct pl_client_task t;
    uint64_t last = UINT64_MAX;
    int rc;
    while ((rc = pl_client_pull(c, 120, &t)) == PL_OK) {
        assert_int_equal(t.wants, PL_WANTS_NUMBERS);
        assert_true(last == UINT64_MAX || t.version > last);
        last = t.version;
        double loss = bowl(t.w, NULL);
        assert_int_equal(pl_client_report(c, "test_loss", loss), PL_OK);
        assert_int_equal(pl_client_report(c, "test_accuracy", 1 / (1 + loss)), PL_OK);
        assert_int_equal(pl_client_report(c, "first.weight", (double)t.w[0]), PL_OK);
        assert_int_equal(pl_client_report(c, "not a name", 0), PL_EUSAGE);
        assert_int_equal(pl_client_push(c, 0, 0, NAN), PL_OK);
    }
    assert_int_equal(rc, PL_ECANCELLED);
    pl_client_close(c);
    return NULL;
}

static void check_evaluator(const char *average) {
    char options[400], log[200];
    snprintf(log, sizeof log, "%s", folder_path("log.jsonl"));
    unlink(log);
    snprintf(options, sizeof options,
             "model=external:dim=5 workers=1 method=async time=3600 lr=0.002 "
             "target-accuracy=0.9 eval-every=0.01 average=%s log=%s",
             average, log);
    struct server s = serve(options);
    pthread_t evaluator;
    assert_int_equal(pthread_create(&evaluator, NULL, evaluate_thread, &s), 0);
    pl_client *c = join(&s, (struct pl_client_conf){0});
    int rc;
    while ((rc = answer(c, 0)) == PL_OK) usleep(200);
    assert_int_equal(rc, PL_ECANCELLED);
    pl_client_close(c);
    pthread_join(evaluator, NULL);
    struct served r = served(&s);
    if (!r.ok || !(said(&r, "test_accuracy") >= 0.9)) fail_msg("%s", r.text);
    assert_true(said(&r, "time_to_target") > 0 &&
                said(&r, "time_to_target") <= said(&r, "time") + 1e-9);
    FILE *f = fopen(log, "r");
    char line[2000];
    assert_non_null(f);
    bool found = false; /* the workers' losses are there as well */
    while (fgets(line, sizeof line, f))
        found |= strstr(line, "\"first.weight\":") && !strstr(line, "\"test_loss\":null");
    assert_true(found);
    fclose(f);
}

TEST(test_evaluator) {
    check_evaluator("none");
    check_evaluator("tail"); /* it is shown a copy */
}

/* An evaluator that dies in the middle costs nothing but its numbers; one that has stopped asking
 * is not waited for at the end: a last evaluation has a minute. */
TEST(a_lost_evaluator_is_not_waited_for) {
    for (int dies = 0; dies < 2; dies++) {
        time_t start = time(NULL);
        struct server s = serve("model=external:dim=5 workers=1 method=async time=3600 lr=0.002 "
                                "eval-every=0.01");
        pl_client *c = join(&s, (struct pl_client_conf){0});
        int pipes[2], rc = PL_OK, status;
        assert_int_equal(pipe(pipes), 0); /* until the evaluator does no more */
        pid_t evaluator = fork();
        if (evaluator == 0) {
            const struct pl_client_conf conf = {.path = s.path, .role = PL_ROLE_EVALUATOR};
            struct pl_client_task t;
            pl_client *e;
            char why[400];
            if (pl_client_open(&conf, &e, why, sizeof why) || pl_client_pull(e, 120, &t)) _exit(9);
            pl_client_report(e, "test_loss", 1);
            pl_client_push(e, 0, 0, NAN);
            if (dies) _exit(pl_client_pull(e, 120, &t) ? 9 : 0);
            close(pipes[1]);
            for (;;) sleep(1);
        }
        close(pipes[1]);
        struct pollfd done = {.fd = pipes[0]};
        while (poll(&done, 1, 0) == 0 && (rc = answer(c, 0)) == PL_OK) usleep(200);
        time_t begin = time(NULL);
        assert_int_equal(pl_client_end(c), PL_OK);
        while ((rc = answer(c, 0)) == PL_OK) usleep(200);
        assert_int_equal(rc, PL_ECANCELLED);
        pl_client_close(c);
        struct served r = served(&s);
        time_t end = time(NULL);
        kill(evaluator, SIGKILL);
        assert_int_equal(waitpid(evaluator, &status, 0), evaluator);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        close(pipes[0]);
        if (!r.ok || !(said(&r, "time") < (double)(begin - start + 30)) || end - begin >= 50)
            fail_msg("%s", r.text);
    }
}

/* A run whose five updates are done: it ends as soon as its evaluator has nothing to say. */
static struct server serve_updates(pl_client **e, pl_client **c) {
    struct server s = serve("model=external:dim=5 workers=1 method=async updates=5 lr=0.002");
    *e = join(&s, (struct pl_client_conf){.role = PL_ROLE_EVALUATOR});
    *c = join(&s, (struct pl_client_conf){0});
    for (int i = 0; i < 5; i++) assert_int_equal(answer(*c, 0), PL_OK);
    return s;
}

/* The evaluator's numbers about what it pulled are those of the run. */
static void score_last(const struct server *s, pl_client *e, pl_client *c) {
    pl_client_report(e, "test_loss", 0.25);
    pl_client_push(e, 0, 0, NAN);
    pl_client_close(c);
    pl_client_close(e);
    struct served r = served(s);
    if (!r.ok || said(&r, "test_loss") != 0.25) fail_msg("%s", r.text);
}

/* One that has joined, and first asks some seconds after the end, as on a busy machine, is waited
 * for. */
TEST(an_evaluator_that_asks_late_is_waited_for) {
    pl_client *e, *c;
    struct server s = serve_updates(&e, &c);
    sleep(5);
    struct pl_client_task t;
    assert_int_equal(pl_client_pull(e, 120, &t), PL_OK);
    score_last(&s, e, c);
}

/* One that asks again without having said any numbers, as if the answer were lost on its way, is
 * shown the last version again. */
TEST(an_evaluator_that_asks_again_is_answered_again) {
    pl_client *e, *c;
    struct server s = serve_updates(&e, &c);
    struct pl_client_task t = {.version = 0};
    for (int times = 0; times < 2; times += t.version == 5) {
        assert_int_equal(pl_client_pull(e, 120, &t), PL_OK);
        if (t.version < 5) pl_client_push(e, 0, 0, NAN);
    }
    score_last(&s, e, c);
}

TEST(test_requests) {
    char options[600], saved[200], file[300];
    snprintf(saved, sizeof saved, "%s", folder_path("checkpoints"));
    snprintf(options, sizeof options,
             "model=external workers=1 method=async time=1000000 lr=0.1 checkpoint=%s", saved);
    struct server s = serve_with(options, true);
    pl_client *c = join(&s, (struct pl_client_conf){0});
    for (int i = 0; i < 10; i++) assert_int_equal(answer(c, 0), PL_OK);
    assert_int_equal(pl_client_set_lr(c, NAN), PL_EUSAGE);
    assert_int_equal(pl_client_set_lr(c, 0), PL_OK);
    struct pl_client_task t = {.lr = 1};
    for (int i = 0; i < 2; i++) { /* the first result has it */
        assert_int_equal(pl_client_pull(c, 120, &t), PL_OK);
        bowl(t.w, t.out);
        pl_client_push(c, DIM, 1, 0);
    }
    assert_true(t.lr == 0);
    assert_int_equal(pl_client_checkpoint(c), PL_OK);
    struct stat st;
    snprintf(file, sizeof file, "%s/latest", saved);
    while (stat(file, &st)) usleep(10000);
    assert_int_equal(pl_client_end(c), PL_OK);
    work(c, 0);
    struct served r = served(&s);
    if (!r.ok) fail_msg("%s", r.text);

    /* it is resumed, with names and rate; eval says what it is */
    snprintf(options, sizeof options, "resume=%s updates=10000", saved);
    s = serve(options);
    const struct pl_tensor_info same[] = {{.name = "fc.weight", .shape = {3, 1}, .n_dims = 2},
                                          {.name = "fc.bias", .shape = {2}, .n_dims = 1}};
    c = join(&s, (struct pl_client_conf){.fingerprint = pl_fingerprint(same, 2)});
    assert_int_equal(pl_client_pull(c, 120, &t), PL_OK);
    assert_true(t.lr == 0 && t.version >= 10 && t.w[1] > 0.5f);
    assert_int_equal(pl_client_end(c), PL_OK);
    work(c, 0);
    assert_true(served(&s).ok);
    pl_run *run = NULL;
    pl_setup *setup = plain();
    assert_int_equal(pl_eval(setup, saved, &run), PL_EUSAGE);
    if (!strstr(pl_setup_why(setup), "5 parameters in 2 tensors ('fc.weight'"))
        fail_msg("%s", pl_setup_why(setup));
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
