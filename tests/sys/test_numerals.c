/* A program with a decimal comma: what it tells a server, its own loops, and what it serves. */
#include <arpa/inet.h>
#include <locale.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "comma.h"
#include "observe/metrics.h"
#include "paceline_client.h"
#include "paceline_loop.h"
#include "suite_train.h"

enum { DIM = 5 };

static void comma_or_skip(void) {
    if (use_comma(folder_path(""))) return;
    print_message("skipped: localedef cannot make a locale here\n");
    skip();
}

static void still_comma(void) {
    assert_string_equal(localeconv()->decimal_point, ",");
    setlocale(LC_NUMERIC, "C");
}

/* --- workers and evaluators --------------------------------------------------------------- */

/* The server has another locale. */
static pid_t serve(const char *socket_path, const char *out) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    pl_setup *s = make(
        "model=external:dim=5 workers=1 method=async updates=1000000 time=3600 lr=0.5 wait=300 "
        "eval-every=0.01 local=gradient:beta=0.5 requests=any listen=%s log=%s",
        socket_path, out);
    pl_run *run = NULL;
    pl_setup_log(s, NULL, NULL);
    int rc = pl_train(s, &run);
    if (rc) fprintf(stderr, "%s\n", pl_setup_why(s));
    _exit(rc ? 1 : 0);
}

static pl_client *join(const char *path, int role) {
    pl_client *c = NULL;
    char why[400] = "";
    struct pl_client_conf conf = {.path = path, .role = role, .dim = DIM};
    if (pl_client_open(&conf, &c, why, sizeof why)) fail_msg("%s", why);
    return c;
}

/* Whether a line of the file has this text. */
static bool has(const char *path, const char *text) {
    char line[4000];
    bool found = false;
    FILE *f = fopen(path, "r");
    if (!f) return false;
    while (fgets(line, sizeof line, f)) found |= strstr(line, text) != NULL;
    fclose(f);
    return found;
}

TEST(clients_write_a_point) {
    char path[200], log[200], why[400] = "";
    struct pl_client_task t;
    pl_client *none = NULL;
    skip_processes();
    snprintf(path, sizeof path, "%s", folder_path("socket"));
    snprintf(log, sizeof log, "%s", folder_path("log"));
    comma_or_skip();
    setlocale(LC_NUMERIC, "C");
    pid_t server = serve(path, log);
    comma_or_skip();
    pl_client *worker = join(path, PL_ROLE_WORKER), *evaluator = join(path, PL_ROLE_EVALUATOR);
    int rc = PL_OK;
    for (int i = 0; rc == PL_OK && i < 1000 && !has(log, "\"extra\":0.25"); i++) {
        for (int k = 0; rc == PL_OK && k < 5; k++) {
            rc = pl_client_pull(worker, 120, &t);
            if (rc) break;
            memset(t.out, 0, DIM * sizeof *t.out);
            pl_client_push(worker, DIM, 1, 1);
        }
        if (rc || pl_client_pull(evaluator, 0.3, &t)) continue;
        if (pl_client_report(evaluator, "test_accuracy", 0.75) ||
            pl_client_report(evaluator, "extra", 0.25) || pl_client_push(evaluator, 0, 0, NAN) ||
            pl_client_set_lr(evaluator, 0.0625))
            fail_msg("%s", pl_client_why(evaluator));
    }
    assert_int_equal(rc, PL_OK);
    assert_true(has(log, "\"test_accuracy\":0.75"));
    assert_int_equal(pl_client_end(evaluator), PL_OK);
    pl_client_close(evaluator);
    pl_client_close(worker);
    int status;
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct pl_client_conf late = {.path = path, .dim = DIM, .wait = 0.25};
    assert_int_not_equal(pl_client_open(&late, &none, why, sizeof why), PL_OK);
    if (!strstr(why, "after 0.25 s")) fail_msg("%s", why);
    still_comma();
}

/* --- loops ---------------------------------------------------------------------------------- */

TEST(loops_write_a_point) {
    char log[200], line[8000];
    float memory[64][DIM] = {{0}};
    int n_given = 0, n_lines = 0;
    struct pl_loop_step step;
    pl_loop *loop = NULL;
    pl_run *run = NULL;
    snprintf(log, sizeof log, "%s", folder_path("loop"));
    comma_or_skip();
    pl_setup *s = make("policy=kasync:k=2 workers=3 updates=20 lr=0.25 delay=exp:mean=0.5 "
                       "eval-every=0.5 weight-decay=0.125");
    assert_int_equal(pl_setup_set(s, "log", log), 0);
    if (pl_loop_open(s, DIM, &loop)) fail_msg("%s", pl_setup_why(s));
    do {
        if (pl_loop_next(loop, &step)) fail_msg("%s", pl_setup_why(s));
        for (uint32_t i = 0; step.what == PL_LOOP_MEMORY && i < step.n; i++)
            assert_int_equal(pl_loop_give(loop, memory[n_given++]), 0);
        assert_true(n_given <= 64);
        if (step.what == PL_LOOP_GRADIENT) assert_int_equal(pl_loop_gradient(loop, 0.5, 1), 0);
        if (step.what == PL_LOOP_SCORE) assert_int_equal(pl_loop_score(loop, 1.5, 2.5, 0.75), 0);
    } while (step.what != PL_LOOP_END);
    assert_int_equal(pl_loop_run(loop, &run), 0);
    own_run(run);
    assert_non_null(strstr(pl_run_json(run), "\"lr\":0.25,"));
    pl_loop_close(loop);
    FILE *f = fopen(log, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_error_t error;
        json_t *row = json_loads(line, 0, &error);
        if (!row) fail_msg("%s: %s", error.text, line);
        json_decref(row);
        n_lines++;
    }
    fclose(f);
    assert_true(n_lines > 2 && has(log, "\"loss\":1.5"));
    still_comma();
}

/* --- HTTP ----------------------------------------------------------------------------------- */

static _Atomic uint64_t now_ns;

static uint64_t clock_of_test(void) {
    return atomic_load(&now_ns);
}

TEST(served_texts_have_a_point) {
    struct pl_metrics *m = NULL;
    struct pl_why why = {.text = ""};
    struct pl_metrics_now now = {.updates = 0, .loss = NAN};
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n";
    char text[2000] = "";
    size_t n = 0;
    ssize_t got;
    comma_or_skip();
    if (pl_metrics_open("0", clock_of_test, &m, &why)) {
        print_message("skipped: %s\n", why.text);
        setlocale(LC_NUMERIC, "C");
        skip();
    }
    pl_metrics_publish(m, &now);
    atomic_fetch_add(&now_ns, UINT64_C(9000000000));
    now.updates = 2; /* 4.5 s each */
    pl_metrics_publish(m, &now);
    atomic_fetch_add(&now_ns, UINT64_C(100000000000));
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)pl_metrics_port(m)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_true(send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0);
    while ((got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0) n += (size_t)got;
    close(fd);
    if (!strstr(text, "no update for 100 s (mean 4.5 s per update)")) fail_msg("%s", text);
    pl_metrics_close(m);
    still_comma();
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
