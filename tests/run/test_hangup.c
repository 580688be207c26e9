/* Workers of other programs that are evicted, or that do not answer: the server hangs up on them,
 * and another program gets their place. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "suite_train.h"
#include "test.h"

enum { DIM = 5 };

struct server {
    pid_t pid;
    char path[200], out[200];
};

static struct server serve(const char *options) {
    static int n;
    struct server s;
    char all[500];
    skip_processes();
    snprintf(s.path, sizeof s.path, "%s.%d", folder_path("socket"), n);
    snprintf(s.out, sizeof s.out, "%s.%d", folder_path("out"), n++);
    snprintf(all, sizeof all,
             "model=external:dim=5 workers=2 method=async updates=1000000000 time=60 lr=0.001 "
             "wait=20 requests=any listen=%s %s",
             s.path, options);
    s.pid = fork();
    assert_true(s.pid >= 0);
    if (s.pid) return s;
    pl_setup *setup = make(all);
    pl_run *run = NULL;
    FILE *f = fopen(s.out, "w");
    pl_setup_log(setup, NULL, NULL);
    int rc = pl_train(setup, &run);
    if (f) fprintf(f, "%s\n", rc ? pl_setup_why(setup) : pl_run_json(run));
    if (f) fclose(f);
    pl_run_free(run);
    pl_setup_free(setup);
    _exit(rc ? 1 : 0);
}

/* The end of the run: whether its JSON object has this text. */
static void served(const struct server *s, const char *has) {
    char text[8192] = "";
    int status;
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    FILE *f = fopen(s->out, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    if (!WIFEXITED(status) || WEXITSTATUS(status) || !strstr(text, has))
        fail_msg("%s\nhas no %s", text, has);
}

static pl_client *join(const struct server *s, char why[400]) {
    pl_client *c = NULL;
    struct pl_client_conf conf = {.path = s->path, .dim = DIM};
    why[0] = '\0';
    pl_client_open(&conf, &c, why, 400);
    return c;
}

static pl_client *join_now(const struct server *s) {
    char why[400];
    pl_client *c = join(s, why);
    if (!c) fail_msg("%s", why);
    return c;
}

/* Tries for up to 20 s, as long as all places are taken. */
static pl_client *join_later(const struct server *s) {
    char why[400];
    pl_client *c = NULL;
    for (int i = 0; !c && i < 2000; i++) {
        c = join(s, why);
        if (!c && !strstr(why, "has all its 2 workers already")) fail_msg("%s", why);
        if (!c) nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    if (!c) fail_msg("nobody was hung up on: %s", why);
    return c;
}

/* One task, with this value in every coordinate of the result. */
static int answer(pl_client *c, float value, int *worker) {
    struct pl_client_task t;
    int rc = pl_client_pull(c, 20, &t);
    if (rc) return rc;
    for (int i = 0; i < DIM; i++) t.out[i] = value;
    if (worker) *worker = t.worker;
    nanosleep(&(struct timespec){0, 1000000}, NULL);
    assert_int_equal(pl_client_push(c, DIM, 1, 1), PL_OK);
    return PL_OK;
}

static void *work(void *client) {
    int rc;
    while ((rc = answer(client, 0, NULL)) == PL_OK) continue;
    assert_int_equal(rc, PL_ECANCELLED); /* the run has ended */
    return NULL;
}

/* A server with two workers of other programs: a, which computes in a thread, and b, the test's. */
struct scene {
    struct server server;
    pl_client *a, *b;
    pthread_t thread;
};

static struct scene begin(const char *options) {
    struct scene s = {.server = serve(options)};
    s.a = join_now(&s.server);
    s.b = join_now(&s.server);
    assert_int_equal(pthread_create(&s.thread, NULL, work, s.a), 0);
    return s;
}

/* The task that b does not answer in time. */
static struct pl_client_task pull_b(const struct scene *s) {
    struct pl_client_task t;
    assert_int_equal(pl_client_pull(s->b, 20, &t), PL_OK);
    return t;
}

/* This client does 20 tasks and ends the run; returns its place. */
static int last_tasks(pl_client *c) {
    int worker = -1;
    for (int i = 0; i < 20; i++) assert_int_equal(answer(c, 0, &worker), PL_OK);
    assert_int_equal(pl_client_end(c), PL_OK);
    work(c);
    return worker;
}

/* c, if it is not NULL, has taken the place of b. */
static void end(struct scene *s, pl_client *c, const char *has) {
    pl_client_close(s->b);
    pl_client_close(c);
    pthread_join(s->thread, NULL);
    pl_client_close(s->a);
    served(&s->server, has);
}

TEST(test_frozen) {
    struct scene s = begin("evict=0.3");
    struct pl_client_task t = pull_b(&s), none; /* and never answers */
    pl_client *c = join_later(&s.server);
    assert_int_equal(pl_client_pull(s.b, 20, &none), PL_ERUN);
    if (!strstr(pl_client_why(s.b), "did not answer for too long; and it cannot join again"))
        fail_msg("%s", pl_client_why(s.b));
    assert_int_equal(last_tasks(c), t.worker);
    end(&s, c, "\"frozen\":1");
}

/* A result that comes after the server has hung up is not used for anything. */
TEST(test_late) {
    struct scene s = begin("evict=0.3");
    struct pl_client_task t = pull_b(&s), next;
    pl_client *c = join_later(&s.server);
    assert_int_equal(pl_client_pull(c, 20, &next), PL_OK);
    for (int i = 0; i < DIM; i++) next.out[i] = 0;
    for (int i = 0; i < DIM; i++) t.out[i] = NAN; /* memory of its own, not c's */
    pl_client_push(s.b, DIM, 1, 1);
    for (int i = 0; i < DIM; i++) assert_true(next.out[i] == 0);
    assert_int_equal(pl_client_push(c, DIM, 1, 1), PL_OK);
    last_tasks(c);
    end(&s, c, "\"rejected\":0");
}

/* A worker that was only slow joins again by itself, if its place is still free. */
TEST(test_slow) {
    struct scene s = begin("evict=0.3");
    pull_b(&s);
    sleep(2); /* the server looks once per second */
    pl_client_push(s.b, DIM, 1, 1);
    last_tasks(s.b);
    end(&s, NULL, "\"frozen\":1");
}

TEST(test_evicted) {
    struct scene s = begin("evict=off");
    int worker = -1, rc;
    while ((rc = answer(s.b, NAN, &worker)) == PL_OK) continue;
    assert_int_equal(rc, PL_ERUN);
    if (!strstr(pl_client_why(s.b), "the server hung up: this worker was evicted"))
        fail_msg("%s", pl_client_why(s.b));
    pl_client *c = join_later(&s.server);
    assert_int_equal(last_tasks(c), worker);
    end(&s, c, "\"evicted\":1");
}

int main(void) {
    return run_all_tests(folder_make, folder_clear);
}
