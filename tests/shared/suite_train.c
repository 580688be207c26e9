#define _GNU_SOURCE
#include "suite_train.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "blocks.h"
#include "sys/thread.h"
#include "transports.h"

/* All ranks go through the same tests; only rank 0 has a run to look at. */
#define NETWORK "spawn=none listen=127.0.0.1:0"
const char *spawns[SPAWNS_MAX];
static size_t n_started, n_all; /* those with workers that the server starts come first */

/* Thread sanitizer cannot follow a fork that makes threads; processes are the other one's part. */
static bool processes_too(void) {
    const char *sanitize = getenv("SANITIZE");
    return !sanitize || !strstr(sanitize, "thread");
}

static void spawns_add(const struct pl_transport *t, bool joins) {
    const char *option = joins ? NETWORK : "spawn=threads";
    if (!joins && t->start->processes) option = "spawn=processes";
    assert_true(n_all < SPAWNS_MAX);
    for (size_t i = 0; i < n_all; i++)
        if (strcmp(spawns[i], option) == 0) fail_msg("which option is for transport %s?", t->name);
    spawns[n_all++] = option;
}

static void spawns_find(void) {
    if (n_all > 0) return;
    if (pl_rank() >= 0) spawns[n_all++] = "transport=mpi";
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < N_TRANSPORTS && pl_rank() < 0; i++) {
            const struct pl_transport *t = transports[i];
            bool joins = !t->port.open, forks = joins || t->start->processes;
            if (joins == (pass == 1) && (!forks || processes_too())) spawns_add(t, joins);
        }
        if (pass == 0) n_started = n_all;
    }
}

size_t n_spawns(void) {
    spawns_find();
    return n_started;
}

size_t n_spawns_and_network(void) {
    spawns_find();
    return n_all;
}

void skip_processes(void) {
    if (!processes_too()) {
        print_message("processes are not tested under thread sanitizer\n");
        skip();
    }
}

void say(void *ctx, int level, const char *sentence) {
    pl_append(ctx, 4096, "%s\n", sentence);
}

pl_setup *make(const char *options, ...) {
    char text[1200];
    va_list ap;
    va_start(ap, options);
    assert_true(vsnprintf(text, sizeof text, options, ap) < (int)sizeof text);
    va_end(ap);
    /* every rank has data of its own */
    pl_setup *s = setup_of("workers=4 model=softmax batch=8 lr=0.05 updates=30 eval-samples=100 "
                           "eval-every=10 threads=2 seed=%llu data=digits:samples=%s",
                           test_seed, pl_rank() >= 0 ? "400,test=50" : "1000,test=200");
    set_all(s, text);
    return s;
}

const char *options_of(const struct pl_entry *method) {
    return needs_blocks(method->name) ? "model=" BLOCKS_MODEL " data=" BLOCKS_DATA : "";
}

void nap(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

void check_same_weights(const pl_run *a, const pl_run *b) {
    size_t n;
    pl_run_weights(a, &n);
    assert_true(n > 0 && same_weights(a, b));
}

pl_run *check_same_replay(const pl_run *run, pl_setup *s, const char *tape) {
    pl_run *replayed = replay(s, tape);
    if (number(replayed, "replay.same") != 1) fail_msg("%s", pl_run_text(replayed, "replay"));
    check_same_weights(run, replayed);
    return replayed;
}

/* --- nothing is left behind ---------------------------------------------------------------- */

int look_around(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

void check_left(int before) {
    if (pl_rank() >= 0) return; /* what MPI has is its own */
    assert_int_equal(look_around(), before);
    errno = 0;
    assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

/* --- over the network ---------------------------------------------------------------------- */

/* Workers that join as soon as the server says where. */
struct joiners {
    char at[40];
    int n, n_started;
    struct pl_thread *thread[8];
    atomic_int n_failed;
};

static void joiner_work(void *arg) {
    struct joiners *j = arg;
    pl_setup *s = NULL;
    int rc = pl_setup_new(&s);
    if (!rc) rc = pl_work(s, j->at, NULL);
    if (rc) print_error("a worker: %s\n", pl_setup_why(s));
    atomic_fetch_add(&j->n_failed, rc != 0);
    pl_setup_free(s);
}

static void joiners_start(void *ctx, int level, const char *sentence) {
    struct joiners *j = ctx;
    const char *port = strstr(sentence, "over HTTP on port ");
    if (!port || j->n_started) return;
    snprintf(j->at, sizeof j->at, "127.0.0.1:%ld", strtol(port + 18, NULL, 10));
    for (; j->n_started < j->n; j->n_started++)
        assert_int_equal(pl_thread_start(joiner_work, j, &j->thread[j->n_started]), 0);
}

/* A run of a server at NETWORK; NULL: what it needs is not built in. */
static pl_run *train_network(pl_setup *s, const char *options) {
    const char *given = strstr(options, "workers=");
    struct joiners j = {.n = given ? (int)strtol(given + 8, NULL, 10) : 4};
    pl_run *run = NULL;
    pl_setup_log(s, joiners_start, &j);
    int rc = pl_train(s, &run);
    for (int i = 0; i < j.n_started; i++) pl_thread_join(j.thread[i]);
    if (rc == PL_EMISSING) return NULL;
    if (rc) fail_msg("%s: %s", options, pl_setup_why(s));
    assert_int_equal(atomic_load(&j.n_failed), 0);
    return own_run(run);
}

/* Blocks of a matrix are not sent. */
static void check_refused(const struct pl_entry *method) {
    pl_run *run = NULL;
    size_t n = n_owned();
    pl_setup *s = make("method=%s %s " NETWORK, method->name, options_of(method));
    assert_int_equal(pl_train(s, &run), PL_EUSAGE);
    assert_non_null(strstr(pl_setup_why(s), "hands out blocks of it"));
    assert_null(strchr(pl_setup_why(s), '\n'));
    release_owned(n);
}

/* --- real and simulated -------------------------------------------------------------------- */

static char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = own_room(1, 1 << 20);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* A real run, and the simulator with the times that were recorded: the same plans, line by line of
 * the event log, and the same weights. */
void check_replay(const char *format, ...) {
    char options[1000];
    va_list ap;
    va_start(ap, format);
    assert_true(vsnprintf(options, sizeof options, format, ap) < (int)sizeof options);
    va_end(ap);
    int before = look_around();
    const char *tape = folder_path("tape"), *real = folder_path("real.txt"),
               *virtual = folder_path("sim.txt");
    unlink(tape);
    unlink(real);
    unlink(virtual);
    size_t n = n_owned();
    pl_setup *s = make("%s record=%s events=%s", options, tape, real);
    pl_run *run = strstr(options, NETWORK) ? train_network(s, options) : train(s);
    if (!run) return;
    check_books(run);
    pl_run *replayed = check_same_replay(run, setup_of("events=%s", virtual), tape);
    char *a = read_text(real), *b = read_text(virtual);
    if (strcmp(a, b) != 0) fail_msg("%s: the event logs differ", options);
    assert_true(number(run, "updates") == number(replayed, "updates"));
    assert_true(number(run, "staleness.mean") == number(replayed, "staleness.mean"));
    release_owned(n);
    check_left(before);
}

void test_every_method_as_simulated(void **state) {
    for (const struct pl_entry *const *m = pl_recipe_family.table; *m; m++) {
        for (size_t i = 0; i < n_spawns_and_network(); i++)
            if (strcmp(spawns[i], NETWORK) == 0 && needs_blocks((*m)->name))
                check_refused(*m);
            else
                check_replay("method=%s %s %s delay=exp:mean=0.001", (*m)->name, spawns[i],
                             options_of(*m));
    }
}

void test_twenty_asynchronous_runs(void **state) {
    for (int i = 0; i < (sanitized ? 4 : 20); i++) {
        check_replay("method=%s workers=%d updates=150 %s optim=momentum seed=%d",
                     i % 3 == 0   ? "async"
                     : i % 3 == 1 ? "gap-aware"
                                  : "kasync:k=2",
                     pl_rank() >= 0 ? 4 : 2 + i % 5, spawns[(size_t)i % n_spawns()], i + 1);
    }
}

int quadratic(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss) {
    *loss = 0;
    for (int i = 0; i < 5; i++) {
        g[i] = w[i] - (float)i;
        *loss += 0.5 * g[i] * g[i];
    }
    return 0;
}

int bad_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g, double *loss) {
    for (int i = 0; i < 3; i++) g[i] = w[i] - 1;
    *loss = 0.5;
    if (b->worker == 1 && b->batch_no % 3 == 2) g[1] = NAN;
    if (b->worker == 2 && b->batch_no == 4) *loss = INFINITY;
    return 0;
}

void test_rejected(void **state) {
    for (size_t i = 0; i < n_spawns(); i++) {
        char log[4096] = "";
        const struct pl_function f = {.dim = 3, .gradient = bad_gradient};
        pl_setup *s = make("policy=ssp:s=3 updates=200 delay=const:t=0.0005 %s", spawns[i]);
        pl_setup_function(s, &f);
        pl_setup_log(s, say, log);
        pl_run *run = train(s);
        if (!run) continue;
        check_books(run);
        assert_true(number(run, "tasks.rejected") > 1);
        if (!strstr(log, "worker 2 sent a gradient that is not finite"))
            fail_msg("not named: %s", log);
        size_t n;
        const float *w = pl_run_weights(run, &n);
        for (size_t j = 0; j < n; j++) assert_true(isfinite(w[j]));
    }
}
