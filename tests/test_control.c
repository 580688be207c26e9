/* Control by hand: a policy that says what the test puts into its mouth, and every plan of up to
 * four actions against a judge that knows only the rules in control.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/control.h"

/* --- a puppet policy and a puppet tuner -------------------------------------------------- */

/* What it says next, a letter an action: t(ake) d(rop) c(ommit) s(top); 1 2 3: start W1 W2 W3 on
 * the newest version; k l m: let W1 W2 W3 keep theirs; x y z: cancel W1 W2 W3; 9: start W10; a
 * timer: N(ow) S(oon, in a second) P(ast) O(ff). */
static const char *mouth;
static struct pl_view seen; /* what it was shown */
static struct pl_arrival seen_arrival;

static void puppet_say(struct pl_plan *p) {
    for (const char *c = mouth; *c; c++) {
        if (*c == 't') pl_take(p, 1);
        if (*c == 'd') pl_drop(p);
        if (*c == 'w') pl_defer(p);
        if (*c >= 'A' && *c <= 'C') pl_take_deferred(p, *c - 'A', 1);
        if (*c == 'c') pl_commit(p, 1);
        if (*c == 's') pl_stop(p);
        if (*c >= '1' && *c <= '9') pl_start(p, *c - '1' + (*c == '9'), PL_FETCH);
        if (*c >= 'k' && *c <= 'm') pl_start(p, *c - 'k', PL_KEEP);
        if (*c >= 'x' && *c <= 'z') pl_cancel(p, *c - 'x');
        if (*c == 'N') pl_timer(p, seen.now_ns);
        if (*c == 'S') pl_timer(p, seen.now_ns + 1000000000);
        if (*c == 'P') pl_timer(p, seen.now_ns - 1);
        if (*c == 'O') pl_timer(p, PL_NO_TIMER);
    }
}

static void puppet_arrive(void *state, const struct pl_view *v, const struct pl_arrival *a,
                          struct pl_plan *p) {
    (void)state;
    seen = *v;
    seen_arrival = *a;
    puppet_say(p);
}

static void puppet_move(void *state, const struct pl_view *v, int worker, struct pl_plan *p) {
    (void)state, (void)worker;
    seen = *v;
    puppet_say(p);
}

static int n_rung;

static void puppet_timer(void *state, const struct pl_view *v, struct pl_plan *p) {
    (void)state;
    seen = *v;
    n_rung++;
    puppet_say(p);
}

static struct pl_knobs puppet_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){2, PL_NO_BOUND};
}

static const struct pl_policy puppet = {
    .id = {.name = "puppet", .brief = "", .paper = "", .opts = pl_no_opts},
    .uses = PL_USES_K | PL_USES_BOUND,
    .knobs = puppet_knobs,
    .arrive = puppet_arrive,
    .join = puppet_move,
    .leave = puppet_move,
    .timer = puppet_timer};

static struct pl_knobs wish; /* what the tuner sets, where `wishes` */
static int wishes;           /* 1 at the start, 2 at an arrival, 3 at a measurement */
static double told[8];       /* of tasks: seconds, negative where not done */
static int n_told, n_dots;

static void tuner_init(void *state, const struct pl_run_info *scene, struct pl_knobs *knobs) {
    (void)state, (void)scene;
    if (wishes == 1) *knobs = wish;
}

static void tuner_arrive(void *state, const struct pl_run_info *scene, const struct pl_view *v,
                         const struct pl_arrival *a, struct pl_knobs *knobs) {
    (void)state, (void)scene, (void)v, (void)a;
    if (wishes == 2) *knobs = wish;
}

static void tuner_task(void *state, double seconds, bool done) {
    (void)state;
    assert_true(n_told < 8);
    told[n_told++] = done ? seconds : -seconds;
}

static void tuner_measure(void *state, const struct pl_run_info *scene, const struct pl_view *v,
                          const struct pl_measure *m, struct pl_knobs *knobs) {
    (void)state, (void)scene, (void)v;
    n_dots += m->dot == 0.25;
    if (wishes == 3) *knobs = wish;
}

static const struct pl_tuner deaf = {
    .id = {.name = "deaf", .brief = "", .paper = "", .opts = pl_no_opts}};

static const struct pl_tuner eager = {
    .id = {.name = "eager", .brief = "", .paper = "", .opts = pl_no_opts},
    .moves = PL_USES_K | PL_USES_BOUND,
    .init = tuner_init,
    .arrive = tuner_arrive,
    .task = tuner_task,
    .measure = tuner_measure};

static struct pl_control *control;
static const struct pl_plan *plan;
static struct pl_why why;

static int begin(const struct pl_tuner *tuner, int n_workers) {
    n_told = n_dots = 0;
    why.text[0] = '\0';
    return pl_control_new(&puppet, NULL, tuner, NULL, n_workers, 1, &control, &why);
}

static int event(double now, enum pl_event_kind kind, int worker, uint64_t task, const char *say) {
    struct pl_event e = {.kind = kind,
                         .now_ns = (uint64_t)llround(now * 1e9),
                         .worker = worker - 1,
                         .task = task,
                         .loss = 0.5,
                         .samples = 4};
    e.measure.dot = 0.25;
    mouth = say;
    why.text[0] = '\0';
    return pl_control_step(control, &e, &plan, &why);
}

static int refused(int rc, const char *sentence) {
    return rc == PL_EPOLICY && strcmp(why.text, sentence) == 0;
}

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9)) fail_msg("%.12g is not %.12g", got, want);
}

/* --- tests ------------------------------------------------------------------------------- */

#define BROKE "policy 'puppet' broke its contract: "

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        enum pl_event_kind kind;
        const char *say, *sentence;
    } row[] = {
        {PL_ARRIVE, "t1", ""},
        {PL_ARRIVE, "tc1", ""},
        {PL_ARRIVE, "d1y2", ""},
        {PL_ARRIVE, "tys", ""},
        {PL_ARRIVE, "", BROKE "it neither took, dropped nor deferred an arrival"},
        {PL_ARRIVE, "1", BROKE "it neither took, dropped nor deferred an arrival"},
        {PL_ARRIVE, "tt1", BROKE "it took or dropped more than the one arrival"},
        {PL_ARRIVE, "td1", BROKE "it took or dropped more than the one arrival"},
        {PL_ARRIVE, "tcd", BROKE "it took or dropped more than the one arrival"},
        {PL_ARRIVE, "tct", BROKE "it took or dropped more than the one arrival"},
        {PL_ARRIVE, "w", ""},
        {PL_ARRIVE, "wAc1", ""},
        {PL_ARRIVE, "w1", BROKE "it started a worker whose result is still deferred"},
        {PL_ARRIVE, "tw", BROKE "it took or dropped more than the one arrival"},
        {PL_ARRIVE, "wAA", BROKE "it took or dropped a result that did not arrive"},
        {PL_ARRIVE, "tB", BROKE "it took or dropped a result that did not arrive"},
        {PL_ARRIVE, "c", BROKE "it committed an empty group"},
        {PL_ARRIVE, "dc", BROKE "it committed an empty group"},
        {PL_ARRIVE, "tcc", BROKE "it committed twice for one event"},
        {PL_ARRIVE, "t2", BROKE "it started a worker that is not idle"},
        {PL_ARRIVE, "t3", BROKE "it started a worker that is not idle"},
        {PL_ARRIVE, "t9", BROKE "it started a worker that is not idle"},
        {PL_ARRIVE, "t11", BROKE "it started a worker that is not idle"},
        {PL_ARRIVE, "tx", BROKE "it cancelled a worker that is not busy"},
        {PL_ARRIVE, "tz", BROKE "it cancelled a worker that is not busy"},
        {PL_ARRIVE, "ty", BROKE "it stalled: no worker is busy"},
        {PL_ARRIVE, "tyN", ""},
        {PL_ARRIVE, "tyS", ""},
        {PL_ARRIVE, "tySO", BROKE "it stalled: no worker is busy"},
        {PL_ARRIVE, "t1P", BROKE "it set a timer to a time in the past"},
        {PL_ARRIVE, "t1111111111", BROKE "its plan is longer than any correct plan"},
        {PL_LEAVE, "", ""},
        {PL_LEAVE, "t", BROKE "it took or dropped a result that did not arrive"},
        {PL_LEAVE, "d", BROKE "it took or dropped a result that did not arrive"},
        {PL_LEAVE, "y", BROKE "it stalled: no worker is busy"},
        {PL_LEAVE, "yN", ""},
        {PL_LEAVE, "1", BROKE "it started a worker that is not idle"},
        {PL_JOIN, "3", ""},
        {PL_JOIN, "", ""},
        {PL_JOIN, "m", BROKE "it let a worker keep a version it never had"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        assert_int_equal(begin(&deaf, 3), 0);
        assert_int_equal(event(0, PL_JOIN, 1, 0, "1"), 0);
        assert_int_equal(event(0, PL_JOIN, 2, 0, "2"), 0);
        int rc = event(1, row[i].kind, row[i].kind == PL_JOIN ? 3 : 1, 1, row[i].say);
        bool ok = row[i].sentence[0] ? refused(rc, row[i].sentence) : rc == PL_OK;
        if (!ok) fail_msg("'%s': %d %s", row[i].say, rc, why.text);
        pl_control_free(control);
    }
    /* nobody can answer a join of the first with nothing: all would wait for ever */
    assert_int_equal(begin(&deaf, 3), 0);
    assert_true(refused(event(0, PL_JOIN, 1, 0, ""), BROKE "it stalled: no worker is busy"));
    pl_control_free(control);
    assert_int_equal(begin(&deaf, 3), 0);
    assert_int_equal(event(0, PL_JOIN, 4, 0, "1"), PL_EUSAGE);
    assert_string_equal(why.text, "there is no worker 4; workers are numbered 1 to 3");
    assert_int_equal(event(0, PL_ARRIVE, 0, 0, "1"), PL_EUSAGE);
    pl_control_free(control);
}

/* Whether a plan may be, for W1 arriving with W2 busy, W3 idle and n_open taken before. */
static bool legal(const char *say, int n_open) {
    enum pl_worker_state state[] = {PL_IDLE, PL_BUSY, PL_IDLE};
    bool decided = false, committed = false, stopped = false;
    for (const char *c = say; *c; c++) {
        int start = *c >= '1' && *c <= '3' ? *c - '1' : *c >= 'k' && *c <= 'm' ? *c - 'k' : -1;
        int cancel = *c >= 'x' && *c <= 'z' ? *c - 'x' : -1;
        if (*c == 't' || *c == 'd') {
            if (decided) return false;
            decided = true;
            n_open += *c == 't';
        }
        if (*c == 'c') {
            if (committed || n_open == 0) return false;
            committed = true;
            n_open = 0;
        }
        if (*c == 's') stopped = true;
        if (start >= 0) {
            if (state[start] != PL_IDLE) return false;
            state[start] = PL_BUSY;
        }
        if (cancel >= 0) {
            if (state[cancel] != PL_BUSY) return false;
            state[cancel] = PL_IDLE;
        }
    }
    bool busy = state[0] == PL_BUSY || state[1] == PL_BUSY || state[2] == PL_BUSY;
    return decided && (busy || stopped);
}

static void test_every_short_plan(void **state) {
    (void)state;
    static const char letters[] = "tdcs123klxyz";
    int n = (int)strlen(letters), n_all = n * n * n * n, n_legal = 0;
    for (int open = 0; open < 2; open++)
        for (int i = 0; i < n_all; i++)
            for (int length = 0; length <= 4; length++) {
                char say[5] = {0};
                int rest = i;
                for (int j = 0; j < length; j++, rest /= n) say[j] = letters[rest % n];
                if (rest) continue; /* the same as another */
                assert_int_equal(begin(&deaf, 3), 0);
                event(0, PL_JOIN, 1, 0, "1");
                event(0, PL_JOIN, 2, 0, "2");
                event(0, PL_JOIN, 3, 0, "3");
                event(1, PL_ARRIVE, 3, 1, open ? "t" : "d");
                int rc = event(2, PL_ARRIVE, 1, 1, say);
                bool want = legal(say, open);
                if (rc != (want ? PL_OK : PL_EPOLICY))
                    fail_msg("'%s' with %d taken: %d %s", say, open, rc, why.text);
                n_legal += want;
                pl_control_free(control);
            }
    assert_true(n_legal > 500);
}

/* Rings at a time, and says whether the policy heard. */
static bool rings(double now, const char *say) {
    int before = n_rung;
    assert_int_equal(event(now, PL_TIMER, 0, 0, say), 0);
    assert_true(n_rung == before + 1 || plan->n == 0);
    return n_rung > before;
}

static void check_line(const char *want) {
    char line[400];
    struct pl_event e = {.kind = PL_TIMER, .now_ns = pl_control_view(control)->now_ns};
    assert_true(pl_control_print_room(control, plan) <= sizeof line);
    pl_control_print(control, &e, plan, line, sizeof line);
    assert_string_equal(line, want);
}

static void test_timers(void **state) {
    (void)state;
    assert_int_equal(begin(&deaf, 3), 0);
    const struct pl_view *v = pl_control_view(control);
    assert_true(v->timer_ns == PL_NO_TIMER && !rings(0, ""));
    assert_int_equal(event(1, PL_JOIN, 1, 0, "S"), 0); /* a timer is enough: nobody has stalled */
    assert_true(v->timer_ns == 2000000000 && !rings(1.999999999, ""));
    assert_true(rings(2, "1S")); /* at its time */
    check_line("2 timer: start W1@w0, timer 3");
    assert_true(!rings(2.5, "") && rings(3.5, "")); /* late; and it is not set again by itself */
    check_line("3.5 timer");
    assert_true(v->timer_ns == PL_NO_TIMER && !rings(9, ""));
    assert_int_equal(event(10, PL_ARRIVE, 1, 1, "tcSNS1"), 0); /* what is said last counts, */
    assert_true(v->timer_ns == 11000000000);
    assert_int_equal(event(10, PL_JOIN, 2, 0, "2"), 0); /* saying nothing leaves it as it is */
    assert_int_equal(event(10.5, PL_MEASURED, 0, 0, ""), 0);
    assert_true(v->timer_ns == 11000000000);
    assert_int_equal(event(10.7, PL_LEAVE, 1, 0, "O"), 0);
    assert_true(v->timer_ns == PL_NO_TIMER && !rings(12, ""));
    /* nobody is there: there is nothing to wake for */
    assert_int_equal(event(13, PL_ARRIVE, 2, 1, "tS"), 0);
    assert_int_equal(event(13.5, PL_LEAVE, 2, 0, ""), 0);
    assert_true(v->timer_ns == PL_NO_TIMER && !rings(15, ""));
    /* a policy that stalls when it is woken is caught like any other */
    assert_int_equal(event(16, PL_JOIN, 3, 0, "N"), 0);
    assert_true(refused(event(16, PL_TIMER, 0, 0, ""), BROKE "it stalled: no worker is busy"));
    pl_control_free(control);
    struct pl_policy unheard = puppet;
    unheard.timer = NULL;
    assert_int_equal(pl_control_new(&unheard, NULL, &deaf, NULL, 3, 1, &control, &why), 0);
    assert_int_equal(event(0, PL_JOIN, 1, 0, "1O"), 0);
    assert_true(
        refused(event(0, PL_JOIN, 2, 0, "2S"), BROKE "it set a timer but has no timer function"));
    pl_control_free(control);
}

static void test_guards_on_tuners(void **state) {
    (void)state;
#define TUNER "tuner 'eager' broke its contract: "
    static const struct {
        struct pl_knobs wish;
        const char *sentence;
    } row[] = {
        {{1, 1}, ""},
        {{3, 7}, ""},
        {{0, 7}, TUNER "it set K to 0 with 3 workers"},
        {{-1, 7}, TUNER "it set K to -1 with 3 workers"},
        {{4, 7}, TUNER "it set K to 4 with 3 workers"},
        {{3, 0}, TUNER "it set a staleness bound of 0"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        for (int where = 1; where <= 3; where++) {
            wish = row[i].wish;
            wishes = where;
            int rc = begin(&eager, 3);
            if (where > 1) {
                assert_int_equal(rc, 0);
                assert_int_equal(event(0, PL_JOIN, 1, 0, "1"), 0);
                rc = event(1, PL_ARRIVE, 1, 1, "tc1");
            }
            if (where > 2) {
                assert_int_equal(rc, 0);
                rc = event(1, PL_MEASURED, 1, 0, "");
            }
            bool ok = row[i].sentence[0] ? refused(rc, row[i].sentence) : rc == PL_OK;
            if (!ok) fail_msg("row %zu, place %d: %d '%s'", i, where, rc, why.text);
            if (!rc) assert_int_equal(pl_control_view(control)->knobs.k, row[i].wish.k);
            if (where > 1 || !rc) pl_control_free(control);
        }
    /* where K counts mini-batches it may exceed the workers; an unannounced knob may not move */
    struct pl_policy batches = puppet;
    struct pl_tuner shy = eager;
    batches.by_batch = true;
    wish = (struct pl_knobs){4, PL_NO_BOUND};
    wishes = 1;
    assert_int_equal(pl_control_new(&batches, NULL, &eager, NULL, 3, 1, &control, &why), 0);
    pl_control_free(control);
    shy.moves = PL_USES_BOUND;
    assert_true(refused(pl_control_new(&batches, NULL, &shy, NULL, 3, 1, &control, &why),
                        TUNER "it changed K without declaring it"));
    shy.moves = PL_USES_K;
    wish = (struct pl_knobs){2, 5};
    assert_true(refused(pl_control_new(&batches, NULL, &shy, NULL, 3, 1, &control, &why),
                        TUNER "it changed the bound without declaring it"));
    wishes = 0;
}

static const char *puppet_check(const void *conf, int n_workers) {
    (void)conf;
    return n_workers > 1 ? NULL : "one is not enough";
}

static const char *tuner_check(const void *conf, const struct pl_run_info *scene) {
    (void)conf;
    return scene->k == 2 && scene->n_workers == 3 && !scene->by_batch ? "not here" : NULL;
}

static struct pl_knobs bounded_knobs(const void *conf) {
    (void)conf;
    return (struct pl_knobs){2, 6};
}

static void test_what_suits(void **state) {
    (void)state;
    struct pl_policy p = puppet;
    struct pl_tuner t = eager;
    p.uses = PL_USES_BOUND;
    assert_int_equal(pl_control_new(&p, NULL, &t, NULL, 3, 1, &control, &why), PL_EUSAGE);
    assert_string_equal(why.text, "tuner 'eager' changes K, which policy 'puppet' does not use; "
                                  "choose another tuner or policy");
    p.uses = PL_USES_K;
    assert_int_equal(pl_control_new(&p, NULL, &t, NULL, 3, 1, &control, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "changes the staleness bound"));
    p = puppet;
    p.knobs = bounded_knobs;
    assert_int_equal(pl_control_new(&p, NULL, &t, NULL, 3, 1, &control, &why), PL_EUSAGE);
    assert_non_null(strstr(why.text, "sets the staleness bound itself"));
    p = puppet;
    p.check = puppet_check;
    t.check = tuner_check;
    assert_int_equal(pl_control_new(&p, NULL, &t, NULL, 1, 1, &control, &why), PL_EUSAGE);
    assert_string_equal(why.text, "policy 'puppet' with 1 workers: one is not enough");
    assert_int_equal(pl_control_new(&p, NULL, &t, NULL, 3, 1, &control, &why), PL_EUSAGE);
    assert_string_equal(why.text, "tuner 'eager' with 3 workers: not here");
}

/* An answer to anything but the current task is never heard. */
static void test_late_answers(void **state) {
    (void)state;
    assert_int_equal(begin(&deaf, 2), 0);
    assert_int_equal(event(0, PL_JOIN, 1, 0, "1"), 0);
    assert_int_equal(event(0, PL_JOIN, 2, 0, "2"), 0);
    assert_int_equal(event(1, PL_ARRIVE, 1, 1, "tc1y2"), 0); /* W2#1 is cancelled, W2#2 starts */
    static const enum pl_event_kind kinds[] = {PL_ARRIVE, PL_REJECT};
    for (int k = 0; k < 2; k++) {
        for (uint64_t task = 0; task < 5; task++) {
            if (task == 2) continue;
            assert_int_equal(event(2, kinds[k], 2, task, "tc2"), 0);
            assert_int_equal(plan->n, 0);
        }
    }
    assert_int_equal(event(2, PL_JOIN, 2, 0, "2"), 0); /* it is there already */
    assert_int_equal(plan->n, 0);
    assert_int_equal(event(3, PL_LEAVE, 2, 0, ""), 0);
    assert_int_equal(event(3, PL_ARRIVE, 2, 2, "tc2"), 0); /* it is gone */
    assert_int_equal(plan->n, 0);
    assert_int_equal(event(3, PL_LEAVE, 2, 0, "1"), 0);
    assert_int_equal(plan->n, 0);
    struct pl_fates f = pl_control_fates(control);
    assert_true(f.started == 4 && f.applied == 1 && f.cancelled == 1 && f.lost == 1);
    assert_true(f.rejected == 0 && f.dropped == 0 && f.running == 1);
    assert_int_equal(pl_control_view(control)->version, 1);
    pl_control_free(control);
}

/* Every second has one use; the tuner hears of tasks that ended by themselves or by a cancel. */
static void test_times_by_hand(void **state) {
    (void)state;
    struct pl_event e = {.kind = PL_ARRIVE, .worker = 0, .task = 1, .samples = 1, .loss = NAN};
    wishes = 0;
    assert_int_equal(begin(&eager, 3), 0);
    assert_true(pl_control_measures(control));
    assert_int_equal(event(1, PL_JOIN, 1, 0, "1"), 0);
    assert_int_equal(event(1, PL_JOIN, 2, 0, "2"), 0);
    assert_int_equal(event(1, PL_JOIN, 3, 0, "3"), 0);
    e.now_ns = 5000000000; /* W1: four seconds, one and a half of them on the way; then idle */
    e.comm_ns = 1500000000;
    mouth = "t";
    assert_int_equal(pl_control_step(control, &e, &plan, &why), 0);
    assert_true(seen_arrival.worker == 0 && seen_arrival.lag == 0 && seen.n_idle == 1);
    assert_true(seen.n_alive == 3 && pl_n_busy(&seen) == 2 && seen.now_ns == e.now_ns);
    assert_int_equal(event(6, PL_REJECT, 2, 1, ""), 0);       /* five wasted; it starts anew */
    assert_int_equal(event(7, PL_ARRIVE, 2, 2, "d2"), 0);     /* one wasted */
    assert_int_equal(event(9, PL_LEAVE, 3, 0, "c1"), 0);      /* eight wasted; W1 idled for four */
    assert_int_equal(event(12, PL_ARRIVE, 2, 3, "tx1c2"), 0); /* five; W1's three wasted */
    assert_int_equal(seen_arrival.lag, 1);
    assert_int_equal(event(12, PL_MEASURED, 1, 0, ""), 0);
    assert_int_equal(n_dots, 1);
    struct pl_worker_time t = pl_control_worker_time(control, 14000000000); /* two busy for two */
    near(t.compute, 2.5 + 5 + 4);
    near(t.communication, 1.5);
    near(t.idle, 4);
    near(t.wasted, 5 + 1 + 8 + 3);
    near(t.compute + t.communication + t.idle + t.wasted, 13 + 13 + 8);
    struct pl_fates f = pl_control_fates(control);
    assert_true(f.started == 8 && f.applied == 2 && f.dropped == 1 && f.cancelled == 1);
    assert_true(f.lost == 1 && f.rejected == 1 && f.running == 2);
    struct pl_staleness s = pl_control_staleness(control);
    assert_true(s.mean == 0.5 && s.max == 1 && s.fresh_fraction == 0.5);
    static const double want[] = {4, 1, 5, -3};
    assert_int_equal(n_told, 4);
    for (int i = 0; i < 4; i++) near(told[i], want[i]);
    pl_control_free(control);
}

/* A newcomer is at the pace of the slowest who is there. */
static void test_clocks_of_newcomers(void **state) {
    (void)state;
    assert_int_equal(begin(&deaf, 3), 0);
    const struct pl_worker *w = pl_control_view(control)->worker;
    event(0, PL_JOIN, 1, 0, "1");
    event(0, PL_JOIN, 2, 0, "2");
    for (uint64_t i = 1; i <= 5; i++) assert_int_equal(event(1, PL_ARRIVE, 1, i, "tc1"), 0);
    for (uint64_t i = 1; i <= 3; i++) assert_int_equal(event(1, PL_ARRIVE, 2, i, "tc2"), 0);
    event(2, PL_JOIN, 3, 0, "3");
    assert_true(w[0].clock == 5 && w[1].clock == 3 && w[2].clock == 3);
    event(2, PL_LEAVE, 1, 0, "");
    assert_int_equal(event(3, PL_ARRIVE, 3, 1, "tc3"), 0);
    event(3, PL_JOIN, 1, 0, "1"); /* it was at 5 */
    assert_true(w[0].clock == 3 && w[1].clock == 3 && w[2].clock == 4);
    for (int i = 1; i <= 3; i++) event(4, PL_LEAVE, i, 0, "");
    event(5, PL_JOIN, 2, 0, "2"); /* nobody is there: where the fastest ever was */
    assert_int_equal(w[1].clock, 5);
    pl_control_free(control);
}

static char line[4][200];
static int n_lines;

static void keep_line(void *ctx, const struct pl_control *c, const struct pl_event *e,
                      const struct pl_plan *p) {
    assert_ptr_equal(ctx, line);
    assert_true(n_lines < 4);
    pl_control_print(c, e, p, line[n_lines++], sizeof line[0]);
}

static void test_log(void **state) {
    (void)state;
    size_t n;
    assert_int_equal(begin(&deaf, 3), 0);
    for (int i = 1; i <= 3; i++) event(0, PL_JOIN, i, 0, i == 1 ? "1" : i == 2 ? "2" : "3");
    event(0.5, PL_ARRIVE, 2, 1, "t");
    n_lines = 0;
    pl_control_on_event(control, keep_line, line);
    assert_int_equal(event(2.3, PL_ARRIVE, 1, 1, "tc21z3"), 0);
    const struct pl_member *m = pl_control_group(control, &n); /* the one just closed */
    assert_true(n == 2 && m[0].worker == 1 && m[1].worker == 0 && m[1].samples == 4);
    event(2.4, PL_ARRIVE, 3, 1, "t"); /* late: not logged */
    pl_control_group(control, &n);
    assert_int_equal(n, 0);
    assert_int_equal(event(2.5, PL_REJECT, 1, 2, ""), 0);
    assert_int_equal(event(1e3, PL_ARRIVE, 1, 3, "dms"), PL_EPOLICY); /* nor what is refused */
    assert_int_equal(n_lines, 2);
    pl_control_free(control);
    assert_string_equal(line[0], "2.3 arrive W1#1: take, commit w1 <- W2@w0 W1@w0, start W2@w1, "
                                 "start W1@w1, cancel W3, start W3@w1");
    assert_string_equal(line[1], "2.5 reject W1#2: start W1@w1");
    char cut[12]; /* cut, never beyond */
    memset(cut, '?', sizeof cut);
    assert_int_equal(begin(&deaf, 1), 0);
    struct pl_event e = {.kind = PL_JOIN, .now_ns = 1};
    mouth = "1";
    assert_int_equal(pl_control_step(control, &e, &plan, &why), 0);
    pl_control_print(control, &e, plan, cut, 8);
    assert_true(strcmp(cut, "0.00000") == 0 && cut[8] == '?');
    assert_false(pl_control_stopped(control));
    assert_int_equal(event(1, PL_ARRIVE, 1, 1, "tcs"), 0);
    assert_true(pl_control_stopped(control));
    pl_control_free(control);
}

/* --- restoring --------------------------------------------------------------------------- */

struct kept {
    const char *name; /* of the counts that are not as they were */
    uint64_t count;
    size_t n_bytes; /* how long every piece of bytes is said to be */
};

static size_t kept_piece(void *ctx, const char *name, enum pl_archive_type kind, void *v,
                         size_t n) {
    const struct kept *k = ctx;
    if (kind == PL_WHOLES && strcmp(name, k->name) == 0) *(uint64_t *)v = k->count;
    for (size_t i = 0; kind == PL_NUMBERS && i < n; i++) ((double *)v)[i] = NAN;
    if (kind != PL_BYTES) return n;
    memset(v, 0xff, k->n_bytes < n ? k->n_bytes : n);
    return k->n_bytes;
}

static int restore(const struct pl_tuner *tuner, struct kept *k) {
    struct pl_archive archive = {true, k, kept_piece};
    assert_int_equal(begin(tuner, 3), 0);
    return pl_control_archive(control, &archive);
}

/* Counts that would run over are refused; a task's number among them, whose next would be none. */
static void test_restored_counts(void **state) {
    (void)state;
    static const char *const names[] = {"control.counts", "workers"};
    for (int i = 0; i < 2; i++) {
        struct kept k = {names[i], 1000, 1};
        assert_int_equal(restore(&deaf, &k), 0);
        pl_control_free(control);
        k.count = UINT64_MAX;
        assert_int_equal(restore(&deaf, &k), PL_EDATA);
        pl_control_free(control);
    }
}

static uint64_t recalled;

static void mindful_init(void *state, const struct pl_run_info *scene, struct pl_knobs *knobs) {
    (void)scene, (void)knobs;
    *(uint64_t *)state = 7;
}

static void mindful_arrive(void *state, const struct pl_run_info *scene, const struct pl_view *v,
                           const struct pl_arrival *a, struct pl_knobs *knobs) {
    (void)scene, (void)v, (void)a, (void)knobs;
    recalled = *(uint64_t *)state;
}

static const struct pl_tuner mindful = {
    .id = {.name = "mindful", .brief = "", .paper = "", .opts = pl_no_opts},
    .state_size = sizeof(uint64_t),
    .init = mindful_init,
    .arrive = mindful_arrive};

/* The memory of one of the same name but another size, of another version say, is left alone. */
static void test_restored_memory(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 7, 8, 9, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct kept k = {"", 0, sizes[i]};
        assert_int_equal(restore(&mindful, &k), 0);
        assert_int_equal(event(1, PL_JOIN, 1, 0, "1"), 0);
        assert_int_equal(event(2, PL_ARRIVE, 1, 1, "tc1"), 0);
        assert_true(recalled == (sizes[i] == sizeof(uint64_t) ? UINT64_MAX : 7));
        pl_control_free(control);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_every_short_plan),
                                       cmocka_unit_test(test_timers),
                                       cmocka_unit_test(test_guards_on_tuners),
                                       cmocka_unit_test(test_what_suits),
                                       cmocka_unit_test(test_late_answers),
                                       cmocka_unit_test(test_times_by_hand),
                                       cmocka_unit_test(test_clocks_of_newcomers),
                                       cmocka_unit_test(test_log),
                                       cmocka_unit_test(test_restored_counts),
                                       cmocka_unit_test(test_restored_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
