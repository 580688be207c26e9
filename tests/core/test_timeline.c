/* The timeline: what workers did, by hand and over random runs of every method. PL_TEST_SEED moves
 * every random choice. */
#include "log_runs.h"

static char story[2000];

static void tell(void *ctx, const struct pl_control *c, const struct pl_event *e,
                 const struct pl_plan *plan) {
    static const char *const kinds[] = {"compute", "communicate", "idle", "wasted"};
    const struct pl_timeline *l = pl_control_timeline(c);
    for (const struct pl_span *s = l->span, *end = s + l->n_spans; s < end; s++)
        pl_append(story, sizeof story, "%d %s %g-%g #%d@%d %s%s\n", s->worker + 1, kinds[s->kind],
                  (double)s->from_ns * 1e-9, (double)s->to_ns * 1e-9, (int)s->task, (int)s->base,
                  s->why, s->again ? " after all" : "");
}

static struct pl_control *watched(const char *policy, int n) {
    struct pl_control *c = control_of(policy, "fixed", n, test_seed);
    story[0] = '\0';
    assert_int_equal(pl_control_on_event(c, tell, NULL), 0);
    return c;
}

static void near_ns(uint64_t got, double want) {
    near((double)got * 1e-9, want);
}

TEST(test_timeline_story) {
    struct pl_control *c = watched("ksync:k=2,cancel=yes", 3);
    for (int i = 1; i <= 3; i++) at(c, 0, PL_JOIN, i, 0);
    at(c, 1, PL_ARRIVE, 1, 0.25);
    at(c, 3, PL_ARRIVE, 3, 5); /* sent for longer than it took: all of it */
    at(c, 4, PL_REJECT, 2, 0);
    at(c, 5, PL_LEAVE, 3, 0);
    at(c, 6, PL_ARRIVE, 1, 0);
    at(c, 7, PL_LEAVE, 1, 0);
    at(c, 8, PL_JOIN, 3, 0);
    pl_control_end(c, 10000000000u);
    pl_control_end(c, 11000000000u); /* once is enough */
    assert_string_equal(story, "1 compute 0-0.75 #1@0 \n"
                               "1 communicate 0.75-1 #1@0 \n"
                               "3 communicate 0-3 #1@0 \n"
                               "1 idle 1-3 #0@0 \n"
                               "2 wasted 0-3 #1@0 cancelled\n"
                               "2 wasted 3-4 #2@1 rejected\n"
                               "3 wasted 3-5 #2@1 lost\n"
                               "1 compute 3-6 #2@1 \n"
                               "1 idle 6-7 #0@0 \n"
                               "2 compute 4-10 #3@1 unfinished\n"
                               "3 compute 8-10 #3@1 unfinished\n");
    const struct pl_timeline_row *row = pl_control_timeline(c)->row;
    near_ns(row[0].ns[PL_SPAN_COMPUTE], 3.75);
    near_ns(row[0].ns[PL_SPAN_COMMUNICATE], 0.25);
    near_ns(row[0].ns[PL_SPAN_IDLE], 3);
    near_ns(row[1].ns[PL_SPAN_WASTED], 4);
    assert_int_equal(row[0].n_used, 2);
    assert_int_equal(row[0].n_timed, 2);
    near_ns(row[0].arrived_ns, 4);
    assert_int_equal(row[1].n_wasted, 2);
    assert_int_equal(row[2].n_wasted, 1);
    assert_int_equal(row[2].n_last, 1); /* W1 waited from 1 to 3 */
    near_ns(row[2].held_up_ns, 2);
    near_ns(row[1].unfinished_ns, 6);
}

/* A member that a commit leaves out is rejected: its time is wasted, and its lag counts nowhere. */
TEST(test_left_out) {
    struct pl_control *c = watched("kasync:k=2", 3);
    const struct pl_plan *plan;
    char line[200];
    for (int i = 1; i <= 3; i++) at(c, 0, PL_JOIN, i, 0);
    at(c, 1, PL_ARRIVE, 1, 0);
    at(c, 2, PL_ARRIVE, 2, 0); /* an update */
    at(c, 3, PL_ARRIVE, 3, 1); /* one update behind */
    struct pl_event e = {.kind = PL_ARRIVE, .now_ns = 5000000000u, .worker = 0, .task = 2};
    story[0] = '\0';
    assert_int_equal(pl_control_decide(c, &e, &plan, &why), 0);
    assert_string_equal(story, ""); /* it is not carried out yet */
    pl_control_leave_out(c, 0);
    pl_control_carried_out(c, &e, plan);
    assert_string_equal(story, "1 compute 2-5 #2@1 \n"
                               "3 idle 3-5 #0@0 \n"
                               "3 wasted 0-0 #1@0 rejected after all\n");
    pl_control_print(c, &e, plan, line, sizeof line);
    assert_string_equal(line, "5 arrive W1#2: take, commit w2 <- W1@w1, reject W3#1, start W3@w2, "
                              "start W1@w2");
    struct pl_fates f = pl_control_fates(c);
    assert_true(f.applied == 3 && f.rejected == 1 && f.running == 3 && f.started == 7);
    struct pl_staleness lag = pl_control_staleness(c);
    assert_true(lag.mean == 0 && lag.max == 0 && lag.fresh_fraction == 1);
    const struct pl_timeline_row *row = &pl_control_timeline(c)->row[2];
    assert_true(row->n_used == 0 && row->n_wasted == 1 && row->n_timed == 1);
    near_ns(row->ns[PL_SPAN_WASTED], 3);
    near_ns(row->ns[PL_SPAN_COMPUTE] + row->ns[PL_SPAN_COMMUNICATE], 0);
    struct pl_worker_time t = pl_control_worker_time(c, 5000000000u);
    near(t.wasted, 3);
    near(t.compute, 1 + 2 + 3 + 3);
    near(t.communication, 0);
}

static void count_call(void *ctx, const struct pl_control *c, const struct pl_event *e,
                       const struct pl_plan *plan) {
    ++*(int *)ctx;
}

TEST(test_any_number_of_listeners) {
    struct pl_control *c = control_of("ksync:k=1", "fixed", 1, test_seed);
    int n_calls = 0;
    for (int i = 0; i < 20; i++) assert_int_equal(pl_control_on_event(c, count_call, &n_calls), 0);
    at(c, 0, PL_JOIN, 1, 0);
    assert_int_equal(n_calls, 20);
}

/* Who the others waited for. */
TEST(test_timeline_last) {
    static const struct {
        const char *policy;
        int n_last; /* of W3, over two updates of which it is the last */
        double held_up;
    } row[] = {
        {"ksync:k=all", 2, 3 + 0},      /* the second time W2 and W3 come together */
        {"ksync:k=1,cancel=yes", 0, 0}, /* others are cancelled: they did not wait */
        {"kbatchasync:k=3", 0, 0},      /* no worker waits */
        {"kasync:k=all", 2, 3},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct pl_control *c = watched(row[i].policy, 3);
        for (int w = 1; w <= 3; w++) at(c, 0, PL_JOIN, w, 0);
        at(c, 1, PL_ARRIVE, 1, 0);
        at(c, 2, PL_ARRIVE, 2, 0);
        at(c, 5, PL_ARRIVE, 3, 0);
        at(c, 6, PL_ARRIVE, 1, 0);
        at(c, 7, PL_ARRIVE, 2, 0);
        at(c, 7, PL_ARRIVE, 3, 0);
        const struct pl_timeline_row *w = pl_control_timeline(c)->row;
        if ((int)w[2].n_last != row[i].n_last) fail_msg("%s: %d", row[i].policy, (int)w[2].n_last);
        near_ns(w[2].held_up_ns, row[i].held_up);
        assert_int_equal(w[0].n_last + w[1].n_last, 0);
    }
    /* a group of one whose commit lets another go: nothing to measure from, but it was the last */
    struct pl_control *c = watched("ssp:s=0", 2);
    at(c, 0, PL_JOIN, 1, 0);
    at(c, 0, PL_JOIN, 2, 0);
    at(c, 1, PL_ARRIVE, 1, 0);
    at(c, 4, PL_ARRIVE, 2, 0);
    assert_int_equal(pl_control_timeline(c)->row[1].n_last, 1);
    near_ns(pl_control_timeline(c)->row[1].held_up_ns, 0);
}

/* Spans of one worker follow each other without a gap while it is there. */
struct cover {
    bool there[N_WORKERS];
    uint64_t to_ns[N_WORKERS];
};

static void cover_event(void *ctx, const struct pl_control *c, const struct pl_event *e,
                        const struct pl_plan *plan) {
    struct cover *k = ctx;
    const struct pl_timeline *l = pl_control_timeline(c);
    if (e->kind == PL_JOIN) {
        k->there[e->worker] = true;
        k->to_ns[e->worker] = e->now_ns;
    }
    for (const struct pl_span *s = l->span, *end = s + l->n_spans; s < end; s++) {
        assert_int_equal(s->task != 0, s->kind != PL_SPAN_IDLE);
        assert_int_equal(s->why[0] != '\0',
                         s->kind == PL_SPAN_WASTED || strcmp(s->why, "unfinished") == 0);
        if (s->again) continue;
        assert_true(k->there[s->worker]);
        assert_true(s->from_ns == k->to_ns[s->worker] && s->to_ns > s->from_ns);
        k->to_ns[s->worker] = s->to_ns;
    }
    if (e->kind != PL_LEAVE) return;
    assert_true(k->to_ns[e->worker] == e->now_ns);
    k->there[e->worker] = false;
}

/* Events of which a commit may leave members out. */
static void timeline_run(struct pl_control *c, int n, struct pl_rng *r) {
    struct cover k = {0};
    uint64_t now_ns = 0, n_events = pl_rng_below(r, 300);
    assert_int_equal(pl_control_on_event(c, cover_event, &k), 0);
    leaves_out = r;
    for (uint64_t i = 0; i < n_events; i++) now_ns = random_event(c, r, now_ns);
    leaves_out = NULL;
    now_ns += pl_rng_below(r, 1u << 30);
    struct pl_worker_time before = pl_control_worker_time(c, now_ns);
    pl_control_end(c, now_ns);
    struct pl_worker_time t = pl_control_worker_time(c, now_ns);
    struct pl_fates f = pl_control_fates(c);
    double sum[4] = {0};
    uint64_t n_used = 0, n_wasted = 0;
    for (int i = 0; i < n; i++) {
        const struct pl_timeline_row *row = &pl_control_timeline(c)->row[i];
        for (enum pl_span_kind kind = 0; kind < 4; kind++)
            sum[kind] += pl_timeline_seconds(row, kind);
        n_used += row->n_used;
        n_wasted += row->n_wasted;
        assert_true(!k.there[i] || k.to_ns[i] == now_ns);
        assert_true(row->n_timed >= row->n_used);
    }
    near(before.compute, t.compute);
    near(before.idle, t.idle);
    near(sum[PL_SPAN_COMPUTE], t.compute);
    near(sum[PL_SPAN_COMMUNICATE], t.communication);
    near(sum[PL_SPAN_IDLE], t.idle);
    near(sum[PL_SPAN_WASTED], t.wasted);
    uint64_t n_open = (uint64_t)pl_control_view(c)->n_taken;
    for (int i = 0; i < n; i++) n_open += pl_control_view(c)->worker[i].deferred;
    assert_int_equal(n_used, f.applied + n_open);
    assert_int_equal(n_wasted, f.dropped + f.cancelled + f.lost + f.rejected);
    assert_int_equal(f.started, n_used + n_wasted + (f.running - n_open));
}

TEST(test_timeline_runs) {
    for_every_method(timeline_run);
}

/* --- main -------------------------------------------------------------------------------- */

ALL_TESTS_FROM_SEED(20240229, NULL, NULL)
