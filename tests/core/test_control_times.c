/* Control by hand: late answers, times, clocks, the log, and what is restored. */
#include "puppet.h"

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9)) fail_msg("%.12g is not %.12g", got, want);
}

/* An answer to anything but the current task is never heard. */
TEST(test_late_answers) {
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
}

/* Every second has one use; the tuner hears of tasks that ended by themselves or by a cancel. */
TEST(test_times_by_hand) {
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
    assert_int_equal(event(6, PL_REJECT, 2, 1, ""), 0);       /* five wasted; it starts again */
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
}

/* A newcomer is at the pace of the slowest who is there. */
TEST(test_clocks_of_newcomers) {
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
}

static char line[4][200];
static int n_lines;

static void keep_line(void *ctx, const struct pl_control *c, const struct pl_event *e,
                      const struct pl_plan *p) {
    assert_ptr_equal(ctx, line);
    assert_true(n_lines < 4);
    pl_control_print(c, e, p, line[n_lines++], sizeof line[0]);
}

TEST(test_log) {
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
    assert_int_equal(event(1, PL_ARRIVE, 1, 1, "tc"), PL_EPOLICY); /* nobody computes any more, */
    assert_int_equal(begin(&deaf, 1), 0);
    assert_int_equal(event(0, PL_JOIN, 1, 0, "1"), 0);
    assert_int_equal(event(1, PL_ARRIVE, 1, 1, "tcs"), 0); /* unless the run has stopped */
}

/* --- restoring --------------------------------------------------------------------------- */

struct kept {
    const char *name; /* of the counts that are not as they were */
    uint64_t count;
    size_t n_bytes; /* how long every piece of bytes is said to be */
};

static size_t kept_piece(void *ctx, const char *name, enum pl_archive_kind kind, void *v,
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
TEST(test_restored_counts) {
    static const char *const names[] = {"control.counts", "workers"};
    for (int i = 0; i < 2; i++) {
        struct kept k = {names[i], 1000, 1};
        assert_int_equal(restore(&deaf, &k), 0);
        k.count = UINT64_MAX;
        assert_int_equal(restore(&deaf, &k), PL_EDATA);
    }
}

static uint64_t recalled;

static void mindful_init(void *state, const struct pl_run_info *scene, struct pl_knobs *knobs) {
    *(uint64_t *)state = 7;
}

static void mindful_arrive(void *state, const struct pl_run_info *scene, const struct pl_view *v,
                           const struct pl_arrival *a, struct pl_knobs *knobs) {
    recalled = *(uint64_t *)state;
}

static const struct pl_tuner mindful = {
    .id = {.name = "mindful", .brief = "", .paper = "", .opts = pl_no_opts},
    .state_size = sizeof(uint64_t),
    .init = mindful_init,
    .arrive = mindful_arrive};

/* The memory of one of the same name but another size, of another version say, is left alone. */
TEST(test_restored_memory) {
    static const size_t sizes[] = {0, 1, 7, 8, 9, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct kept k = {"", 0, sizes[i]};
        assert_int_equal(restore(&mindful, &k), 0);
        assert_int_equal(event(1, PL_JOIN, 1, 0, "1"), 0);
        assert_int_equal(event(2, PL_ARRIVE, 1, 1, "tc1"), 0);
        assert_true(recalled == (sizes[i] == sizeof(uint64_t) ? UINT64_MAX : 7));
    }
}
