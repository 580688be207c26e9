/* How real runs of processes come to an end, or do not: signals to everybody, workers that never
 * answer, a run that nobody has come to yet. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "api/setup.h"
#include "setups.h"

#define WORKERS 4

struct crew {
    int pid[WORKERS];
    int n_struck, n_looks;
    char log[4096];
};

static void note_pid(void *ctx, int worker, int pid) {
    ((struct crew *)ctx)->pid[worker] = pid;
}

static void say(void *ctx, int level, const char *sentence) {
    pl_append(((struct crew *)ctx)->log, 4096, "%s\n", sentence);
}

/* A small run of `f`, told by pairs of key and value up to a NULL. */
static pl_setup *make(const struct pl_function *f, struct crew *crew, const char *const *option) {
    pl_setup *s = plain();
    pl_setup_set(s, "method", "async");
    pl_setup_function(s, f);
    pl_setup_log(s, say, crew);
    s->made = note_pid;
    s->made_ctx = crew;
    for (; *option; option += 2)
        if (pl_setup_set(s, option[0], option[1])) fail_msg("%s", pl_setup_why(s));
    return s;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int bowl(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss) {
    memcpy(g, w, 3 * sizeof *g);
    *loss = 0;
    return 0;
}

/* SIGTERM to the whole group, as from timeout or a batch system, is the server's affair. */
static int term_all(void *ctx, const struct pl_point *p) {
    struct crew *crew = ctx;
    for (int i = 0; p->updates > 5 && i < WORKERS; i++) {
        kill(crew->pid[i], SIGTERM); /* they are not waited for before the run ends */
        crew->n_struck++;
    }
    return p->updates > 50 && crew->n_struck > 0;
}

TEST(signals_are_left_to_the_server) {
    const struct pl_function f = {.dim = 3, .gradient = bowl};
    struct crew crew = {.log = ""};
    pl_setup *s = make(
        &f, &crew,
        (const char *const[]){"workers", "4", "delay", "exp:mean=0.01", "updates", "100000", NULL});
    pl_setup_watch(s, NULL, term_all, &crew);
    pl_run *run = train(s);
    assert_true(pl_run_number(run, "updates") > 50);
    assert_true(pl_run_number(run, "tasks.lost") == 0);
    /* that a worker is slow may be said */
    if (strstr(crew.log, "the run continues") || strstr(crew.log, "no worker is left") ||
        strstr(crew.log, "stopped from outside") || strstr(crew.log, "does not answer"))
        fail_msg("%s", crew.log);
}

/* A frozen worker whose tasks are cancelled, again and again, is named all the same; and the run is
 * over when it ends, not when the frozen one has been waited for. */
static int freeze_one(void *ctx, const struct pl_point *p) {
    struct crew *crew = ctx;
    if (p->updates > 50 && crew->n_struck == 0) {
        kill(crew->pid[1], SIGSTOP);
        crew->n_struck++;
    }
    return strstr(crew->log, "stopped from outside") || ++crew->n_looks > 6000; /* ten minutes */
}

TEST(frozen_workers_are_named_though_cancelled) {
    const struct pl_function f = {.dim = 3, .gradient = bowl};
    struct crew crew = {.log = ""};
    pl_setup *s = make(&f, &crew,
                       (const char *const[]){"workers", "4", "policy", "ksync:k=3,cancel=yes",
                                             "delay", "exp:mean=0.005", "updates", "100000", NULL});
    pl_setup_watch(s, NULL, freeze_one, &crew);
    double began = now();
    pl_run *run = train(s);
    double passed = now() - began;
    if (!strstr(crew.log, "worker 2 is stopped from outside")) fail_msg("not named: %s", crew.log);
    if (pl_run_number(run, "time") > passed - 2)
        fail_msg("%g s are told of %g s", pl_run_number(run, "time"), passed);
}

/* Workers that die before their first answer, however often they are made: the run ends. */
static int die(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss) {
    if (getpid() != *(pid_t *)ctx) _exit(3);
    return bowl(ctx, w, b, g, loss); /* the server evaluates */
}

static int a_while(void *ctx, const struct pl_point *p) {
    return ++((struct crew *)ctx)->n_looks > 6000; /* ten minutes */
}

TEST(stillborn_workers_are_given_up) {
    pid_t server = getpid();
    const struct pl_function f = {.dim = 3, .gradient = die, .ctx = &server};
    struct crew crew = {.log = ""};
    pl_setup *s = make(
        &f, &crew, (const char *const[]){"workers", "2", "respawn", "yes", "updates", "10", NULL});
    pl_setup_watch(s, NULL, a_while, &crew);
    pl_run *run = train(s);
    const char *trouble = pl_run_text(run, "trouble");
    assert_true(trouble && strstr(trouble, "every worker has gone"));
    if (!strstr(crew.log, "failed with status 3") || !strstr(crew.log, "will not be restarted"))
        fail_msg("not told: %s", crew.log);
}

/* Ended while it waits for its first worker: the run has lasted no longer than it took. */
static int at_once(void *ctx, const struct pl_point *p) {
    return 1;
}

TEST(a_run_may_end_before_it_begins) {
    const struct pl_function f = {.dim = 3, .gradient = bowl};
    struct crew crew = {.log = ""};
    char path[64];
    snprintf(path, sizeof path, "ending-%d.socket", (int)getpid());
    pl_setup *s = make(
        &f, &crew, (const char *const[]){"spawn", "none", "listen", path, "updates", "10", NULL});
    pl_setup_watch(s, NULL, at_once, NULL);
    double began = now();
    pl_run *run = train(s);
    assert_true(pl_run_number(run, "time") <= now() - began);
    assert_true(pl_run_number(run, "updates") == 0);
}

int main(void) {
    const char *sanitize = getenv("SANITIZE");
    if (sanitize && strstr(sanitize, "thread")) {
        printf("processes are not tested under thread sanitizer\n");
        return 0;
    }
    return run_all_tests(NULL, NULL);
}
