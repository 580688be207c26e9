/* Real runs: every method on threads and on processes does what the simulator does with the same
 * times, bit for bit; whatever happens to workers, the run goes on and its books balance; whatever
 * happens to the server, its workers go and a checkpoint is there to go on from.
 *
 * Over MPI: mpi_ranks.c.
 *
 * Seed: PL_TEST_SEED in the environment. PL_TEST_FAULTS: kills and freezes in the storm. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "blocks.h"
#include "paceline_client.h"
#include "suite_train.h"

#define PIDS 64

/* More workers than cores, more parameters than one tile per thread, groups larger than the
 * workers, weights that are looked ahead of. */
TEST(test_shapes) {
    check_replay("workers=24 method=async updates=200");
    check_replay("policy=kbatchsync:k=19 workers=3 updates=6");
    check_replay("policy=kbatchasync:k=19 workers=3 updates=6 correct=gap optim=momentum");
    check_replay("model=mlp:hidden=4000 workers=3 updates=10 method=ssp");
    check_replay("method=dana-ga workers=5 updates=60");
    check_replay("method=local-sgd:u=3 workers=3 updates=10");
    check_replay("workers=1 method=sync updates=10");
    /* what a worker remembers is what counted, though half of its tasks are cancelled */
    check_replay("method=ksync:k=2 workers=4 local=gradient:beta=0.9 updates=200");
    check_replay("method=abs workers=6 local=gradient:beta=0.9 updates=200 attack=signflip:f=2");
    check_replay("model=quadratic:dim=7 workers=9 updates=300 method=abs");
    /* what a filter believes, it believes again; what it does not counts for the worker's memory */
    check_replay("method=kardam workers=11 updates=100 attack=signflip:f=3,scale=-10");
    check_replay("method=kardam workers=8 updates=60 local=gradient:beta=0.9 optim=momentum");
    check_replay("method=zeno++:eps=0 workers=6 updates=100 attack=signflip:f=2,scale=-10");
    check_replay("policy=ksync:k=3 filter=zeno:eps=0,every=1 workers=6 updates=60 "
                 "local=gradient:beta=0.9 attack=signflip:f=2");
}

/* --- faults -------------------------------------------------------------------------------- */

struct pids {
    atomic_int pid[PIDS];
    atomic_bool over;
    int n_faults;
    atomic_int n_done;
};

static void note_pid(void *ctx, int worker, int pid) {
    struct pids *p = ctx;
    atomic_store(&p->pid[worker], pid);
}

/* The letter of a process's state, and its parent; 0 if there is no such process. */
static char process_state(int pid, int *parent) {
    char path[64], text[256], state = '\0';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return '\0';
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    return end && sscanf(end + 1, " %c %d", &state, parent) == 2 ? state : '\0';
}

/* Signals only children of this process: the number of one that ended may belong to another. */
static void strike(int pid, int number_) {
    int parent = 0;
    if (process_state(pid, &parent) && parent == (int)getpid()) kill(pid, number_);
}

static void *storm(void *arg) {
    struct pids *p = arg;
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    while (!atomic_load(&p->over)) {
        nap(pl_rng_below(&rng, 30));
        int pid = atomic_load(&p->pid[pl_rng_below(&rng, 8)]);
        if (pid <= 0) continue;
        static const int what[] = {SIGKILL, SIGKILL, SIGSTOP, SIGSTOP, SIGCONT, SIGTERM, SIGCONT};
        strike(pid, what[pl_rng_below(&rng, 7)]);
        p->n_done++;
    }
    return NULL;
}

/* Ends the run, and with it the storm, when both have come far enough. */
static int until_done(void *ctx, const struct pl_point *p) {
    struct pids *pids = ctx;
    return pids->n_done >= pids->n_faults && p->updates > 20;
}

static void check_storm(const char *method, int n_faults) {
    int before = look_around();
    char log[4096] = "";
    struct pids pids = {.n_faults = n_faults};
    pl_setup *s =
        make("workers=8 respawn=yes updates=100000000 delay=exp:mean=0.003 method=%s", method);
    s->made = note_pid;
    s->made_ctx = &pids;
    pl_setup_log(s, say, log);
    pl_setup_watch(s, NULL, until_done, &pids);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, storm, &pids), 0);
    pl_run *run = train(s);
    atomic_store(&pids.over, true);
    pthread_join(thread, NULL);
    assert_true(pids.n_done >= n_faults);
    check_books(run);
    assert_true(number(run, "updates") > 20);
    /* a few kills may all hit workers that have nothing to lose */
    assert_true(number(run, "tasks.lost") > 0 || n_faults < 40);
    assert_non_null(strstr(log, "was killed by signal 9"));
    check_left(before);
}

TEST(test_storm) {
    skip_processes();
    const char *given = getenv("PL_TEST_FAULTS");
    int n = given ? (int)strtol(given, NULL, 10) : sanitized ? 40 : 200;
    check_storm("async", n);
    check_storm("sync", n / 2);
    check_storm("abs", n / 2);
    check_storm("kbatchsync:k=4", n / 4);
    check_storm("fdsgd model=" BLOCKS_MODEL " data=" BLOCKS_DATA, n / 4);
    check_storm("dsgd model=" BLOCKS_MODEL " data=" BLOCKS_DATA, n / 4);
    /* in the middle of a merge */
    check_storm("nodelay:u=2 update-time=0.003", n / 4);
    check_storm("nodelay-async:ahead=4 update-time=0.003", n / 4);
    check_storm("easgd:u=2 update-time=0.001", n / 4);
    /* straggling, dying and lying at once */
    check_storm("ksync:k=5 reduce=trimmed:f=2 attack=signflip:f=2,scale=-10", n / 4);
}

/* A frozen worker holds nobody up where nobody waits for it, is named, and costs no more than its
 * task. */
struct freeze {
    struct pids pids;
    char log[4096];
    uint64_t at; /* update */
};

static bool freeze_is_named(const struct freeze *f) {
    /* "is slow", or "is stopped" */
    return strstr(f->log, "worker 2 is s") && strstr(f->log, "stopped from outside");
}

static int freeze_one(void *ctx, const struct pl_point *p) {
    struct freeze *f = ctx;
    if (f->at == 0 && p->updates > 50) {
        strike(atomic_load(&f->pids.pid[1]), SIGSTOP);
        f->at = p->updates;
    }
    return f->at > 0 && p->updates > f->at + 250 && freeze_is_named(f);
}

TEST(test_frozen_worker_is_named) {
    skip_processes();
    int before = look_around();
    struct freeze f = {.at = 0};
    pl_setup *s = make("method=async delay=const:t=0.01 updates=100000 time=100");
    s->made = note_pid;
    s->made_ctx = &f.pids;
    pl_setup_log(s, say, f.log);
    pl_setup_watch(s, NULL, freeze_one, &f);
    pl_run *run = train(s);
    if (!freeze_is_named(&f)) fail_msg("not named: %s", f.log);
    assert_true(number(run, "updates") > (double)f.at + 250);
    check_books(run);
    check_left(before);
}

/* The server stands still for seconds in the middle of a round: nobody was slow. It is held up
 * where it starts a worker again, one that was killed. */
static void make_slowly(void *ctx, int worker, int pid) {
    struct pids *pids = ctx;
    note_pid(ctx, worker, pid);
    if (atomic_load(&pids->n_done) != 1) return;
    atomic_store(&pids->n_done, 2);
    nap(3000);
}

static int kill_one(void *ctx, const struct pl_point *p) {
    struct pids *pids = ctx;
    if (pids->n_done == 0 && p->updates > 50) {
        atomic_store(&pids->n_done, 1);
        pids->n_faults = (int)p->updates;
        strike(atomic_load(&pids->pid[1]), SIGKILL);
    }
    return pids->n_done == 2 && p->updates > (uint64_t)pids->n_faults + 50;
}

TEST(test_a_pause_makes_nobody_slow) {
    skip_processes();
    char log[4096] = "";
    struct pids pids = {0};
    pl_setup *s = make("method=async delay=const:t=0.01 updates=100000 respawn=yes");
    s->made = make_slowly;
    s->made_ctx = &pids;
    pl_setup_log(s, say, log);
    pl_setup_watch(s, NULL, kill_one, &pids);
    check_books(train(s));
    assert_int_equal(pids.n_done, 2);
    if (strstr(log, "is slow")) fail_msg("%s", log);
}

/* All workers die and none is replaced: the run says so, and its checkpoint is there. */
static int kill_all(void *ctx, const struct pl_point *p) {
    struct pids *pids = ctx;
    for (int i = 0; p->updates > 5 && i < 4; i++) strike(atomic_load(&pids->pid[i]), SIGKILL);
    return 0;
}

TEST(test_left_alone) {
    skip_processes();
    struct pids pids = {0};
    pl_setup *s =
        make("method=async delay=exp:mean=0.01 updates=100000 checkpoint=%s", folder_path("alone"));
    s->made = note_pid;
    s->made_ctx = &pids;
    pl_setup_watch(s, NULL, kill_all, &pids);
    pl_run *run = train(s);
    assert_non_null(strstr(pl_run_text(run, "trouble"), "every worker has gone"));
    check_books(run);
    set_all(s, "resume=auto updates=60");
    pl_setup_watch(s, NULL, NULL, NULL);
    run = train(s);
    assert_true(number(run, "updates") >= 60);
}

/* --- the server dies ----------------------------------------------------------------------- */

static bool alive(int pid) {
    int parent;
    char state = process_state(pid, &parent);
    return state && state != 'Z';
}

/* Returns how many updates the checkpoint has that the folder names the latest; 0 without one. */
static uint64_t latest_checkpoint(const char *saved) {
    static const char head[] = "checkpoint-";
    char path[300], name[100];
    snprintf(path, sizeof path, "%s/latest", saved);
    ssize_t n = readlink(path, name, sizeof name - 1);
    if (n <= (ssize_t)sizeof head) return 0;
    name[n] = '\0';
    return strtoull(name + sizeof head - 1, NULL, 10);
}

TEST(test_server_killed) {
    skip_processes();
    char options[600], saved[200];
    snprintf(saved, sizeof saved, "%s", folder_path("killed"));
    snprintf(options, sizeof options,
             "method=kasync:k=2 delay=exp:mean=0.005 updates=1000000 checkpoint=%s "
             "checkpoint-every=10 resume=auto",
             saved);
    struct pids *pids =
        mmap(NULL, sizeof *pids, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(pids != MAP_FAILED);
    uint64_t reached = 0;
    for (int round = 0; round < 3; round++) {
        memset(pids, 0, sizeof *pids);
        pid_t server = fork();
        if (server == 0) {
            pl_setup *s = make("%s", options);
            pl_run *run;
            s->made = note_pid;
            s->made_ctx = pids;
            pl_train(s, &run);
            _exit(0);
        }
        for (int tries = 0; latest_checkpoint(saved) <= reached && tries < 10000; tries++) nap(10);
        nap(70 * round); /* into the middle of something */
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
        int n_alive = 4;
        for (int tries = 0; n_alive > 0 && tries < 1000; tries++) {
            n_alive = 0;
            for (int i = 0; i < 4; i++) n_alive += alive(atomic_load(&pids->pid[i]));
            nap(10);
        }
        assert_int_equal(n_alive, 0);
        pl_setup *s = make("%s", options);
        pl_setup_set(s, "updates", "1"); /* is there already: only looks */
        pl_run *run = train(s);
        assert_true(number(run, "updates") > (double)reached);
        reached = (uint64_t)number(run, "updates");
        check_books(run);
    }
    munmap(pids, sizeof *pids);
}

/* --- going on ------------------------------------------------------------------------------ */

/* With one worker a run is determined: stopped half-way and resumed, it ends with the same bits. */
TEST(test_resume_is_exact) {
    static const char *const variants[] = {"optim=momentum",
                                           "optim=adam",
                                           "optim=nesterov",
                                           "correct=gap optim=momentum",
                                           "method=dana-ga",
                                           "correct=dc",
                                           "lr-schedule=step:at=20,unit=updates",
                                           "local=steps:u=2",
                                           "weight-decay=0.01",
                                           "sampling=epoch",
                                           "average=tail",
                                           "average=ema:0.9 optim=nesterov"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char name[32];
        const char *method = strstr(variants[i], "method=") ? "" : "method=async";
        snprintf(name, sizeof name, "exact-%zu", i);
        pl_setup *s = make("workers=1 spawn=threads updates=40 %s %s", method, variants[i]);
        pl_run *whole = train(s);
        pl_setup_set(s, "checkpoint", folder_path(name));
        pl_setup_set(s, "updates", "20");
        pl_run *half = train(s);
        set_all(s, "resume=auto updates=40");
        pl_run *rest = train(s);
        assert_true(number(half, "updates") == 20);
        assert_true(number(rest, "updates") == 40);
        assert_true(number(rest, "tasks.applied") == number(whole, "tasks.applied"));
        check_same_weights(whole, rest);
    }
}

/* What a checkpoint is of need not be said again, and another number of workers will do. */
TEST(test_resume_with_other_workers) {
    for (const struct pl_entry *const *m = pl_recipe_family.table; *m; m++) {
        char dir[64];
        snprintf(dir, sizeof dir, "other-%s", (*m)->name);
        pl_setup *s = make("spawn=threads method=%s %s checkpoint=%s", (*m)->name, options_of(*m),
                           folder_path(dir)),
                 *next = NULL;
        pl_run *run = train(s);
        static const char *const workers[] = {"3", "7"}; /* fewer are too few for Krum */
        static const char *const updates[] = {"40", "50"};
        for (int i = 0; i < 2; i++) {
            next = plain();
            pl_setup_set(next, "resume", folder_path(dir));
            pl_setup_set(next, "checkpoint", folder_path(dir));
            pl_setup_set(next, "workers", workers[i]);
            pl_setup_set(next, "updates", updates[i]);
            const char *tape = folder_path("resumed.rec");
            unlink(tape);
            pl_setup_set(next, "record", tape);
            run = train(next);
            check_books(run);
            /* what it went on from is in the checkpoint, all the rest in the recording */
            check_same_replay(run, plain(), tape);
            assert_string_equal(pl_run_text(run, "method"), (*m)->name);
            assert_true(number(run, "updates") == strtod(updates[i], NULL));
            assert_true(number(run, "workers") == strtod(workers[i], NULL));
        }
    }
}

/* --- clients -------------------------------------------------------------------------------- */

/* A program of its own, as far as the server can tell: all it has is a path. */
static void be_a_worker(const char *path, bool odd) {
    pl_client *seat = NULL;
    struct pl_client_task task;
    char why[200];
    const struct pl_client_conf conf = {.path = path, .dim = 5};
    if (pl_client_open(&conf, &seat, why, sizeof why)) _exit(9);
    for (int n = 0; pl_client_pull(seat, -1, &task) == PL_OK; n++) {
        double loss = 0;
        if (task.dim != 5 || pl_client_cancelled(seat)) _exit(8);
        quadratic(NULL, task.w, NULL, task.out, &loss);
        pl_client_push(seat, odd && n == 3 ? 4 : task.dim, 1, loss);
        if (odd && n == 20) break; /* leaves politely in the middle */
        nap(1);
    }
    pl_client_close(seat);
    _exit(0);
}

static void check_workers_that_come(const char *method) {
    int before = look_around();
    char log[4096] = "";
    const char *path = folder_path("run.socket");
    pid_t pid[3];
    for (int i = 0; i < 3; i++)
        if ((pid[i] = fork()) == 0) be_a_worker(path, i == 1);
    const struct pl_function f = {.dim = 5, .gradient = quadratic};
    pl_setup *s = make("workers=3 method=%s spawn=none updates=300 listen=%s", method, path);
    pl_setup_function(s, &f);
    pl_setup_log(s, say, log);
    pl_run *run = train(s);
    check_books(run);
    assert_true(number(run, "updates") == 300);
    assert_true(number(run, "tasks.rejected") == 1);
    if (!strstr(log, "of the wrong size") || !strstr(log, "left")) fail_msg("not told: %s", log);
    size_t n;
    const float *w = pl_run_weights(run, &n);
    for (int i = 0; i < 5; i++) assert_true(fabs((double)w[i] - i) < 0.1);
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    check_left(before);
}

/* They bring gradients, also where there is no server: the step on their own model is made there.
 */
TEST(test_workers_that_come) {
    skip_processes();
    check_workers_that_come("async");
    check_workers_that_come("ad-psgd");
}

TEST(test_refusals) {
    static const char *const bad[][2] = {
        {"model=none", "needs something to compute"},
        {"net=latency=1", "is for simulated runs"},
        {"spawn=none", "set listen to their socket"},
        {"spawn=threads respawn=yes", "respawn 'yes' needs workers that are processes"},
        {"model=mf data=lowrank policy=strata local=sweep listen=s", "hands out blocks of it"},
        {"listen=0.0.0.0:0", "anybody could join"},
        {"listen=a:1,b:2", "one of each"},
        {"insecure=yes", "listen HOST:PORT"},
        {"listen=0.0.0.0:0 insecure=yes keys=k", "leave out --insecure"},
        {"listen=s spawn=none respawn=yes", "leave out --respawn"},
        {"listen=s model=external:dim=3 respawn=yes", "leave out --respawn"},
        {"listen=0.0.0.0:0 standby=http://a:1", "anybody could join"},
        {"listen=127.0.0.1:0 standby=http://a:1 resume=auto checkpoint=c", "leave out --resume"},
        {"listen=127.0.0.1:0 standby=http://a:1 init=w", "leave out --init"},
        {"listen=127.0.0.1:0 standby=http://a:0", "is not the address of a server"},
        {"wire=bf16", "with --listen PATH"},
        {"wait=5", "with --listen PATH"},
        {"model=external listen=s", "external:dim=N"},
        {"model=external:dim=3", "use --listen PATH"},
        {"model=external:dim=3 listen=s spawn=processes", "use --spawn none"},
        {"model=external:dim=3 listen=s delay=exp:mean=1", "leave out --delay"},
        {"init=/nowhere/at/all", "/nowhere/at/all"},
        {"layout=/nowhere/at/all", "/nowhere/at/all"},
        {"resume=auto", "--checkpoint"},
        {"checkpoint=/proc/x", "/proc/x"},
        {"checkpoint=/x checkpoint-every=abc", "checkpoint-every"},
        {"checkpoint=/x checkpoint-every=0s", "checkpoint-every"},
        {"checkpoint=/x checkpoint-every=1000000000h", "checkpoint-every"},
        {"resume=/nowhere/at/all", "/nowhere/at/all"},
        {"metrics=nohost:99999", "metrics"},
        {"log-dir=/proc/nowhere/at/all", "log directory"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_setup *s = make("%s", bad[i][0]);
        pl_run *run = NULL;
        assert_true(pl_train(s, &run) < 0);
        if (!strstr(pl_setup_why(s), bad[i][1])) fail_msg("%s: %s", bad[i][0], pl_setup_why(s));
    }
}

/* --- what holds wherever workers are ---------------------------------------------------------- */

TEST(every_method_as_simulated) {
    test_every_method_as_simulated(state);
}

TEST(twenty_asynchronous_runs) {
    test_twenty_asynchronous_runs(state);
}

TEST(rejected) {
    test_rejected(state);
}

ALL_TESTS_FROM_SEED(11, folder_make, folder_clear)
