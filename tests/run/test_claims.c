/* What programs that join claim and ask for, in a run that only they can compute: what is rejected
 * is in no number that is reported, and nobody can fill the log. */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "suite_train.h"
#include "transport/client_link.h"

enum { DIM = 5 };

struct client {
    const char *path;
    double loss;
    bool lies;
    int n_requests;
    pthread_t thread;
};

/* Computes for ever; a liar claims every other time what cannot be. */
static void *work(void *arg) {
    const struct client *g = arg;
    struct pl_link *link = NULL;
    struct pl_order o;
    struct pl_why why = {""};
    struct pl_welcome welcome;
    const struct pl_client_link_conf conf = {
        .path = g->path, .wait_ns = 120000000000u, .client = {.can = ~(uint64_t)0}};
    if (pl_client_link_connect(&conf, &link, &welcome, &why)) return NULL;
    for (int i = 0; i < g->n_requests; i++) pl_client_link_say(link, "nonsense", 120000000000u);
    for (int n = 0; pl_shm.link.pull(link, &o) == PL_OK; n++) {
        struct pl_result r = {.task = o.task, .samples = 1, .loss = g->loss};
        for (int i = 0; i < DIM; i++) o.out[i] = 0;
        if (g->lies && n % 2) {
            r.samples = INT32_MAX;
            r.loss = -1e6;
        }
        pl_shm.link.push(link, &r);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    pl_shm.link.detach(link);
    return NULL;
}

static pl_run *run_with(struct client *g, int n, const char *options, char log[4096]) {
    char all[400];
    const char *path = folder_path("claims.socket");
    skip_processes();
    snprintf(
        all, sizeof all,
        "model=external:dim=5 workers=%d method=async lr=0.1 eval-every=0.05 wait=300 updates=200 "
        "requests=any listen=%s %s",
        n, path, options);
    for (int i = 0; i < n; i++) {
        g[i].path = path;
        assert_int_equal(pthread_create(&g[i].thread, NULL, work, &g[i]), 0);
    }
    pl_setup *s = make("%s", all);
    pl_setup_log(s, say, log);
    pl_run *run = train(s);
    for (int i = 0; i < n; i++) pthread_join(g[i].thread, NULL);
    return run;
}

TEST(what_is_rejected_is_not_reported) {
    char log[4096] = "";
    struct client g[2] = {{.loss = 3}, {.loss = 3, .lies = true}};
    pl_run *run = run_with(g, 2, "target-loss=1", log);
    const struct pl_point *p;
    assert_true(number(run, "tasks.rejected") > 0);
    assert_true(number(run, "updates") == 200); /* no target was reached by a lie */
    for (size_t i = 0, n = pl_run_points(run, &p); i < n; i++)
        if (isfinite(p[i].loss) && p[i].loss != 3) fail_msg("a loss of %g", p[i].loss);
}

TEST(requests_that_make_no_sense_do_not_fill_the_log) {
    char log[4096] = "";
    struct client g = {.loss = 1, .n_requests = 40};
    run_with(&g, 1, "", log);
    int n = 0;
    for (const char *at = log; (at = strstr(at, "nonsense")); at++) n++;
    if (n < 1 || n > 3) fail_msg("reported %d times: %s", n, log);
    if (!strstr(log, "further ones will not be reported")) fail_msg("%s", log);
}

/* The program warns if the loss has risen, but not if it has fallen below zero. */
TEST(negative_losses_are_no_divergence) {
    const char *program = getenv("PACELINE"), *path = folder_path("negative.socket");
    char command[600], line[400], all[4096] = "";
    skip_processes();
    if (!program) skip();
    struct client g = {.path = path, .loss = -2};
    assert_int_equal(pthread_create(&g.thread, NULL, work, &g), 0);
    snprintf(command, sizeof command,
             "'%s' train --model external:dim=5 --workers 1 --method async --eval-every 0.05 "
             "--updates 100 --wait 300 --listen '%s' 2>&1 >/dev/null",
             program, path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) pl_append(all, sizeof all, "%s", line);
    int status = pclose(f);
    pthread_join(g.thread, NULL);
    if (status != 0 || strstr(all, "diverged")) fail_msg("status %d: %s", status, all);
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
