/* The server believes nobody: results that are not finite, claims that cannot be true, workers that
 * fail again and again, and workers that freeze. A run in which some workers do all of this ends as
 * if they were not there, in the simulator as in reality. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "suite_train.h"
#include "sys/process.h"
#include "transport/client_link.h"

/* --- clients that lie ------------------------------------------------------------------------ */

enum lie { HONEST, NOT_FINITE, SCRIBBLES, SAMPLES, LOSS, LIES };
enum { CLIENTS = 5 };

struct lies {
    atomic_int *joined; /* seen by the clients too */
    bool filters, told; /* a filter is tested; the log must tell of the liar */
    char log[4096];
};

/* Has no good manners: it writes into the segment and the mailbox by itself. */
static void be_a_client(const char *path, enum lie lie, atomic_int *joined) {
    struct pl_link *link = NULL;
    struct pl_order o;
    struct pl_why why = {""};
    struct pl_rng rng;
    struct pl_welcome welcome;
    const struct pl_client_link_conf conf = {
        .path = path, .wait_ns = 120000000000u, .client = {.can = ~(uint64_t)0}};
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, (uint32_t)getpid(), 0);
    if (pl_client_link_connect(&conf, &link, &welcome, &why)) _exit(9);
    atomic_fetch_add(joined, 1);
    size_t dim = welcome.dim;
    while (pl_shm.link.pull(link, &o) == PL_OK) {
        struct pl_result r = {.task = o.task, .samples = 1};
        const float *w = o.input[0].v;
        if (o.base) {
            for (size_t i = 0; i < dim; i++) {
                double sum = 0;
                for (int k = 0; k < o.n_inputs; k++) sum += o.input[k].c * (double)o.input[k].v[i];
                o.base[i] = lie == SCRIBBLES ? NAN : (float)sum;
            }
            pl_shm.link.push(link, &(struct pl_result){.task = o.task, .is_base = true});
            w = o.base;
        }
        quadratic(NULL, w, NULL, o.out, &r.loss);
        for (size_t i = 0; i < dim; i++) o.out[i] += 0.2f * ((float)pl_rng_unit(&rng) - 0.5f);
        for (size_t i = 0; o.stays && i < dim; i++) o.out[i] = w[i] - 0.1f * o.out[i];
        if (lie == NOT_FINITE) o.out[3] = NAN;
        if (lie == SAMPLES) r.samples = INT32_MAX;
        if (lie == LOSS) r.loss = o.task % 2 ? 1e300 : NAN;
        pl_shm.link.push(link, &r);
        for (int i = 0; lie == SCRIBBLES && i < 2000; i++)
            for (size_t k = 0; k < dim; k++) o.out[k] = i % 3 ? NAN : INFINITY;
        nap(1);
    }
    pl_shm.link.detach(link);
    _exit(0);
}

/* All have joined, the liar is known, and there were enough updates. A filter may doubt the honest
 * ones as well: then there was enough time for them. */
static int until_known(void *ctx, const struct pl_point *p) {
    const struct lies *l = ctx;
    bool enough = l->filters ? p->time >= 0.7 : p->updates >= 300;
    return enough && atomic_load(l->joined) == CLIENTS && (!l->told || strstr(l->log, "rejected"));
}

static void check_lie(const char *method, enum lie lie) {
    struct lies l = {.filters = strstr(method, "filter=") != NULL,
                     .told = lie == NOT_FINITE || lie == SAMPLES || lie == LOSS};
    char name[64];
    snprintf(name, sizeof name, "lie%d.socket", (int)lie);
    const char *path = folder_path(name);
    pid_t pid[CLIENTS];
    l.joined =
        mmap(NULL, sizeof *l.joined, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(l.joined != MAP_FAILED);
    for (int i = 0; i < CLIENTS; i++)
        if ((pid[i] = fork()) == 0) be_a_client(path, i == 1 ? lie : HONEST, l.joined);
    const struct pl_function f = {.dim = 5, .gradient = quadratic};
    pl_setup *s = make("workers=5 method=%s spawn=none updates=1000000000 time=3600 lr=0.1 "
                       "wait=300 listen=%s",
                       method, path);
    pl_setup_function(s, &f);
    pl_setup_log(s, say, l.log);
    pl_setup_watch(s, NULL, until_known, &l);
    pl_run *run = train(s);
    check_books(run);
    assert_true(l.filters || number(run, "updates") >= 300);
    assert_false(pl_run_diverged(run));
    size_t n;
    const float *w = pl_run_weights(run, &n);
    for (int i = 0; i < 5; i++)
        if (!isfinite(w[i])) fail_msg("%s, lie %d: the model is lost", method, lie);
    for (int i = 0; !l.filters && i < 5; i++)
        if (!(fabs((double)w[i] - i) < 0.2)) fail_msg("%s, lie %d: %g", method, lie, (double)w[i]);
    if (l.told) {
        if (!(number(run, "tasks.rejected") >= 1)) fail_msg("%s, lie %d: believed", method, lie);
        if (!strstr(l.log, "rejected")) fail_msg("%s, lie %d: not told: %s", method, lie, l.log);
    }
    munmap(l.joined, sizeof *l.joined);
    for (int i = 0; i < CLIENTS; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("%s, lie %d: client %d ended with %d", method, lie, i, status);
    }
}

TEST(test_clients_that_lie) {
    skip_processes();
    for (int lie = HONEST; lie < LIES; lie++) {
        check_lie("async", (enum lie)lie);
        check_lie("ksync:k=3", (enum lie)lie);
        check_lie("ad-psgd", (enum lie)lie);
    }
    check_lie("async filter=kardam:f=0", NOT_FINITE);
    check_lie("async filter=kardam:f=0", SCRIBBLES);
    check_lie("ksync:k=4 reduce=krum:f=0", NOT_FINITE);
    check_lie("ksync:k=4 reduce=krum:f=0", SCRIBBLES);
    check_lie("ksync:k=4 reduce=median", NOT_FINITE);
    check_lie("async correct=gap", SCRIBBLES);
}

/* --- workers that keep failing -------------------------------------------------------------- */

static int until_evicted(void *ctx, const struct pl_point *p) {
    return p->updates >= 8 && strstr(ctx, "evicted");
}

/* One bad worker, however fast, ends nobody's run; the simulator does the same with it. */
TEST(test_quarantine) {
    char log[4096] = "";
    static const char options[] =
        "method=kasync:k=2 workers=4 data=digits model=softmax attack=nan:f=1 updates=300 "
        "delay=3*const:t=0.1|const:t=0.002";
    for (size_t i = 0; i < n_spawns(); i++) {
        char all[400];
        snprintf(all, sizeof all, "%s %s", options, spawns[i]);
        pl_setup *s = make("%s", all);
        pl_setup_log(s, say, log);
        log[0] = '\0';
        pl_setup_watch(s, NULL, until_evicted, log);
        pl_run *real = train(s), *simulated = NULL;
        pl_setup_watch(s, NULL, NULL, NULL);
        pl_setup_set(s, "updates", "30");
        simulated = simulate(s);
        static const char *const same[] = {"tasks.rejected", "suspended.quarantined",
                                           "suspended.evicted", "suspended.frozen"};
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            if (number(real, same[k]) != number(simulated, same[k]))
                fail_msg("%s: %g really, %g simulated", same[k], number(real, same[k]),
                         number(simulated, same[k]));
        assert_true(number(real, "suspended.evicted") == 1);
        assert_true(number(real, "suspended.quarantined") == 3);
        assert_true(number(real, "updates") >= 8 && number(simulated, "updates") == 30);
        assert_non_null(strstr(log, "worker 4 is quarantined"));
        assert_non_null(strstr(log, "worker 4 is evicted"));
    }
    /* barriers no longer wait for it */
    pl_setup *s = make("method=sync workers=3 data=digits model=softmax attack=nan:f=1 updates=20");
    pl_run *run = simulate(s);
    assert_true(number(run, "updates") == 20 && !pl_run_diverged(run));
    /* all fail: that is the model */
    s = make("method=async workers=3 data=digits model=softmax attack=nan:f=3 updates=20");
    run = simulate(s);
    assert_true(pl_run_diverged(run) && number(run, "updates") == 0);
    assert_true(number(run, "tasks.rejected") < 30);
}

/* A worker whose result of an older version waits in the open group says nothing about the version
 * on which the others fail. */
TEST(test_healthy_workers_of_a_run_that_diverges) {
    for (int seed = 1; seed <= 20; seed++)
        for (int workers = 3; workers <= 5; workers++) {
            char options[200];
            snprintf(options, sizeof options,
                     "method=kasync:k=2 workers=%d model=quadratic lr=1e6 updates=500 "
                     "delay=exp:mean=1 seed=%d",
                     workers, seed);
            pl_setup *s = make("%s", options);
            pl_run *run = simulate(s);
            assert_true(pl_run_diverged(run));
            if (number(run, "suspended.quarantined") != 0)
                fail_msg("%s: %g quarantines", options, number(run, "suspended.quarantined"));
        }
}

/* One worker with huge results makes a model that is finite, and of which the gradients of the
 * others overflow, while its own do not: they are not to blame. */
TEST(test_healthy_workers_of_a_huge_model) {
    static const char *const runs[] = {"method=async workers=3", "method=sync workers=6"};
    for (int seed = 1; seed <= 20; seed++)
        for (int i = 0; i < 2; i++) {
            pl_setup *s = make("%s model=softmax data=digits:samples=200,test=50 lr=1e6 seed=%d "
                               "attack=gaussian:f=1,sigma=1e30 delay=exp:mean=1 updates=2000",
                               runs[i], seed);
            pl_run *run = simulate(s);
            assert_true(pl_run_diverged(run));
            if (number(run, "suspended.quarantined") != 0)
                fail_msg("%s, seed %d: %g quarantines", runs[i], seed,
                         number(run, "suspended.quarantined"));
        }
}

/* --- workers that freeze -------------------------------------------------------------------- */

struct victim {
    atomic_int pid[8], n_made;
    int n_updates; /* the run had when the worker was frozen, */
    double since;  /* and when that was */
    bool frozen, woken, wakes;
    int call; /* a pipe to a client */
    const char *log;
};

static void note_pid(void *ctx, int worker, int pid) {
    struct victim *v = ctx;
    atomic_store(&v->pid[worker], pid);
    atomic_fetch_add(&v->n_made, 1);
}

/* Freezes worker 2 after 5 updates; when the run is 20 further, wakes it. */
static int freeze_and_wake(void *ctx, const struct pl_point *p) {
    struct victim *v = ctx;
    if (!v->frozen && p->updates >= 5) {
        kill(atomic_load(&v->pid[1]), SIGSTOP);
        v->frozen = true;
        v->n_updates = (int)p->updates;
    } else if (v->wakes && v->frozen && !v->woken && p->workers < 3 &&
               p->updates >= (uint64_t)v->n_updates + 20) {
        kill(atomic_load(&v->pid[1]), SIGCONT);
        v->woken = true;
    } else if (v->woken || !v->wakes) {
        return p->workers == 3 && p->updates >= (uint64_t)v->n_updates + 40;
    }
    return 0;
}

static void check_frozen(const char *more, bool wakes) {
    struct victim v = {.wakes = wakes};
    char log[4096] = "";
    const char *tape = folder_path(wakes ? "woken.rec" : "restarted.rec");
    pl_setup *s =
        make("method=sync workers=3 data=digits model=softmax evict=0.5 updates=1000000 time=3600 "
             "delay=const:t=0.002 local=gradient:beta=0.9 record=%s %s",
             tape, more);
    pl_setup_log(s, say, log);
    pl_setup_watch(s, NULL, freeze_and_wake, &v);
    s->made = note_pid;
    s->made_ctx = &v;
    pl_run *run = train(s);
    check_books(run);
    if (!v.frozen || v.woken != wakes || number(run, "time") >= 3600)
        fail_msg("frozen %d, woken %d, %g s: %s", v.frozen, v.woken, number(run, "time"), log);
    /* on a machine that stands still, others may count as frozen too */
    int n_frozen = (int)number(run, "suspended.frozen"), n_made = atomic_load(&v.n_made);
    assert_true(n_frozen >= 1);
    assert_true(number(run, "tasks.lost") >= 1);
    assert_true(wakes ? n_made == 3 : n_made >= 4 && n_made <= 3 + n_frozen);
    assert_non_null(strstr(log, "worker 2 does not answer"));
    check_same_replay(run, plain(), tape);
}

TEST(test_frozen) {
    skip_processes();
    check_frozen("", true);
    check_frozen("respawn=yes", false);
}

/* Stops the only worker after 5 updates. */
static int freeze_the_only_one(void *ctx, const struct pl_point *p) {
    struct victim *v = ctx;
    if (!v->frozen && p->updates >= 5) {
        kill(atomic_load(&v->pid[0]), SIGSTOP);
        v->frozen = true;
    }
    return atomic_load(&v->n_made) >= 2 && p->updates >= 20;
}

/* Without it nothing happens until it is replaced, but with it nothing happens either. */
TEST(test_the_only_worker_is_replaced) {
    skip_processes();
    struct victim v = {0};
    pl_setup *s = make("method=sync workers=1 data=digits model=softmax evict=0.5 updates=1000000 "
                       "time=600 delay=const:t=0.002 respawn=yes");
    pl_setup_watch(s, NULL, freeze_the_only_one, &v);
    s->made = note_pid;
    s->made_ctx = &v;
    pl_run *run = train(s);
    check_books(run);
    assert_true(number(run, "updates") >= 20);
    /* on a machine that stands still, a replacement may count as frozen too */
    assert_true(number(run, "suspended.frozen") >= 1);
    assert_int_equal(atomic_load(&v.n_made), 1 + (int)number(run, "suspended.frozen"));
}

static double frozen_time(const char *evict, const char *lines, const char *key) {
    const char *path = folder_path("script");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(lines, f);
    fclose(f);
    pl_setup *s =
        make("policy=ksync workers=2 model=none delay=const:t=1 updates=40 evict=%s script=%s",
             evict, path);
    pl_run *run = simulate(s);
    check_books(run);
    double value = number(run, key);
    return value;
}

/* Two workers, a second a task, one frozen after 5.5 s: when the last update comes is computed by
 * hand. The deadline is the task's second and 10 more, or 3 more. */
TEST(test_frozen_in_the_simulator) {
    assert_true(frozen_time("off", "5.5 freeze 2 100\n", "time") == 140);
    assert_true(frozen_time("auto", "5.5 freeze 2 100\n", "time") == 50);
    assert_true(frozen_time("3", "5.5 freeze 2 100\n", "time") == 43);
    assert_true(frozen_time("3", "5.5 freeze 2 100\n", "suspended.frozen") == 1);
    assert_true(frozen_time("3", "5.5 freeze 2 2\n", "time") == 42);
    assert_true(frozen_time("3", "5.5 freeze 2 2\n", "suspended.frozen") == 0);
    /* it wakes after 20 s, and is waited for again: it joins in the middle of a task */
    assert_true(frozen_time("3", "5.5 freeze 2 20\n", "time") == 44);
    assert_true(frozen_time("3", "5.5 freeze 2 20\n", "tasks.lost") == 1);
    /* the last worker that is left is not evicted */
    assert_true(fabs(frozen_time("3", "0 leave 1\n5.5 freeze 2 20\n", "time") - 60) < 1e-9);
}

/* --- signals and processes ------------------------------------------------------------------- */

static int report_signals(void *arg) {
    struct sigaction a;
    int *ignored = arg, mask = 0;
    for (int i = 0; ignored[i]; i++)
        if (sigaction(ignored[i], NULL, &a) == 0 && a.sa_handler == SIG_IGN) mask |= 1 << i;
    return mask;
}

static void on_signal(int number_) {}

/* What nohup and the like set stays set, and handlers of the server's do not. */
TEST(test_signals_of_workers) {
    int asked[] = {SIGHUP, SIGINT, SIGTERM, SIGXFSZ, SIGUSR1, SIGUSR2, 0};
    char how[96];
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGUSR1, on_signal);
    int pid = pl_process_start("signals", report_signals, asked);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    assert_true(pid > 0);
    pl_process_await(pid, 120000000000u, how, sizeof how);
    assert_string_equal(how, "failed with status 15"); /* the first four */
}

/* The number of processes is limited for a while, as by ulimit -u; root is not limited. */
static int limit_and_lift(void *ctx, const struct pl_point *p) {
    struct victim *v = ctx;
    struct rlimit now, one;
    getrlimit(RLIMIT_NPROC, &now);
    one = (struct rlimit){1, now.rlim_max};
    if (!v->frozen && p->updates >= 5) {
        setrlimit(RLIMIT_NPROC, &one);
        kill(atomic_load(&v->pid[1]), SIGKILL);
        v->frozen = true;
        v->since = p->time;
        v->n_updates = 0;
        if (write(v->call, "", 1) != 1) return 1; /* the client may come */
    } else if (v->frozen && !v->woken && v->n_updates == 0 && strstr(v->log, "worker 2 left")) {
        v->n_updates = 1; /* the client was there */
        v->since = p->time;
    } else if (v->frozen && !v->woken && v->n_updates == 1 && p->time > v->since + 0.3) {
        one.rlim_cur = now.rlim_max;
        setrlimit(RLIMIT_NPROC, &one);
        v->woken = true;
    }
    return v->woken && p->workers == 2;
}

/* Takes the first place that is free, and leaves after some tasks. */
static void visit(const char *path, int call) {
    char byte;
    struct pl_link *link = NULL;
    struct pl_order o;
    struct pl_why why = {""};
    struct pl_welcome welcome;
    const struct pl_client_link_conf conf = {
        .path = path, .wait_ns = 120000000000u, .client = {.can = ~(uint64_t)0}};
    if (read(call, &byte, 1) != 1) _exit(8);
    for (int tries = 0; pl_client_link_connect(&conf, &link, &welcome, &why); tries++) {
        if (tries == 24000) _exit(9);
        nap(5);
    }
    size_t dim = welcome.dim;
    for (int n = 0; n < 150 && pl_shm.link.pull(link, &o) == PL_OK; n++) {
        memset(o.out, 0, dim * sizeof *o.out);
        pl_shm.link.push(link, &(struct pl_result){.task = o.task, .samples = 1, .loss = 1});
        nap(2);
    }
    pl_shm.link.detach(link);
    _exit(0);
}

/* A worker dies and cannot be restarted; a client takes its place, and leaves; the worker still
 * cannot be restarted; then it can. */
TEST(test_respawn_is_tried_again) {
    skip_processes();
    pid_t child = fork();
    if (child == 0) {
        struct victim v = {0};
        char log[4096] = "", path[64];
        if (geteuid() == 0 && (setgid(65533) || setuid(65533))) _exit(77);
        snprintf(path, sizeof path, "/tmp/paceline-trust-%d", (int)getpid());
        int ends[2];
        if (pipe(ends)) _exit(1);
        v.call = ends[1];
        v.log = log;
        if (fork() == 0) {
            close(ends[1]);
            visit(path, ends[0]);
        }
        pl_setup *s =
            make("method=async workers=2 model=quadratic:dim=5 updates=1000000000 time=600 "
                 "respawn=yes delay=const:t=0.002 listen=%s",
                 path);
        pl_run *run = NULL;
        pl_setup_log(s, say, log);
        pl_setup_watch(s, NULL, limit_and_lift, &v);
        s->made = note_pid;
        s->made_ctx = &v;
        if (pl_train(s, &run)) {
            fprintf(stderr, "%s\n", pl_setup_why(s));
            _exit(1);
        }
        bool ok = v.woken && number(run, "time") < 600 && atomic_load(&v.n_made) == 3 &&
                  strstr(log, "for worker 2: Resource temporarily unavailable; ") &&
                  strstr(log, "tries again") && strstr(log, "worker 2 left");
        if (!ok) fprintf(stderr, "made %d, woken %d: %s\n", v.n_made, v.woken, log);
        _exit(ok ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

ALL_TESTS_FROM_SEED(15, folder_make, folder_clear)
