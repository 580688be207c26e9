/* Runs without a server: what they come to, and real ones whose workers are killed in the middle of
 * everything. The arithmetic is in core/test_replicas.c. That every method repeats, learns and
 * replays is in the suites. */
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "suite_train.h"

/* --- real runs ---------------------------------------------------------------------------- */

static const char *const modes[] = {"gossip-pull", "gossip-push", "gosgd",
                                    "ad-psgd",     "sgp",         "gosgd:every=3,random=yes"};
#define N_MODES (sizeof modes / sizeof *modes)

/* Nothing is waited for but the tasks: thousands of exchanges, as recorded. */
TEST(test_storms_replay) {
    for (size_t m = 0; m < N_MODES; m++)
        for (size_t i = 0; i < n_spawns(); i++) {
            check_replay(
                "method=%s %s workers=6 updates=%d model=quadratic:dim=50 local=own:beta=0.5",
                modes[m], spawns[i], sanitized ? 300 : 3000);
        }
    check_replay("policy=gossip:mode=pair,a=0.3 local=own:u=3 weight-decay=0.01 updates=60");
    check_replay("policy=gossip:mode=pull local=gradient:beta=0.9 weight-decay=0.01 updates=60");
    check_replay("policy=gossip local=steps:u=2 updates=60");
}

struct killer {
    int pid[8];
    int n_killed, n_ticks;
    int every; /* ticks from one kill to the next */
    int most;
    uint64_t end; /* the run ends after this update; 0: not all have been killed */
};

static void note_pid(void *ctx, int worker, int pid) {
    ((struct killer *)ctx)->pid[worker] = pid;
}

static int kill_one(void *ctx, const struct pl_point *p) {
    struct killer *k = ctx;
    if (k->n_killed >= k->most) {
        if (k->end == 0) k->end = p->updates + 500;
        return p->updates >= k->end;
    }
    if (p->updates < 20) return 0;
    if (++k->n_ticks % k->every) return 0;
    int worker = k->n_killed++ % 5;
    if (k->pid[worker] > 0) kill(k->pid[worker], SIGKILL);
    k->pid[worker] = 0;
    return 0;
}

/* Workers are killed in the middle of their exchanges, all but the last, with and without new ones
 * in their place: nobody hangs, every task has its fate, and it replays to the same bits. */
static void check_kills(const char *method, bool respawn) {
    struct killer killer = {.every = 1, .most = respawn ? 8 : 5};
    char log[4096] = "";
    const char *tape = folder_path("tape");
    unlink(tape);
    int before = look_around();
    pl_setup *s = make("method=%s spawn=processes workers=6 time=60 updates=0 model=softmax "
                       "delay=exp:mean=0.0005 respawn=%s record=%s",
                       method, respawn ? "yes" : "no", tape);
    s->made = note_pid;
    s->made_ctx = &killer;
    pl_setup_log(s, say, log);
    pl_setup_watch(s, NULL, kill_one, &killer);
    pl_run *run = train(s);
    check_books(run);
    assert_int_equal(killer.n_killed, killer.most);
    assert_true(number(run, "updates") > 100);
    assert_true(number(run, "tasks.lost") > 0);
    assert_true(isfinite(number(run, "consensus")) && isfinite(number(run, "loss")));
    pl_run *replayed = check_same_replay(run, plain(), tape);
    assert_true(number(run, "consensus") == number(replayed, "consensus"));
    check_left(before);
}

TEST(test_kills) {
    skip_processes();
    for (size_t m = 0; m < N_MODES; m++) check_kills(modes[m], m % 2);
    check_kills("sgp", true);
}

static _Atomic uint64_t n_begun[4]; /* batches of each worker */

/* Nobody goes far ahead before the others have had some turns, however the machine divides its
 * time. */
static int fair_bad_gradient(void *ctx, const float *w, const struct pl_samples *b, float *g,
                             double *loss) {
    atomic_store(&n_begun[b->worker], b->batch_no);
    for (int i = 0; i < 4; i++)
        while (b->batch_no > 20 && atomic_load(&n_begun[i]) < 6 && !b->cancelled(b->token)) nap(1);
    return bad_gradient(ctx, w, b, g, loss);
}

static void no_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                     uint32_t *n_right) {
    *loss = *n_right = 0;
}

/* What cannot be computed is rejected, and its worker goes on from the model it had. */
TEST(test_results_that_are_not_finite) {
    for (size_t m = 0; m < N_MODES; m++) {
        char log[4096] = "";
        const struct pl_function f = {.dim = 3, .gradient = fair_bad_gradient, .score = no_score};
        for (int i = 0; i < 4; i++) atomic_store(&n_begun[i], 0);
        pl_setup *s = make("method=%s updates=300 spawn=threads delay=const:t=0.0005", modes[m]);
        pl_setup_function(s, &f);
        pl_setup_log(s, say, log);
        pl_run *run = train(s);
        check_books(run);
        assert_true(number(run, "tasks.rejected") > 1);
        size_t n;
        const float *w = pl_run_weights(run, &n);
        for (size_t i = 0; i < n; i++) assert_true(w[i] > 0.5 && w[i] < 1.1);
    }
}

/* A checkpoint is the mean; a run that goes on begins with it everywhere, and replays too. */
TEST(test_checkpoints) {
    static const char *const method[] = {"gosgd", "sgp"};
    for (size_t m = 0; m < 2; m++) {
        const char *tape = folder_path("tape");
        unlink(tape);
        pl_setup *s = make("method=%s spawn=threads updates=100 checkpoint=%s checkpoint-every=40 "
                           "checkpoint-keep=100",
                           method[m], folder_path(method[m]));
        pl_run *half = train(s), *rest = NULL;
        set_all(s, "resume=auto updates=100");
        rest = train(s);
        check_same_weights(half, rest); /* there was nothing left to do */
        pl_setup_set(s, "updates", "220");
        pl_setup_set(s, "record", tape);
        rest = train(s);
        check_books(rest);
        assert_true(number(rest, "updates") == 220);
        check_same_replay(rest, plain(), tape);
    }
}

/* --- simulated ----------------------------------------------------------------------------- */

/* Everybody averages in rounds of sgp, so it is gradient descent on the mean: without noise the
 * bowl is reached, and the workers agree. */
TEST(test_agreement) {
    for (size_t m = 0; m < N_MODES; m++) {
        pl_setup *s = make("method=%s workers=8 model=quadratic:dim=20,noise=0 lr=0.4 updates=3000",
                           modes[m]);
        pl_run *run = simulate(s);
        if (!(number(run, "loss") < 1e-6) || !(number(run, "consensus") < 1e-2))
            fail_msg("%s: loss %g, consensus %g", modes[m], number(run, "loss"),
                     number(run, "consensus"));
    }
}

/* Vectors of peers pass their own links: a server's narrow one does not matter. */
TEST(test_network) {
    static const struct {
        const char *net;
        double time; /* of 40 rounds of two workers: each reads one vector of 1 second */
    } row[] = {{"bytes=100,bandwidth=100", 0}, {"bytes=100,server=100", 0}, {"latency=0.5", 0}};
    double got[3];
    for (size_t i = 0; i < 3; i++) {
        pl_setup *s =
            make("method=sgp workers=2 model=quadratic:dim=3 delay=const:t=1 updates=80 net=%s",
                 row[i].net);
        pl_run *run = simulate(s);
        got[i] = number(run, "time");
    }
    assert_true(fabs(got[0] - (40 + 40)) < 1e-6); /* the first model is read from the server too */
    assert_true(fabs(got[1] - 40) < 1e-6);
    assert_true(fabs(got[2] - (40 + 40 * (0.5 + 1 + 0.5))) < 1e-6);
}

TEST(test_what_is_refused) {
    static const struct {
        const char *options, *words;
    } row[] = {
        {"method=sgp reduce=median", "reduce 'median' needs a model at a server, but policy"},
        {"method=sgp correct=lag", "use correct none"},
        {"method=sgp optim=momentum", "use optim sgd"},
        {"method=sgp filter=kardam:f=0", "use filter none"},
        {"method=sgp attack=signflip:f=1", "leave out --attack or choose another policy"},
        {"method=sgp local=elastic", "local 'elastic' needs a model at a server"},
        {"method=sgp:every=2", "method 'sgp' has no option 'every'"},
        {"policy=gossip:mode=sgp", "takes one of pull|push|push-sum|pair|ad-psgd"},
        {"method=gossip-pull:a=0.3", "a is for mode pair"},
        {"policy=gossip tuner=abs", "does not use"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        pl_setup *s = make("%s", row[i].options);
        if (!pl_setup_check(s)) fail_msg("%s is not refused", row[i].options);
        if (!strstr(pl_setup_why(s), row[i].words))
            fail_msg("%s: %s", row[i].options, pl_setup_why(s));
    }
}

ALL_TESTS_BETWEEN(folder_make, folder_clear)
