/* A run that is ended while it computes something that takes long. */
#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include "embedding.h"

#define SLOW_PIECES 40 /* of an evaluation */

/* A model whose evaluation, or whose gradient, takes long. */
struct slow {
    atomic_int n_gradients, n_begun, n_scores; /* gradients and pieces begun, pieces completed */
    int n_ended;                               /* gradients begun when the watch ended the run */
    bool scores, computes;                     /* what takes long, */
    bool stuck;                                /* in a single piece of the evaluation */
};

static void slow_nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

static int slow_gradient(void *ctx, const float *w, const struct pl_samples *s, float *g,
                         double *loss) {
    struct slow *m = ctx;
    (void)w;
    atomic_fetch_add(&m->n_gradients, 1);
    for (int i = 0; m->computes && i < 600; i++) {
        if (s->cancelled(s->token)) return PL_ECANCELLED;
        slow_nap();
    }
    g[0] = 0;
    *loss = 1;
    return PL_OK;
}

static void slow_score(void *ctx, const float *w, const struct pl_samples *s, double *loss,
                       uint32_t *n_right) {
    struct slow *m = ctx;
    (void)w;
    atomic_fetch_add(&m->n_begun, 1);
    for (int i = 0; m->stuck && i < 600; i++) {
        if (s->cancelled(s->token)) return;
        slow_nap();
    }
    if (m->scores) slow_nap();
    atomic_fetch_add(&m->n_scores, 1);
    *loss = s->n;
    *n_right = 0;
}

static int slow_tick(void *ctx, const struct pl_point *p) {
    struct slow *m = ctx;
    (void)p;
    bool ends = m->computes ? m->n_gradients > 0 : m->stuck ? m->n_begun > 0 : m->n_scores > 0;
    if (ends && m->n_ended == 0) m->n_ended = m->n_gradients;
    return ends;
}

static pl_setup *slow_setup(struct slow *m, const char *threads) {
    /* eight workers, whose gradients are computed ahead */
    const struct pl_function f = {
        .dim = 1, .wants_data = 1, .ctx = m, .gradient = slow_gradient, .score = slow_score};
    pl_setup *s = make("method", "async", "workers", m->computes ? "8" : "2", "updates", "1000000",
                       "data", "digits:samples=5000,test=5000,side=8", "eval-samples", "5000",
                       "threads", threads, NULL);
    assert_int_equal(pl_setup_function(s, &f), 0);
    pl_setup_watch(s, NULL, slow_tick, m);
    return s;
}

/* An evaluation is given up: the run has no losses. */
static void check_given_up(const struct slow *m, pl_run *run) {
    const struct pl_point *p;
    assert_true(m->n_scores > 0 && m->n_scores < SLOW_PIECES);
    assert_int_equal(pl_run_points(run, &p), 0);
    assert_true(isnan(pl_run_number(run, "loss")));
    assert_non_null(strstr(pl_run_text(run, "run"), "\"why\":\"interrupted\""));
}

TEST(an_evaluation_of_a_simulated_run_is_given_up) {
    struct slow m = {.scores = true};
    check_given_up(&m, run_setup(slow_setup(&m, "1")));
}

TEST(a_gradient_of_a_simulated_run_is_given_up) {
    for (int i = 0; i < 2; i++) {
        struct slow m = {.computes = true};
        pl_run *run = run_setup(slow_setup(&m, i ? "2" : "1"));
        assert_true(pl_run_number(run, "updates") == 0);
        /* those that still wait do not begin; another thread may be about to begin one */
        assert_in_range(m.n_gradients, m.n_ended, m.n_ended + i);
        assert_true(pl_run_number(run, "loss") == 1); /* the last model is evaluated in no time */
    }
}

TEST(a_piece_of_an_evaluation_is_given_up) {
    for (int real = 0; real < 2; real++) {
        struct slow m = {.stuck = true};
        pl_setup *s = slow_setup(&m, "1");
        if (real) assert_int_equal(pl_setup_set(s, "spawn", "threads"), 0);
        pl_run *run = real ? train(s) : run_setup(s);
        assert_int_equal(m.n_begun, 1);
        assert_int_equal(m.n_scores, 0);
        assert_true(isnan(pl_run_number(run, "loss")));
    }
}

TEST(an_evaluation_of_a_real_run_is_given_up) {
    struct slow m = {.scores = true};
    pl_setup *s = slow_setup(&m, "1");
    assert_int_equal(pl_setup_set(s, "spawn", "threads"), 0);
    pl_run *run = train(s);
    check_given_up(&m, run);
}
