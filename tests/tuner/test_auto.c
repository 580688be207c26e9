/* The tuner that switches policies: what it chooses from given forecasts, and what makes it choose
 * calmer ones. That a whole run switches, and replays, test_replay.c and others find by the list of
 * methods. */
#include "choices.h"
#include "core/tuner.h"

#define P 8

enum { CALM, MIDDLE, FAST, SLOW, N };

struct scene {
    const struct pl_tuner *tuner;
    void *state;
    struct pl_arm arm[N];
    struct pl_run_info info;
    struct pl_view view;
};

/* Three arms of a front and one that another beats in both. */
static struct scene scene_of(void) {
    struct pl_choice c = choose(&pl_tuner_family, "auto", P);
    struct scene s = {.tuner = (const struct pl_tuner *)c.entry,
                      .arm = {{.time = 1, .lag = 0, .size = 8},
                              {.time = 0.5, .lag = 0, .size = 1},
                              {.time = 0.1, .lag = 7, .size = 1},
                              {.time = 2, .lag = 1, .size = 8}},
                      .view = {.n_workers = P, .n_alive = P}};
    s.state = own_room(1, s.tuner->state_size);
    memcpy(s.state, c.conf, s.tuner->id.conf_size);
    s.info = (struct pl_run_info){.n_workers = P, .k = 8, .n_arms = N, .current = SLOW};
    return s;
}

static struct pl_switch commit(struct scene *s) {
    s->info.arm = s->arm;
    s->view.version++;
    struct pl_switch out = s->tuner->choose(s->state, &s->info, &s->view);
    if (out.arm >= 0) s->info.current = out.arm;
    return out;
}

static void arrive(struct scene *s, double loss, int n) {
    struct pl_arrival a = {.loss = loss, .samples = 1};
    struct pl_knobs knobs = {1, PL_NO_BOUND};
    for (int i = 0; i < n; i++) s->tuner->arrive(s->state, &s->info, &s->view, &a, &knobs);
}

static void run(struct scene *s, int n_commits) {
    for (int i = 0; i < n_commits; i++) {
        arrive(s, 1, 1);
        assert_false(commit(s).returns);
    }
}

TEST(the_fastest_arm_comes_first) {
    struct scene s = scene_of();
    commit(&s);
    assert_int_equal(s.info.current, FAST);
    s.arm[FAST].time = 0.6; /* its workers have become slow */
    run(&s, 1);
    assert_int_equal(s.info.current, MIDDLE);
}

TEST(equal_times_go_to_the_least_noise) {
    struct scene s = scene_of();
    s.arm[MIDDLE].time = 0.105;
    run(&s, 200);
    assert_int_equal(s.info.current, MIDDLE);
}

/* The losses of results explode: back to the best model, with an arm of less noise, and not to that
 * arm again for a while. */
TEST(a_blow_up_returns_and_bars) {
    struct scene s = scene_of();
    run(&s, 200);
    assert_int_equal(s.info.current, FAST);
    arrive(&s, 100, 32);
    struct pl_switch out = commit(&s);
    assert_true(out.returns && out.arm == MIDDLE);
    run(&s, 390); /* the wait is twice the updates so far */
    assert_int_equal(s.info.current, MIDDLE);
    run(&s, 20);
    assert_int_equal(s.info.current, FAST);
}

/* An evaluation after one more update. */
static void score(struct scene *s, double loss) {
    s->view.version++;
    s->tuner->score(s->state, &s->info, &s->view, loss);
}

TEST(evaluations_without_a_lower_loss_bar) {
    struct scene s = scene_of();
    run(&s, 1);
    score(&s, 1);
    score(&s, 1.2); /* one may be chance */
    run(&s, 1);
    score(&s, 0.9);
    score(&s, 0.95);
    s.tuner->score(s.state, &s.info, &s.view, 0.95); /* the same version again */
    run(&s, 1);
    assert_int_equal(s.info.current, FAST);
    score(&s, 0.9);
    struct pl_switch out = commit(&s);
    assert_true(out.returns && out.arm == MIDDLE);
    score(&s, 4); /* three times the lowest */
    out = commit(&s);
    assert_true(out.returns && out.arm == CALM);
}

/* Without forecasts nothing is chosen, and without losses nothing is barred. */
TEST(nothing_known_is_nothing_chosen) {
    struct scene s = scene_of();
    for (int i = 0; i < N; i++) s.arm[i].time = s.arm[i].lag = s.arm[i].size = NAN;
    assert_int_equal(commit(&s).arm, -1);
    s = scene_of();
    arrive(&s, NAN, 50);
    score(&s, NAN);
    run(&s, 200);
    assert_int_equal(s.info.current, FAST);
}
