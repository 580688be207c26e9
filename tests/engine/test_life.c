/* The life of a worker: every state and every event, and a scripted host whose workers disconnect,
 * return, freeze and come back, on a clock that stops when the host does. */
#include "host.h"

#define BEAT 100000000u /* ns */
#define SECOND 1000000000u

/* --- the table ------------------------------------------------------------------------------- */

/* A letter per state; "+" for joins, "-" for leaves. */
static const char *const lives = "ASPDQE";
static const char *const table[PL_LIVES][PL_LIFE_EVENTS] = {
    /*        starts connects disconnects answers goes expires freezes quarantines evicts returns */
    /* A */ {"S", "P+", "A", "A", "A", "A", "A", "A", "A", "A"},
    /* S */ {"S", "P+", "S", "S", "A", "S", "S", "S", "S", "S"},
    /* P */ {"P", "P", "D", "P", "A-", "P", "Q-", "Q-", "E-", "P"},
    /* D */ {"D", "P", "D", "P", "A-", "A-", "D", "A-", "A-", "D"},
    /* Q */ {"Q", "Q", "A", "Q", "A", "Q", "Q", "Q", "Q", "P+"},
    /* E */ {"E", "E", "A", "E", "A", "E", "E", "E", "E", "E"},
};

static bool in_the_run(enum pl_life life) {
    return life == PL_PRESENT || life == PL_DISCONNECTED;
}

TEST(every_state_and_event) {
    bool reached[PL_LIVES] = {[PL_ABSENT] = true};
    for (int round = 0; round < PL_LIVES; round++)
        for (int from = 0; from < PL_LIVES; from++)
            for (int event = 0; event < PL_LIFE_EVENTS; event++) {
                struct pl_life_step step =
                    pl_life_next((enum pl_life)from, (enum pl_life_event)event);
                const char *want = table[from][event];
                char got[3] = {lives[step.to], step.move == PL_LIFE_JOINS    ? '+'
                                               : step.move == PL_LIFE_LEAVES ? '-'
                                                                             : '\0'};
                if (strcmp(got, want) != 0)
                    fail_msg("state %c, event %d: %s instead of %s", lives[from], event, got, want);
                /* control hears of it exactly when the run gains or loses a worker */
                int gained = in_the_run(step.to) - in_the_run((enum pl_life)from);
                assert_int_equal(gained, step.move == PL_LIFE_JOINS    ? 1
                                         : step.move == PL_LIFE_LEAVES ? -1
                                                                       : 0);
                if (event == PL_LIFE_GOES) assert_int_equal(step.to, PL_ABSENT);
                if (reached[from]) reached[step.to] = true;
            }
    for (int i = 0; i < PL_LIVES; i++) assert_true(reached[i]);
}

/* --- a scripted host ---------------------------------------------------------------------------
 */

/* Tells the time at every beat, as a host does that is not stopped. */
static void listen_for(struct host *h, double seconds) {
    uint64_t until = h->now_ns + (uint64_t)(seconds * 1e9);
    while (h->now_ns < until) {
        h->now_ns = until - h->now_ns < BEAT ? until : h->now_ns + BEAT;
        if (pl_engine_time(h->engine, h->now_ns, &h->why)) fail_msg("%s", h->why.text);
    }
}

/* The host is stopped, and goes on. */
static void stop_for(struct host *h, double seconds) {
    h->now_ns += (uint64_t)(seconds * 1e9);
    if (pl_engine_time(h->engine, h->now_ns, &h->why)) fail_msg("%s", h->why.text);
}

static void happens(struct host *h, enum pl_event_kind kind, int worker, uint64_t task) {
    host_event(
        h, (struct pl_event){
               .kind = kind, .now_ns = ++h->now_ns, .worker = worker, .task = task, .samples = 1});
}

static void connects(struct host *h, int worker) {
    happens(h, PL_JOIN, worker, 0);
}

static void answers(struct host *h, int worker) {
    happens(h, PL_ARRIVE, worker, h->worker[worker].start.task);
}

static void disconnects(struct host *h, int worker) {
    if (pl_engine_disconnected(h->engine, worker, ++h->now_ns, &h->why))
        fail_msg("%s", h->why.text);
}

static void free_delay(void *delay) {
    pl_delay_free(delay);
}

/* At the end of every test each task has a fate, and each worker a state. */
static void check_end(void *host) {
    const struct host *h = host;
    struct pl_fates f = pl_control_fates(pl_engine_control(h->engine));
    assert_int_equal(f.started,
                     f.applied + f.dropped + f.cancelled + f.lost + f.rejected + f.running);
    int n = 0;
    for (int i = 0; i < PL_LIVES; i++) n += pl_engine_n(h->engine, (enum pl_life)i);
    assert_int_equal(n, h->job->n_workers);
}

/* Workers that compute nothing, in rounds that wait for all of them. */
static struct host *rounds_of(const char *options, bool gathers) {
    struct host *h = host_of(setup_of("policy=ksync model=none updates=1000000 %s", options));
    own(h->job->delay, free_delay);
    h->job->delay = NULL; /* none is injected */
    host_begin(h, gathers, BEAT);
    for (int i = 0; !gathers && i < h->job->n_workers; i++) connects(h, i);
    return own(h, check_end);
}

static struct host *host_new(const char *options) {
    return rounds_of(options, false);
}

static uint64_t task_of(const struct host *h, int worker) {
    return h->worker[worker].start.task;
}

static uint64_t lost(const struct host *h) {
    return pl_control_fates(pl_engine_control(h->engine)).lost;
}

static enum pl_life life(const struct host *h, int worker) {
    return pl_engine_life(h->engine, worker);
}

/* One round in which every worker takes this long. */
static void round_of(struct host *h, double seconds) {
    uint64_t version = h->view->version;
    listen_for(h, seconds);
    for (int i = 0; i < h->job->n_workers; i++)
        if (h->view->worker[i].state == PL_BUSY) answers(h, i);
    assert_int_equal(h->view->version, version + 1);
}

/* --- workers that disconnect ---------------------------------------------------------------------
 */

TEST(a_worker_that_returns_keeps_its_place) {
    struct host *h = host_new("workers=3 evict=5");
    round_of(h, 1);
    uint64_t task = task_of(h, 1);
    disconnects(h, 1);
    assert_int_equal(life(h, 1), PL_DISCONNECTED);
    answers(h, 0);
    answers(h, 2);
    listen_for(h, 4.5);
    assert_int_equal(h->view->version, 1); /* the round waits for it */
    assert_int_equal(h->view->n_alive, 3);
    connects(h, 1);
    assert_int_equal(life(h, 1), PL_PRESENT);
    listen_for(h, 4.5); /* its absence does not count for its task */
    assert_int_equal(life(h, 1), PL_PRESENT);
    assert_int_equal(task_of(h, 1), task);
    answers(h, 1);
    assert_int_equal(h->view->version, 2); /* its result counts */
    assert_int_equal(lost(h), 0);
    assert_int_equal(h->ended[1], PL_LIFE_STARTS);
}

/* The result says that it is back, whether or not the host does. */
TEST(a_result_shows_that_a_worker_is_back) {
    struct host *h = host_new("workers=2 evict=5");
    disconnects(h, 0);
    answers(h, 0);
    assert_int_equal(life(h, 0), PL_PRESENT);
    answers(h, 1);
    assert_int_equal(h->view->version, 1);
}

TEST(a_worker_that_does_not_return_has_left) {
    struct host *h = host_new("workers=3 evict=5");
    round_of(h, 1);
    uint64_t task = task_of(h, 1);
    disconnects(h, 1);
    answers(h, 0);
    answers(h, 2);
    listen_for(h, 5.2);
    assert_int_equal(life(h, 1), PL_ABSENT);
    assert_int_equal(h->ended[1], PL_LIFE_EXPIRES);
    assert_int_equal(h->view->n_alive, 2);
    assert_int_equal(h->view->version, 2); /* the round went on without it */
    assert_int_equal(lost(h), 1);
    answers(h, 1); /* too late: that has no effect */
    assert_int_equal(life(h, 1), PL_ABSENT);
    connects(h, 1); /* as a new one, with a task of its own */
    assert_int_equal(life(h, 1), PL_PRESENT);
    assert_true(task_of(h, 1) > task);
}

/* The deadline is ten times the longest task so far, and at least ten seconds, also if --evict is
 * longer. */
TEST(the_deadline_is_learnt) {
    static const char *const evict[] = {"workers=2 evict=auto", "workers=2 evict=off",
                                        "workers=2 evict=1800"};
    for (int i = 0; i < 3; i++) {
        struct host *h = host_new(evict[i]);
        disconnects(h, 1);
        listen_for(h, 9.8);
        assert_int_equal(life(h, 1), PL_DISCONNECTED);
        listen_for(h, 0.5);
        assert_int_equal(life(h, 1), PL_ABSENT);
        connects(h, 1);
        round_of(h, 3);
        disconnects(h, 0);
        listen_for(h, 29.8 + 10); /* worker 1 was the one with the longest task: 13.3 s */
        assert_int_equal(life(h, 0), PL_DISCONNECTED);
        listen_for(h, 120);
        assert_int_equal(life(h, 0), PL_ABSENT);
    }
}

/* How long a task took in which the network was away for a while is not learnt. */
TEST(a_lost_connection_teaches_nothing) {
    struct host *h = host_new("workers=2 evict=auto");
    round_of(h, 1);
    answers(h, 0);
    listen_for(h, 8); /* so long it took until the loss was noticed */
    disconnects(h, 1);
    connects(h, 1);
    answers(h, 1);
    disconnects(h, 0);
    listen_for(h, 10.5);
    assert_int_equal(life(h, 0), PL_ABSENT);
}

TEST(a_suspended_worker_that_disconnects_has_gone) {
    struct host *h = host_new("workers=3 evict=2");
    answers(h, 0);
    listen_for(h, 3.5);
    assert_int_equal(life(h, 1), PL_SUSPENDED);
    disconnects(h, 1);
    assert_int_equal(life(h, 1), PL_ABSENT);
    assert_int_equal(h->ended[1], PL_LIFE_DISCONNECTS);
}

/* --- workers that freeze ------------------------------------------------------------------------
 */

/* A pause does not count, except for one that does not end. */
TEST(a_worker_that_pauses_is_not_frozen) {
    struct host *h = host_new("workers=3 evict=5");
    listen_for(h, 3);
    for (int i = 0; i < 3; i++) pl_engine_pause(h->engine, i, true, h->now_ns);
    listen_for(h, 60);
    assert_int_equal(h->out.n_frozen, 0);
    pl_engine_pause(h->engine, 0, false, h->now_ns); /* 2 s are left */
    listen_for(h, 1);
    assert_int_equal(h->out.n_frozen, 0);
    listen_for(h, 2);
    assert_int_equal(life(h, 0), PL_SUSPENDED);
    assert_int_equal(life(h, 1), PL_PRESENT);
    listen_for(h, 1800);
    assert_int_equal(life(h, 1), PL_SUSPENDED);
}

static char last_said[200];

static void note_last(void *ctx, int level, const char *sentence) {
    snprintf(last_said, sizeof last_said, "%s", sentence);
}

TEST(a_frozen_worker_returns_when_it_answers) {
    struct host *h = host_new("workers=3 evict=5");
    h->job->log.say = note_last;
    uint64_t task = task_of(h, 1);
    for (int i = 0; i < 8; i++) { /* the others go on */
        listen_for(h, 1);
        if (h->view->worker[0].state == PL_BUSY) answers(h, 0);
        if (h->view->worker[2].state == PL_BUSY) answers(h, 2);
    }
    assert_int_equal(life(h, 1), PL_SUSPENDED);
    assert_int_equal(h->ended[1], PL_LIFE_FREEZES);
    assert_int_equal(h->out.n_frozen, 1);
    assert_true(h->view->version > 0);
    assert_true(pl_engine_awaits(h->engine, 1, task));
    happens(h, PL_ARRIVE, 1, task - 1); /* an older one says nothing */
    assert_int_equal(life(h, 1), PL_SUSPENDED);
    assert_non_null(strstr(last_said, "worker 2 does not answer: "));
    answers(h, 1);
    assert_int_equal(life(h, 1), PL_PRESENT);
    assert_non_null(strstr(last_said, "worker 2 is back after "));
    assert_true(task_of(h, 1) > task);
    assert_int_equal(lost(h), 1);
}

TEST(the_last_worker_is_frozen_only_if_it_is_replaced) {
    struct host *h = host_new("workers=1 evict=2");
    listen_for(h, 60);
    assert_int_equal(life(h, 0), PL_PRESENT);
    h->removal = PL_RESTARTS;
    listen_for(h, 2);
    assert_int_equal(life(h, 0), PL_SUSPENDED);
    happens(h, PL_LEAVE, 0, 0);
    assert_int_equal(life(h, 0), PL_ABSENT);
    pl_engine_starting(h->engine, 0);
    assert_int_equal(life(h, 0), PL_STARTING);
    connects(h, 0);
    assert_int_equal(life(h, 0), PL_PRESENT);
}

/* Ctrl-Z, a paused machine, or an update that takes long: nobody is overdue because of it. */
TEST(time_in_which_the_host_was_stopped_does_not_count) {
    static const double stops[] = {1.6, 3, 3600};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct host *h = host_new("workers=4 evict=1");
        for (int k = 0; k < 15; k++) { /* 0.4 s a task, and a stop in the middle */
            listen_for(h, 0.2);
            stop_for(h, stops[i]);
            round_of(h, 0.2);
        }
        assert_int_equal(h->out.n_frozen, 0);
        stop_for(h, stops[i]);
        listen_for(h, 0.8);
        assert_int_equal(h->out.n_frozen, 0);
        answers(h, 0);
        listen_for(h, 2);
        assert_int_equal(life(h, 1), PL_SUSPENDED);
    }
}

/* … nor is what was learnt about the length of tasks. */
TEST(a_stop_teaches_nothing) {
    struct host *h = host_new("workers=3 evict=auto");
    stop_for(h, 3600);
    round_of(h, 1);
    answers(h, 0);
    answers(h, 1);
    listen_for(h, 9);
    assert_int_equal(h->out.n_frozen, 0);
    listen_for(h, 5);
    assert_int_equal(life(h, 2), PL_SUSPENDED);
}

/* A deadline of a worker that is away waits for the host as well. */
TEST(a_stop_does_not_expire_a_connection) {
    struct host *h = host_new("workers=3 evict=5");
    disconnects(h, 1);
    stop_for(h, 60);
    listen_for(h, 4);
    assert_int_equal(life(h, 1), PL_DISCONNECTED);
    listen_for(h, 2);
    assert_int_equal(life(h, 1), PL_ABSENT);
}

/* --- the beginning -------------------------------------------------------------------------------
 */

TEST(workers_that_gather_join_together) {
    struct host *h = rounds_of("workers=3", true);
    for (int i = 0; i < 3; i++) pl_engine_starting(h->engine, i);
    for (int i = 0; i < 3; i++) connects(h, i);
    happens(h, PL_LEAVE, 1, 0); /* it does not stay for the run */
    assert_int_equal(h->view->n_alive, 0);
    assert_int_equal(pl_engine_begin(h->engine, ++h->now_ns, &h->why), 0);
    assert_int_equal(h->view->n_alive, 2);
    assert_true(task_of(h, 0) == 1 && task_of(h, 1) == 0 && task_of(h, 2) == 1);
}
