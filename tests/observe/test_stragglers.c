/* Straggler detection: scripted runs through a real control. Every worker is started again when it
 * answers, so task times are those of the script. */
#include "choices.h"
#include "observe/stragglers.h"
#include "test.h"

static struct pl_control *control;
static struct pl_stragglers *slow;
static struct pl_stragglers_found found;
static double now; /* seconds */

static int begin_run(int n_workers) {
    control = control_of("kbatchasync:k=1", "fixed", n_workers, 1);
    assert_int_equal(pl_stragglers_new(n_workers, &slow), 0);
    pl_control_on_event(control, pl_stragglers_event, slow);
    now = 0;
    return 0;
}

static int end_run(void **state) {
    pl_stragglers_free(slow);
    pl_control_free(control);
    return 0;
}

static void event(enum pl_event_kind kind, int worker) {
    const struct pl_plan *plan;
    struct pl_why why = {""};
    struct pl_event e = {.kind = kind,
                         .now_ns = (uint64_t)llround(now * 1e9),
                         .worker = worker - 1,
                         .task = pl_control_view(control)->worker[worker - 1].task};
    if (pl_control_step(control, &e, &plan, &why)) fail_msg("%s", why.text);
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

static int two_workers(void **state) {
    begin_run(2);
    event(PL_JOIN, 1);
    event(PL_JOIN, 2);
    return 0;
}

static int four_workers(void **state) {
    begin_run(4);
    for (int i = 1; i <= 4; i++) event(PL_JOIN, i);
    return 0;
}

/* W2 hangs in its first task while W1 answers every half second. */
TEST_BETWEEN(two_workers, end_run, test_running) {
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

/* Both thresholds of a running task: four medians, and a second more than one. */
TEST_BETWEEN(two_workers, end_run, test_running_limits) {
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
    now += 39.9; /* half a minute more than usual, but not four medians */
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
TEST_BETWEEN(four_workers, end_run, test_on_average) {
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
TEST(test_by_work) {
    static const double sizes[] = {0.3, 20, 1, 0, 5};
    begin_run(2);
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
    end_run(NULL);
}

TEST(test_alone) {
    begin_run(1);
    event(PL_JOIN, 1);
    for (int i = 0; i < 50; i++) {
        answer(1, i % 2 ? 0.1 : 0.9); /* there is no other worker to compare with */
        assert_false(look());
    }
    event(PL_LEAVE, 1);
    now += 100;
    assert_false(look()); /* who is gone is not slow */
    end_run(NULL);
}

TEST(test_sentence) {
    static const struct {
        struct pl_stragglers_found found;
        const char *phase, *text;
    } row[] = {
        {{PL_SLOW_TASK, 2, 12.3, 0.41},
         "computing",
         "worker 3 is slow: its task has run for 12.3 s (median 0.41 s); it is computing"},
        {{PL_SLOW_WORKER, 0, 1234.5, 101.9},
         NULL,
         "worker 1 is slow: its tasks take 1234 s (median 102 s)"},
        {{PL_SLOW_WORKER, 9, 0.0123, 0.00000041},
         "",
         "worker 10 is slow: its tasks take 0.0123 s (median 0.41 µs)"},
    };
    char text[200];
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        pl_stragglers_sentence(&row[i].found, row[i].phase, text, sizeof text);
        assert_string_equal(text, row[i].text);
    }
    pl_stragglers_sentence(&row[0].found, "x", text, 10);
    assert_string_equal(text, "worker 3 ");
}
