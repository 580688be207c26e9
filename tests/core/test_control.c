/* Control by hand: a policy that says what the test puts into its mouth, and every plan of up to
 * four actions against a judge that knows only the rules in control.h. */
#include "puppet.h"

/* --- a puppet policy and a puppet tuner -------------------------------------------------- */

static int refused(int rc, const char *sentence) {
    return rc == PL_EPOLICY && strcmp(why.text, sentence) == 0;
}

/* --- tests ------------------------------------------------------------------------------- */

#define BROKE "policy 'puppet' broke its contract: "

TEST(test_refusals) {
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
    }
    /* nobody can answer a join of the first with nothing: all would wait for ever */
    assert_int_equal(begin(&deaf, 3), 0);
    assert_true(refused(event(0, PL_JOIN, 1, 0, ""), BROKE "it stalled: no worker is busy"));
    assert_int_equal(begin(&deaf, 3), 0);
    assert_int_equal(event(0, PL_JOIN, 4, 0, "1"), PL_EUSAGE);
    assert_string_equal(why.text, "there is no worker 4; workers are numbered 1 to 3");
    assert_int_equal(event(0, PL_ARRIVE, 0, 0, "1"), PL_EUSAGE);
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

TEST(test_every_short_plan) {
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

TEST(test_timers) {
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
    struct pl_policy unheard = puppet;
    unheard.timer = NULL;
    assert_int_equal(begin_with(&unheard, &deaf, 3), 0);
    assert_int_equal(event(0, PL_JOIN, 1, 0, "1O"), 0);
    assert_true(
        refused(event(0, PL_JOIN, 2, 0, "2S"), BROKE "it set a timer but has no timer function"));
}

TEST(test_guards_on_tuners) {
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
        }
    /* where K counts mini-batches it may exceed the workers; an unannounced knob may not move */
    struct pl_policy batches = puppet;
    struct pl_tuner shy = eager;
    batches.by_batch = true;
    wish = (struct pl_knobs){4, PL_NO_BOUND};
    wishes = 1;
    assert_int_equal(begin_with(&batches, &eager, 3), 0);
    shy.moves = PL_USES_BOUND;
    assert_true(refused(begin_with(&batches, &shy, 3), TUNER "it changed K without declaring it"));
    shy.moves = PL_USES_K;
    wish = (struct pl_knobs){2, 5};
    assert_true(
        refused(begin_with(&batches, &shy, 3), TUNER "it changed the bound without declaring it"));
    wishes = 0;
}

static const char *puppet_check(const void *conf, int n_workers) {
    return n_workers > 1 ? NULL : "one is not enough";
}

static const char *tuner_check(const void *conf, const struct pl_run_info *scene) {
    return scene->k == 2 && scene->n_workers == 3 && !scene->by_batch ? "not here" : NULL;
}

static struct pl_knobs bounded_knobs(const void *conf) {
    return (struct pl_knobs){2, 6};
}

TEST(test_what_suits) {
    struct pl_policy p = puppet;
    struct pl_tuner t = eager;
    p.uses = PL_USES_BOUND;
    assert_int_equal(begin_with(&p, &t, 3), PL_EUSAGE);
    assert_string_equal(why.text, "tuner 'eager' changes K, which policy 'puppet' does not use; "
                                  "choose another tuner or policy");
    p.uses = PL_USES_K;
    assert_int_equal(begin_with(&p, &t, 3), PL_EUSAGE);
    assert_non_null(strstr(why.text, "changes the staleness bound"));
    p = puppet;
    p.knobs = bounded_knobs;
    assert_int_equal(begin_with(&p, &t, 3), PL_EUSAGE);
    assert_non_null(strstr(why.text, "sets the staleness bound itself"));
    p = puppet;
    p.check = puppet_check;
    t.check = tuner_check;
    assert_int_equal(begin_with(&p, &t, 1), PL_EUSAGE);
    assert_string_equal(why.text, "policy 'puppet' with 1 workers: one is not enough");
    assert_int_equal(begin_with(&p, &t, 3), PL_EUSAGE);
    assert_string_equal(why.text, "tuner 'eager' with 3 workers: not here");
}
