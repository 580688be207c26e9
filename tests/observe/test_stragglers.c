/* Straggler detection, through a real control. First scripted runs: every worker is started again
 * when it answers, so task times are those of the script. Then warnings that mean something: among
 * workers with one law, however heavy its tail, and under policies that cancel, nobody is called
 * slow; a worker that is slow, or hangs, is. */
#include "base/rng.h"
#include "base/seconds.h"
#include "choices.h"
#include "observe/stragglers.h"

static void free_slow(void *slow) {
    pl_stragglers_free(slow);
}

static struct pl_stragglers *slow_of(struct pl_control *c) {
    struct pl_stragglers *slow = NULL;
    assert_int_equal(pl_stragglers_new(pl_control_view(c)->n_workers, &slow), 0);
    pl_control_on_event(c, pl_stragglers_event, slow);
    return own(slow, free_slow);
}

/* Workers are counted from 0. */
static const struct pl_plan *tell_excused(struct pl_control *c, double now, enum pl_event_kind kind,
                                          int worker, double excused) {
    const struct pl_plan *plan;
    struct pl_why why = {""};
    struct pl_event e = {.kind = kind,
                         .now_ns = (uint64_t)llround(now * 1e9),
                         .worker = worker,
                         .task = pl_control_view(c)->worker[worker].task,
                         .excused_ns = (uint64_t)llround(excused * 1e9)};
    if (pl_control_step(c, &e, &plan, &why)) fail_msg("%s", why.text);
    return plan;
}

static const struct pl_plan *tell(struct pl_control *c, double now, enum pl_event_kind kind,
                                  int worker) {
    return tell_excused(c, now, kind, worker, 0);
}

/* --- scripts ------------------------------------------------------------------------------- */

static struct pl_control *control;
static struct pl_stragglers *slow;
static struct pl_stragglers_found found;
static double now; /* seconds */

static void event(enum pl_event_kind kind, int worker) {
    tell(control, now, kind, worker - 1);
}

/* The first of them join. */
static void begin_run(int n_workers, int n_joining) {
    control = control_of("kbatchasync:k=1", "fixed", n_workers, 1);
    slow = slow_of(control);
    now = 0;
    for (int i = 1; i <= n_joining; i++) event(PL_JOIN, i);
}

/* Worker comes back `seconds` after it was started. Times of others go on meanwhile. */
static void answer(int worker, double seconds) {
    double start = (double)pl_control_view(control)->worker[worker - 1].since_ns * 1e-9;
    if (start + seconds > now) now = start + seconds;
    event(PL_ARRIVE, worker);
}

static bool look(void) {
    return pl_stragglers_look(slow, pl_control_view(control), (uint64_t)llround(now * 1e9), &found);
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-6)) fail_msg("%.12g is not %.12g", got, want);
}

/* W2 hangs in its first task while W1 answers every half second. */
TEST(a_task_that_runs_for_too_long) {
    begin_run(2, 2);
    for (int i = 0; i < 7; i++) {
        answer(1, 0.5);
        assert_false(look()); /* seven are not enough to know what is usual */
    }
    answer(1, 0.5);
    assert_true(look());
    assert_int_equal(found.kind, PL_SLOW_TASK);
    assert_int_equal(found.worker, 1);
    near(found.elapsed, 4);
    near(found.usual, 0.5);
    assert_false(look()); /* once */
    for (int i = 0; i < 100; i++) {
        answer(1, 0.5);
        assert_false(look());
    }
    answer(2, 60); /* that it is back at last is no recovery */
    now += 5;
    assert_true(look()); /* W1 hangs as well */
    assert_int_equal(found.worker, 0);
    answer(1, 5);
    for (int i = 0; i < 40; i++) { /* several in a row have to be fast */
        answer(1, 0.5);
        answer(2, 0.5);
        assert_false(look());
    }
    now += 3;
    assert_false(look()); /* W2 took eight seconds once, without being reported for it */
    now += 10;
    assert_true(look()); /* both were well again, and hang */
    assert_true(look());
    assert_false(look());
}

/* W2 waits for a core of a busy machine, in its task and between them: it is not slow. Then it is.
 */
TEST(a_worker_without_a_core_is_not_slow) {
    double waited = 0;
    begin_run(2, 2);
    for (int i = 0; i < 60; i++) {
        for (int n = 0; n < 10; n++) answer(1, 0.1);
        waited += 0.9;
        pl_stragglers_waited(slow, 1, (uint64_t)llround(waited * 1e9));
        answer(2, 1);
        assert_false(look());
    }
    for (int n = 0; n < 40; n++) answer(1, 0.1); /* four seconds */
    pl_stragglers_waited(slow, 1, (uint64_t)llround((waited + 3.8) * 1e9));
    assert_false(look());
    pl_stragglers_waited(slow, 1, (uint64_t)llround(waited * 1e9)); /* less than was told */
    assert_false(look());
    answer(2, 4);
    assert_false(look());
    for (int n = 0; n < 40; n++) answer(1, 0.1);
    assert_true(look());
    assert_int_equal(found.worker, 1);
    near(found.elapsed, 4);
    near(found.usual, 0.1);
}

/* Both thresholds of a running task: PL_SLOW medians, and a second more than one. */
TEST(how_long_is_too_long) {
    begin_run(2, 2);
    for (int i = 0; i < 20; i++) {
        answer(1, 0.01);
        answer(2, 0.01);
    }
    now += 0.9; /* ninety medians, but not a second */
    assert_false(look());
    now += 0.12;
    assert_true(look());
    for (int i = 0; i < 200; i++) {
        answer(1, 10);
        answer(2, 10);
        while (look()) continue;
    }
    answer(1, 10);
    answer(2, 10);
    now += 10 * PL_SLOW - 0.1; /* seconds more than usual, but not PL_SLOW medians */
    assert_false(look());
    now += 0.2;
    assert_true(look());
    near(found.usual, 10);
}

/* W4 takes that long, while the others answer every millisecond. */
static void answer_slowly(double seconds) {
    double start = (double)pl_control_view(control)->worker[3].since_ns * 1e-9;
    while (now < start + seconds)
        for (int w = 1; w <= 3; w++) answer(w, 0.001);
    answer(4, now - start);
}

/* W4 answers, but each task takes ten times as long: milliseconds, so no task runs for too long. */
TEST(tasks_that_are_slow_on_average) {
    begin_run(4, 4);
    for (int i = 1; i <= 5; i++) {
        answer_slowly(0.02);
        assert_int_equal(look(), i == 5);
    }
    assert_int_equal(found.kind, PL_SLOW_WORKER);
    assert_int_equal(found.worker, 3);
    assert_true(found.usual < found.elapsed / 3 && found.elapsed >= 0.02);
    assert_false(look());
    answer_slowly(0.02);
    assert_false(look()); /* still the same */
    event(PL_LEAVE, 4);
    now += 0.001;
    event(PL_JOIN, 4); /* a worker that rejoins counts as new */
    for (int i = 1; i <= 5; i++) {
        answer_slowly(0.05);
        assert_int_equal(look(), i == 5);
    }
    for (int i = 0; i < 30; i++)
        for (int w = 1; w <= 4; w++) answer(w, 0.001);
    assert_false(look());
    for (int i = 0; i < 5 && !look(); i++) answer_slowly(0.05);
    assert_int_equal(found.worker, 3); /* it had recovered, and is slow again */
}

static double work_now; /* of the task that is started next */

static double work(const void *ctx, int row, int col) {
    return *(const double *)ctx;
}

/* W1 has tasks of all sizes, and takes as long as they are large; W2 takes ten times as long as it
 * should. */
TEST(larger_tasks_may_take_longer) {
    static const double sizes[] = {0.3, 20, 1, 0, 5};
    begin_run(2, 0);
    pl_stragglers_work(slow, work, &work_now);
    double has = work_now = 1;
    event(PL_JOIN, 1);
    for (int i = 0; i < 50; i++) {
        work_now = sizes[i % 5];
        answer(1, 0.01 * has);
        has = work_now;
        assert_false(look());
    }
    work_now = 0.5;
    event(PL_JOIN, 2);
    for (int i = 1; i <= 5; i++) {
        answer(2, 0.05);
        assert_int_equal(look(), i == 5);
    }
    assert_true(found.worker == 1 && found.kind == PL_SLOW_WORKER);
    near(found.elapsed, 0.1);
    near(found.usual, 0.01);
}

TEST(a_worker_alone_is_not_slow) {
    begin_run(1, 1);
    for (int i = 0; i < 50; i++) {
        answer(1, i % 2 ? 0.1 : 0.9); /* there is no other worker to compare with */
        assert_false(look());
    }
    event(PL_LEAVE, 1);
    now += 100;
    assert_false(look()); /* who is gone is not slow */
}

/* Rows of three workers with `n` tasks of `seconds` each, `n_long` of them long; the first two are
 * usual. */
static enum pl_pace pace_of(double seconds, uint64_t n, uint64_t n_long, double unfinished) {
    struct pl_timeline_row row[3] = {{.n_used = 9, .n_timed = 9, .arrived_ns = 9000000000u},
                                     {.n_used = 9, .n_timed = 9, .arrived_ns = 9000000000u},
                                     {.n_used = n, .n_timed = n, .n_long = n_long}};
    row[2].arrived_ns = pl_ns(seconds * (double)n);
    row[2].unfinished_ns = pl_ns(unfinished);
    struct pl_usual usual = pl_stragglers_usual(row, 3);
    return pl_stragglers_pace(&row[2], &usual);
}

/* Workers with `n` tasks each, of which `arrived` arrived; the first one is judged. */
static enum pl_pace pace_without(uint64_t n, uint64_t arrived, uint64_t others_arrived) {
    struct pl_timeline_row row[4] = {{.n_wasted = n, .n_timed = arrived}};
    for (int i = 1; i < 4; i++)
        row[i] = (struct pl_timeline_row){
            .n_wasted = n, .n_timed = others_arrived, .arrived_ns = 1000 * others_arrived};
    struct pl_usual usual = pl_stragglers_usual(row, 4);
    return pl_stragglers_pace(&row[0], &usual);
}

TEST(pace_of_a_whole_run) {
    assert_int_equal(pace_of(1.9, 6, 6, 9.9), PL_PACE_USUAL);
    assert_int_equal(pace_of(2.1, 6, 6, 0), PL_PACE_SLOW);
    assert_int_equal(pace_of(2.1, 5, 5, 0),
                     PL_PACE_USUAL); /* one in three million: it may be chance */
    assert_int_equal(pace_of(9, 60, 6, 0), PL_PACE_USUAL); /* a few of its tasks were long */
    assert_int_equal(pace_of(2.1, 4, 4, 0), PL_PACE_UNKNOWN);
    assert_int_equal(pace_of(1, 4, 0, 10.1), PL_PACE_STUCK);
    assert_int_equal(pace_without(6, 0, 6),
                     PL_PACE_SLOW); /* nothing of it arrived, all of others */
    assert_int_equal(pace_without(6, 0, 3), PL_PACE_USUAL); /* half of others: that is chance */
    assert_int_equal(pace_without(40, 0, 20), PL_PACE_SLOW);
    assert_int_equal(pace_without(40, 0, 0), PL_PACE_UNKNOWN); /* nothing is known */
}

/* W2 takes three times as long, most of it without a core. */
TEST(a_whole_run_without_a_core_is_not_slow) {
    for (int excused = 0; excused < 2; excused++) {
        begin_run(2, 2);
        for (int i = 0; i < 20; i++) {
            for (int n = 0; n < 3; n++) answer(1, 1);
            tell_excused(control, now, PL_ARRIVE, 1, excused ? 2.1 : 0);
        }
        const struct pl_timeline_row *row = pl_control_timeline(control)->row;
        struct pl_usual usual = pl_stragglers_usual(row, 2);
        near(pl_stragglers_task(&row[1]), excused ? 0.9 : 3);
        assert_int_equal(pl_stragglers_pace(&row[1], &usual),
                         excused ? PL_PACE_USUAL : PL_PACE_SLOW);
        assert_int_equal(pl_stragglers_pace(&row[0], &usual), PL_PACE_USUAL);
    }
}

/* --- random times -------------------------------------------------------------------------- */

#define WORKERS 8

struct law {
    const char *name;
    double unit;  /* seconds */
    double shape; /* of Pareto; 0: exponential; below 0: constant */
};

static const struct law laws[] = {{"exponential, 0.01 s", 0.01, 0},
                                  {"exponential, 1 s", 1, 0},
                                  {"Pareto 3", 0.02, 3},
                                  {"Pareto 1.5", 0.02, 1.5},
                                  {"Pareto 1.5, 1 s", 1, 1.5},
                                  {"Pareto 1.1", 0.02, 1.1},
                                  {"constant", 0.02, -1}};

static const char *const policies[] = {"kbatchasync:k=1",
                                       "kasync:k=4",
                                       "ksync:k=4",
                                       "ksync:k=all",
                                       "ksync:k=1",
                                       "kbatchsync:k=8",
                                       "kasync:k=2,max_lag=2,stop=yes"};

struct loop {
    struct pl_control *control;
    struct pl_stragglers *slow;
    struct pl_rng rng;
    const struct law *law;
    double now, due[WORKERS]; /* when the worker's task ends; INFINITY: none */
    double factor[WORKERS];   /* of each worker */
    int n_found, last_found;
    int hangs; /* a worker that never answers from `hangs_at` on; -1: none */
    double hangs_at;
};

static double draw(struct loop *l, int worker) {
    double u = 1 - pl_rng_unit(&l->rng);
    double t = l->law->shape < 0 ? 1 : l->law->shape == 0 ? -log(u) : pow(u, -1 / l->law->shape);
    return t * l->law->unit * l->factor[worker];
}

static void begin(struct loop *l, const char *spec, const struct law *law, uint64_t seed) {
    *l = (struct loop){.law = law, .hangs = -1, .last_found = -1};
    pl_rng_init(&l->rng, seed, PL_STREAM_TEST, 0, 0);
    l->control = control_of(spec, "fixed", WORKERS, 1);
    l->slow = slow_of(l->control);
    for (int i = 0; i < WORKERS; i++) {
        l->due[i] = (double)INFINITY;
        l->factor[i] = 1;
    }
}

static void step(struct loop *l, enum pl_event_kind kind, int worker) {
    const struct pl_plan *plan = tell(l->control, l->now, kind, worker);
    for (size_t i = 0; i < plan->n; i++) {
        const struct pl_action *a = &plan->action[i];
        if (a->verb == PL_CANCEL) l->due[a->worker] = (double)INFINITY;
        if (a->verb != PL_START) continue;
        bool hangs = a->worker == l->hangs && l->now >= l->hangs_at;
        l->due[a->worker] = hangs ? (double)INFINITY : l->now + draw(l, a->worker);
    }
}

static void watch(struct loop *l) {
    while (pl_stragglers_look(l->slow, pl_control_view(l->control), (uint64_t)llround(l->now * 1e9),
                              &found)) {
        l->n_found++;
        l->last_found = found.worker;
    }
}

/* Runs n tasks, and looks once a second, as the server does. */
static void run(struct loop *l, int n) {
    double second = l->now + 1;
    if (l->now == 0)
        for (int i = 0; i < WORKERS; i++) step(l, PL_JOIN, i);
    for (int task = 0; task < n;) {
        int next = 0;
        for (int i = 1; i < WORKERS; i++)
            if (l->due[i] < l->due[next]) next = i;
        if (l->due[next] > second) { /* INFINITY: the others wait for one that hangs */
            l->now = second;
            second++;
            watch(l);
            if (isinf(l->due[next])) task++;
            continue;
        }
        l->now = l->due[next];
        l->due[next] = (double)INFINITY;
        step(l, PL_ARRIVE, next);
        task++;
    }
    watch(l);
}

/* How many workers the summary names, of those with a task that arrived: under constant times and a
 * policy that cancels, the same workers come too late each time. */
static int n_slow(const struct loop *l, int but) {
    const struct pl_timeline_row *row = pl_control_timeline(l->control)->row;
    struct pl_usual usual = pl_stragglers_usual(row, WORKERS);
    int n = 0;
    for (int i = 0; i < WORKERS; i++)
        n += i != but && row[i].n_timed > 0 && pl_stragglers_pace(&row[i], &usual) == PL_PACE_SLOW;
    return n;
}

/* Nobody is slow if all have the same law. */
TEST(nobody_is_slow_under_one_law) {
    int n_found = 0, n_runs = 0;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (size_t i = 0; i < sizeof laws / sizeof *laws; i++) {
            struct loop l;
            begin(&l, policies[p], &laws[i], test_seed + i);
            run(&l, 2000);
            if (l.n_found)
                print_error("%s, %s: %d warnings\n", policies[p], laws[i].name, l.n_found);
            n_found += l.n_found + n_slow(&l, -1);
            n_runs++;
        }
    /* one in a million tasks, and there are a hundred thousand */
    if (n_found > 1) fail_msg("%d warnings in %d runs", n_found, n_runs);
}

/* Nor are they in short runs, in which the means of identical workers differ much. */
TEST(nobody_is_slow_in_a_short_run) {
    for (uint64_t seed = 1; seed <= 50; seed++)
        for (size_t i = 0; i < sizeof laws / sizeof *laws; i++) {
            struct loop l;
            begin(&l, "kbatchasync:k=1", &laws[i], seed);
            run(&l, 60);
            if (n_slow(&l, -1) > 0) fail_msg("%s, seed %d", laws[i].name, (int)seed);
        }
}

/* A worker that takes ten times as long is found, under every policy that lets it finish or cuts it
 * off late enough to know, unless the law itself is as wide. */
TEST(a_slow_worker_is_found) {
    static const struct law known[] = {
        {"constant", 0.02, -1}, {"exponential", 0.02, 0}, {"Pareto 3", 0.02, 3}};
    for (size_t p = 0; p < 4; p++)
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            struct loop l;
            begin(&l, policies[p], &known[i], test_seed + i);
            l.factor[5] = 20;
            run(&l, 3000);
            if (n_slow(&l, 5) > 0)
                fail_msg("%s, %s: another worker is named", policies[p], known[i].name);
            bool cancels = strncmp(policies[p], "ksync:k=4", 9) == 0;
            if (!cancels && (l.n_found < 1 || l.last_found != 5))
                fail_msg("%s, %s: worker 6 was not found", policies[p], known[i].name);
            if (!cancels && n_slow(&l, -1) != 1)
                fail_msg("%s, %s: worker 6 is not named", policies[p], known[i].name);
            if (l.n_found && l.last_found != 5)
                fail_msg("%s, %s: worker %d was called slow", policies[p], known[i].name,
                         l.last_found + 1);
        }
}

/* A worker that hangs is found under light tails. */
TEST(a_hanging_worker_is_found) {
    static const struct law known[] = {{"constant", 0.02, -1}, {"exponential", 0.02, 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct loop l;
        begin(&l, "kbatchasync:k=1", &known[i], test_seed);
        l.hangs = 2;
        l.hangs_at = 1;
        run(&l, 20000); /* about 57 seconds */
        if (l.n_found != 1 || l.last_found != 2)
            fail_msg("%s: %d found, the last is worker %d", known[i].name, l.n_found,
                     l.last_found + 1);
    }
}

/* All stand still, for a minute or less, again and again: nobody was slow. What the server knows of
 * a pause is without its beat. */
TEST(a_pause_of_all_is_no_warning) {
    static const double pauses[] = {60, 2.5, 1.8, 1.3};
    for (int i = 0; i < 4; i++)
        for (int told = 0; told < 2; told++) {
            struct loop l;
            uint64_t lost_ns = 0;
            begin(&l, "kbatchasync:k=1", &laws[sizeof laws / sizeof *laws - 1], 1);
            run(&l, 500);
            assert_int_equal(l.n_found, 0);
            for (int n = 0; n < (told ? 3 : 1); n++) {
                l.now += pauses[i];
                for (int k = 0; k < WORKERS; k++) l.due[k] += pauses[i];
                lost_ns += (uint64_t)((pauses[i] - 0.2) * 1e9);
                if (told) pl_stragglers_lost(l.slow, lost_ns);
                watch(&l);
                assert_int_equal(l.n_found, told ? 0 : WORKERS); /* the test would notice */
                run(&l, 500);
            }
            if (told) assert_int_equal(l.n_found, 0);
        }
}
