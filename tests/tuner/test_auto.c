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

/* One more update, a tenth of a second after the one before. */
static struct pl_switch commit(struct scene *s) {
    s->info.arm = s->arm;
    s->view.version++;
    s->view.now_ns += 100000000;
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

static void score(struct scene *s, double loss) {
    s->tuner->score(s->state, &s->info, &s->view, loss);
}

/* Evaluations every eight updates that always find a lower loss, from 1 on. */
static void falls(struct scene *s, int n) {
    for (int i = 0; i < n; i++) {
        run(s, 8);
        score(s, 1 / (1.0 + i));
    }
    run(s, 1);
}

TEST(it_begins_calmly_and_loosens_while_the_loss_falls) {
    struct scene s = scene_of();
    commit(&s);
    assert_int_equal(s.info.current, CALM);
    run(&s, 8);
    score(&s, 1);
    run(&s, 1);
    assert_int_equal(s.info.current, MIDDLE);
    run(&s, 8);
    score(&s, 1.1);
    run(&s, 40); /* not lower: it stays */
    assert_int_equal(s.info.current, MIDDLE);
    score(&s, 0.9);
    run(&s, 1);
    assert_int_equal(s.info.current, FAST);
    s.arm[FAST].time = 0.6; /* its workers have become slow */
    run(&s, 1);
    assert_int_equal(s.info.current, MIDDLE);
}

TEST(equal_times_go_to_the_least_noise) {
    struct scene s = scene_of();
    s.arm[MIDDLE].time = 0.13;
    falls(&s, 40);
    assert_int_equal(s.info.current, MIDDLE);
}

/* A noisy arm that saves a third of the time is taken when the loss has fallen often enough, and
 * after a bar no more. */
TEST(noise_that_does_no_harm_matters_less) {
    struct scene s = scene_of();
    s.arm[MIDDLE].time = 0.16;
    falls(&s, 4);
    assert_int_equal(s.info.current, MIDDLE);
    falls(&s, 40);
    assert_int_equal(s.info.current, FAST);
    arrive(&s, 100, 32);
    struct pl_switch out = commit(&s);
    assert_true(out.returns && out.arm == MIDDLE);
    run(&s, 17 * (int)s.view.version); /* the limit may rise, but noise matters as at first */
    score(&s, 0.001);
    run(&s, 2);
    assert_int_equal(s.info.current, MIDDLE);
}

/* The losses of results explode: back to the best model, with an arm of less noise, and not to that
 * arm again for a long time. */
TEST(a_blow_up_returns_and_bars) {
    struct scene s = scene_of();
    run(&s, 200); /* without evaluations */
    assert_int_equal(s.info.current, FAST);
    arrive(&s, 100, 32);
    struct pl_switch out = commit(&s);
    assert_true(out.returns && out.arm == MIDDLE);
    run(&s, 15 * 200);
    assert_int_equal(s.info.current, MIDDLE);
    run(&s, 300);
    assert_int_equal(s.info.current, FAST);
}

/* Noise that is new to a model makes its loss rise for a while: two evaluations in a row that find
 * no lower loss, or more of them, bar nothing. */
TEST(a_loss_that_rises_for_a_while_bars_nothing) {
    struct scene s = scene_of();
    falls(&s, 3);
    assert_int_equal(s.info.current, FAST);
    for (int i = 0; i < 2; i++) {
        run(&s, 8);
        score(&s, 0.7);
    }
    run(&s, 8);
    score(&s, 0.3);
    run(&s, 8);
    score(&s, 0.4);
    run(&s, 1);
    assert_int_equal(s.info.current, FAST);
}

/* Half of the time so far, but 24 updates of the arm at least. */
TEST(no_lower_loss_for_long_bars) {
    struct scene s = scene_of();
    falls(&s, 3);
    for (int i = 0; i < 3; i++) {
        run(&s, 8);
        score(&s, 0.5);
    }
    struct pl_switch out = commit(&s);
    assert_true(out.returns && out.arm == MIDDLE);
    run(&s, 1);
    score(&s, 2); /* more than five times the lowest */
    out = commit(&s);
    assert_true(out.returns && out.arm == CALM);
}

/* The policy at the beginning need not be one of the arms. */
TEST(another_policy_gives_way_to_an_arm) {
    struct scene s = scene_of();
    s.info.current = -1;
    assert_int_equal(commit(&s).arm, CALM);
    falls(&s, 20);
    assert_int_equal(s.info.current, FAST);
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
