/* The rules in double precision: golden values printed to eight digits, algorithms that reduce to
 * one another, and closed forms small enough to compute by hand. Everything goes through the store,
 * as it does in a run. Sections are those of the algorithms page.
 *
 * Seed: PL_TEST_SEED in the environment. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "choices.h"
#include "core/store.h"
#include "seed.h"

#define DIM 2
#define MAX_WORKERS 8

static uint64_t test_seed;

/* A store with the contributions of its workers: worker i computed on held[i]. */
struct rig {
    struct pl_store_conf conf;
    struct pl_store *store;
    struct pl_version *held[MAX_WORKERS];
    double vector[MAX_WORKERS][DIM];
    int n_taken;
};

/* Options that a test may set before rig_open. */
static struct rig rig_plan(int n_workers, const char *correct, const char *optim, double lr) {
    return (struct rig){.conf = {.dim = DIM,
                                 .n_workers = n_workers,
                                 .correct = choose(&pl_correct_family, correct, 1),
                                 .reduce = {{choose(&pl_reduce_family, "mean", 1)}, 1},
                                 .optim = choose(&pl_optim_family, optim, 1),
                                 .rate = {.lr = lr}}};
}

static void rig_open(struct rig *r, double x, double y) {
    struct pl_why why = {""};
    const double w0[DIM] = {x, y};
    if (pl_store_new(&r->conf, w0, &r->store, &why)) fail_msg("%s", why.text);
    for (int i = 0; i < r->conf.n_workers; i++) {
        r->held[i] = pl_store_newest(r->store);
        pl_store_hold(r->store, r->held[i]);
    }
}

static struct rig rig_new(int n_workers, const char *correct, const char *optim, double lr) {
    struct rig r = rig_plan(n_workers, correct, optim, lr);
    rig_open(&r, 1, 1);
    return r;
}

static void rig_free(struct rig *r) {
    pl_store_free(r->store);
    free(r->conf.correct.conf);
    pl_chain_free(&r->conf.reduce);
    free(r->conf.optim.conf);
    pl_chain_free(&r->conf.rate.schedule);
}

static const double *rig_model(const struct rig *r) {
    return pl_store_newest(r->store)->model;
}

/* The contribution (x, y) of a worker, computed on what it holds, into the open group. */
static void rig_take(struct rig *r, int worker, double x, double y, uint32_t samples,
                     double factor) {
    struct pl_version *base = r->held[worker];
    struct pl_member m = {.worker = worker,
                          .base = base->id,
                          .lag = pl_store_newest(r->store)->id - base->id,
                          .samples = samples,
                          .factor = factor};
    r->vector[r->n_taken][0] = x;
    r->vector[r->n_taken][1] = y;
    assert_int_equal(pl_store_take(r->store, &m, base, r->vector[r->n_taken]), 0);
    r->n_taken++;
}

static void rig_commit(struct rig *r) {
    assert_int_equal(pl_store_commit(r->store, 1, NULL), 0);
    r->n_taken = 0;
}

static void rig_fetch(struct rig *r, int worker) {
    pl_store_release(r->store, r->held[worker]);
    r->held[worker] = pl_store_newest(r->store);
    pl_store_hold(r->store, r->held[worker]);
}

/* One asynchronous update with a given vector; the worker then has the new version. */
static void rig_step(struct rig *r, int worker, double x, double y) {
    rig_take(r, worker, x, y, 1, 1);
    rig_commit(r);
    rig_fetch(r, worker);
}

/* One asynchronous update on f(x) = (x1^2 + 10 x2^2)/2, exact gradient where it was handed. */
static void rig_descend(struct rig *r, int worker) {
    const double *at = r->held[worker]->lookahead;
    rig_step(r, worker, at[0], 10 * at[1]);
}

static void expect(const char *what, double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance))
        fail_msg("%s is %.17g, not %.17g (off by %g)", what, got, wanted, got - wanted);
}

static void expect_model(const char *what, const double *got, double x, double y,
                         double tolerance) {
    char name[128];
    snprintf(name, sizeof name, "%s, x1", what);
    expect(name, got[0], x, tolerance);
    snprintf(name, sizeof name, "%s, x2", what);
    expect(name, got[1], y, tolerance);
}

/* ---- 11.7: the golden table ---- */

static void golden_table(void **state) {
    static const struct {
        const char *name, *correct, *optim;
        double x, y, ahead_x, ahead_y; /* ahead: what workers are handed; 0, 0: the model */
    } row[] = {
        {"ASGD + momentum", "none", "momentum:beta=0.9", 0.48158014, -1.29625459, 0, 0},
        {"NAG-ASGD", "none", "nesterov:beta=0.9", 0.49115921, -0.70720772, 0, 0},
        {"Multi-ASGD", "none", "dana:form=multi,beta=0.9", 0.73818515, -0.82240000, 0, 0},
        {"SA", "lag", "momentum:beta=0.9", 0.66656818, -1.16285168, 0, 0},
        {"GA", "gap", "momentum:beta=0.9", 0.78725163, -0.65319259, 0, 0},
        {"DANA", "none", "dana:beta=0.9", 0.74390580, -0.40582150, 0.65997171, -0.61905085},
        {"DANA-Slim", "none", "dana:form=slim,beta=0.9", 0.65997171, -0.61905085, 0, 0},
        {"ASGD, gamma=0", "none", "sgd", 0.88444415, 0.19550000, 0, 0},
        {"SA, gamma=0", "lag", "sgd", 0.93153852, 0.44368125, 0, 0},
        {"GA, gamma=0", "gap", "sgd", 0.93681655, 0.46731524, 0, 0},
    };
    const double digits = 0.5000001e-8;
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct rig r = rig_new(3, row[i].correct, row[i].optim, 0.01);
        for (int k = 0; k < 12; k++) rig_descend(&r, k % 3);
        expect_model(row[i].name, rig_model(&r), row[i].x, row[i].y, digits);
        if (row[i].ahead_x != 0)
            expect_model("DANA look-ahead", pl_store_newest(r.store)->lookahead, row[i].ahead_x,
                         row[i].ahead_y, digits);
        rig_free(&r);
    }
}

/* ---- 6.4: reductions ---- */

/* Both rigs through n updates of random workers; each update compared. */
static void same_run(struct rig *a, struct rig *b, int n, double tolerance) {
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 1, 0);
    for (int k = 0; k < n; k++) {
        int worker = (int)pl_rng_below(&rng, (uint32_t)a->conf.n_workers);
        rig_descend(a, worker);
        rig_descend(b, worker);
        const double *x = rig_model(a), *y = rig_model(b);
        if (tolerance == 0)
            assert_memory_equal(x, y, DIM * sizeof *x);
        else
            expect_model("the second run", y, x[0], x[1], tolerance);
    }
    rig_free(a);
    rig_free(b);
}

static void dc_without_lambda_is_async(void **state) {
    (void)state;
    for (int adaptive = 0; adaptive < 2; adaptive++) {
        struct rig a = rig_new(4, "none", "sgd", 0.01);
        struct rig b = rig_new(4, adaptive ? "dc:form=a,lambda=0" : "dc:lambda=0", "sgd", 0.01);
        same_run(&a, &b, 200, 0);
    }
}

/* 4.3: n equal workers have lags of n-1, and neither rule changes anything */
static void delay_adaptive_leaves_usual_lags_alone(void **state) {
    (void)state;
    for (int rule = 0; rule < 2; rule++) {
        struct rig a = rig_new(5, "none", "sgd", 0.01);
        struct rig b = rig_new(
            5, rule ? "delay-adaptive:rule=threshold" : "delay-adaptive:rule=inverse", "sgd", 0.01);
        for (int k = 0; k < 100; k++) {
            rig_descend(&a, k % 5);
            rig_descend(&b, k % 5);
            assert_memory_equal(rig_model(&a), rig_model(&b), DIM * sizeof(double));
        }
        rig_free(&a);
        rig_free(&b);
    }
}

/* 5.1: all K gradients of a round on one model: after each round heavy ball with their sum */
static void ormo_in_rounds_is_heavy_ball(void **state) {
    const double eta = 0.007, beta = 0.9;
    double x[DIM] = {1, 1}, u[DIM] = {0, 0};
    struct rig r = rig_new(4, "none", "ormo:beta=0.9", eta);
    (void)state;
    for (int round = 0; round < 50; round++) {
        double g[DIM] = {0, 0};
        for (int w = 0; w < 4; w++) {
            const double *at = r.held[w]->lookahead;
            /* workers see different functions: shifted by w */
            double gx = at[0] - w, gy = 10 * at[1] + w;
            rig_take(&r, w, gx, gy, 1, 1);
            rig_commit(&r);
            g[0] += gx;
            g[1] += gy;
        }
        for (int i = 0; i < DIM; i++) {
            u[i] = beta * u[i] + eta * g[i];
            x[i] -= u[i];
        }
        expect_model("OrMo after a round", rig_model(&r), x[0], x[1], 1e-12);
        for (int w = 0; w < 4; w++) rig_fetch(&r, w);
    }
    rig_free(&r);
}

/* 5.1, the steps as they are written, any order of arrivals */
static void ormo_follows_its_steps(void **state) {
    enum { K = 4 };
    const double eta = 0.01, beta = 0.8;
    double w[DIM] = {1, 1}, u[DIM] = {0, 0}, bucket = 0;
    struct rig r = rig_new(K, "none", "ormo:beta=0.8", eta);
    struct pl_rng rng;
    (void)state;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 3, 0);
    for (int t = 0; t < 200; t++) {
        int worker = (int)pl_rng_below(&rng, K);
        const double *at = r.held[worker]->lookahead;
        double g[DIM] = {at[0], 10 * at[1]}, b = ceil((double)r.held[worker]->id / K);
        for (; b > bucket; bucket++) {
            for (int i = 0; i < DIM; i++) {
                w[i] -= beta * u[i];
                u[i] *= beta;
            }
        }
        for (int i = 0; i < DIM; i++) {
            double e = bucket - b;
            u[i] += pow(beta, e) * eta * g[i];
            w[i] -= (1 - pow(beta, e + 1)) / (1 - beta) * eta * g[i];
        }
        rig_descend(&r, worker);
        expect_model("OrMo", rig_model(&r), w[0], w[1], 1e-12);
    }
    rig_free(&r);
}

static void ormo_without_beta_is_async(void **state) {
    (void)state;
    struct rig a = rig_new(4, "none", "sgd", 0.01), b = rig_new(4, "none", "ormo:beta=0", 0.01);
    same_run(&a, &b, 100, 1e-15);
}

static void dana_alone_is_nesterov(void **state) {
    const double eta = 0.01, gamma = 0.9;
    double x[DIM] = {1, 1}, v[DIM] = {0, 0}, y[DIM] = {1, 1};
    struct rig a = rig_new(1, "none", "nesterov:beta=0.9", eta);
    struct rig b = rig_new(1, "none", "dana:beta=0.9", eta);
    (void)state;
    for (int k = 0; k < 100; k++) {
        rig_descend(&a, 0);
        rig_descend(&b, 0);
        /* textbook: gradient at the look-ahead point */
        for (int i = 0; i < DIM; i++) {
            v[i] = gamma * v[i] + (i ? 10 : 1) * y[i];
            x[i] -= eta * v[i];
            y[i] = x[i] - eta * gamma * v[i];
        }
        expect_model("nesterov", rig_model(&a), x[0], x[1], 1e-12);
        expect_model("dana", rig_model(&b), x[0], x[1], 1e-12);
        expect_model("dana ahead", pl_store_newest(b.store)->lookahead, y[0], y[1], 1e-12);
    }
    rig_free(&a);
    rig_free(&b);
}

static void dana_ahead_is_slim(void **state) {
    struct rig zero = rig_new(5, "none", "dana:beta=0.9", 0.01);
    struct rig slim = rig_new(5, "none", "dana:beta=0.9,form=slim", 0.01);
    struct pl_rng rng;
    (void)state;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (int k = 0; k < 300; k++) {
        int worker = (int)pl_rng_below(&rng, 5);
        rig_descend(&zero, worker);
        rig_descend(&slim, worker);
        const double *ahead = pl_store_newest(zero.store)->lookahead;
        expect_model("slim", rig_model(&slim), ahead[0], ahead[1], 1e-12);
    }
    rig_free(&zero);
    rig_free(&slim);
}

/* ---- corrections, by hand ---- */

/* 1.5: rate min{c/d^2, eta_max}. Worker 1 keeps version 0 while worker 0 moves the model. */
static void distance_closed_form(void **state) {
    static const struct {
        const char *spec;
        double away; /* distance travelled before the gradient arrives */
        double rate;
    } row[] = {
        {"distance:c=0.02", 0, 0.1},               /* zero distance: the run's rate */
        {"distance:c=0.02", 0.4, 0.1},             /* 0.02/0.16 = 0.125, above the rate */
        {"distance:c=0.02", 0.5, 0.08},            /* 0.02/0.25 */
        {"distance:c=0.02", 2, 0.005},             /* 0.02/4 */
        {"distance:c=0.02,eta_max=0.05", 0, 0.05}, /* its own largest rate */
        {"distance:c=0.02,eta_max=0.05", 0.5, 0.05},
        {"distance:c=0.02,eta_max=0.05", 1, 0.02},
        {"distance:c=0.02,eta_max=0.4", 0, 0.4}, /* also above the run's */
        {"distance:c=0.02,eta_max=0.4", 0.4, 0.125},
    };
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct rig r = rig_plan(2, row[i].spec, "sgd", 0.1);
        rig_open(&r, 0, 0);
        if (row[i].away > 0) {
            /* distance 0: moves by eta_max times the vector, 3:4:5 */
            double eta = strstr(row[i].spec, "0.05")    ? 0.05
                         : strstr(row[i].spec, "x=0.4") ? 0.4
                                                        : 0.1;
            rig_step(&r, 0, -0.6 * row[i].away / eta, 0.8 * row[i].away / eta);
        }
        double x = rig_model(&r)[0], y = rig_model(&r)[1];
        expect("distance", hypot(x, y), row[i].away, 1e-15);
        rig_step(&r, 1, 3, -7);
        expect_model(row[i].spec, rig_model(&r), x - 3 * row[i].rate, y + 7 * row[i].rate, 1e-14);
        rig_free(&r);
    }
}

/* A gradient (1, 2) with a lag of `lag`, at rate 1: what became of it. */
static double lagging(const char *spec, int n_workers, int lag) {
    struct rig r = rig_plan(n_workers, spec, "sgd", 1);
    rig_open(&r, 0, 0);
    for (int i = 0; i < lag; i++) rig_step(&r, 0, 0, 0);
    rig_step(&r, 1, 1, 2);
    double factor = -rig_model(&r)[0];
    expect("the second element", -rig_model(&r)[1], 2 * factor, 1e-15);
    rig_free(&r);
    return factor;
}

static void lag_closed_forms(void **state) {
    (void)state;
    for (int lag = 0; lag <= 12; lag++) {
        expect("lag", lagging("lag", 2, lag), lag > 1 ? 1.0 / lag : 1, 1e-15);
        for (int n = 2; n <= MAX_WORKERS; n++) {
            expect("Mishchenko", lagging("delay-adaptive:rule=inverse", n, lag),
                   (double)n / (n > lag ? n : lag), 1e-15);
            expect("Koloskova", lagging("delay-adaptive:rule=threshold", n, lag),
                   lag <= n ? 1 : 1.0 / lag, 1e-15);
        }
    }
}

static void clip_closed_form(void **state) {
    (void)state;
    struct rig r = rig_plan(1, "clip:c=2", "sgd", 1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 3, -4); /* length 5, shortened to 2 */
    expect_model("clipped", rig_model(&r), -1.2, 1.6, 1e-15);
    rig_step(&r, 0, 0.6, 0.8); /* short enough */
    expect_model("not clipped", rig_model(&r), -1.8, 0.8, 1e-15);
    rig_step(&r, 0, 0, 0); /* no length at all */
    expect_model("nothing", rig_model(&r), -1.8, 0.8, 1e-15);
    rig_free(&r);
}

/* 11.2 with decay 0 and eps 0, so that C = eta_max |v| with v the last update direction. */
static void gap_by_hand(void **state) {
    (void)state;
    struct rig r = rig_plan(2, "gap:form=scalar,decay=0,eps=0", "momentum:beta=0.5", 0.1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 3, 4); /* gap 1; v = (3, 4), moves by 0.5 */
    expect_model("first", rig_model(&r), -0.3, -0.4, 1e-15);
    /* worker 1 is 0.5 behind, C = 0.1 * 5: gap 2. g/2 = (1, -1); v = (2.5, 1) */
    rig_step(&r, 1, 2, -2);
    expect_model("second", rig_model(&r), -0.3 - 0.25, -0.4 - 0.1, 1e-15);
    /* worker 0 is |(0.25, 0.1)| behind, C = 0.1 |(2.5, 1)|: gap 2 again; v = (2.25, 0.5) */
    rig_step(&r, 0, 2, 0);
    expect_model("third", rig_model(&r), -0.55 - 0.225, -0.5 - 0.05, 1e-15);
    rig_free(&r);

    r = rig_plan(2, "gap:decay=0,eps=0", "momentum:beta=0.5", 0.1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 3, 0); /* moves x1 alone */
    /* x1: |0.3| / (0.1 * 3) + 1 = 2; x2 did not move: no penalty, although C = 0 */
    rig_step(&r, 1, 4, 8); /* v = (1.5 + 2, 8) */
    expect_model("per parameter", rig_model(&r), -0.3 - 0.35, -0.8, 1e-15);
    rig_free(&r);

    /* bias correction and eps, without momentum: R from g^2, first and second gradient */
    double decay = 0.75, eps = 0.5, g1 = 2, g2 = 6;
    r = rig_plan(2, "gap:decay=0.75,eps=0.5", "sgd", 0.1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, g1, 0);
    double r2 = (decay * (1 - decay) * g1 * g1 + (1 - decay) * g2 * g2) / (1 - decay * decay);
    double gap = 1 + 0.1 * g1 / (0.1 * (sqrt(r2) + eps));
    rig_step(&r, 1, g2, 0);
    expect("bias corrected", rig_model(&r)[0], -0.1 * g1 - 0.1 * g2 / gap, 1e-15);
    rig_free(&r);
}

/* eta_max is the largest rate so far, not the current one: the penalty shrinks after a decay. */
static void gap_uses_the_largest_rate(void **state) {
    (void)state;
    struct rig r = rig_plan(2, "gap:decay=0,eps=0", "momentum:beta=0", 0.1);
    r.conf.rate.schedule.link[0] = choose(&pl_schedule_family, "step:at=1,by=0.1,unit=updates", 1);
    r.conf.rate.schedule.n = 1;
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 3, 0);
    rig_step(&r, 1, 4, 0); /* rate 0.01, C = 0.1 * 3, gap 2 */
    expect("after the decay", rig_model(&r)[0], -0.3 - 0.01 * 2, 1e-15);
    rig_free(&r);
}

static void dc_by_hand(void **state) {
    (void)state;
    struct rig r = rig_plan(2, "dc:lambda=0.5", "sgd", 0.1);
    rig_open(&r, 1, 2);
    rig_step(&r, 0, 10, -10); /* to (0, 3) */
    rig_step(&r, 1, 2, 4);    /* (2, 4) + 0.5 (4, 16) (-1, 1) = (0, 12) */
    expect_model("dc", rig_model(&r), 0, 3 - 1.2, 1e-15);
    rig_free(&r);

    r = rig_plan(2, "dc:form=a,lambda=3,decay=0.5", "sgd", 0.1);
    rig_open(&r, 1, 2);
    rig_step(&r, 0, 10, -10);
    double ms = 0.5 * (0.5 * 100) + 0.5 * 4;
    rig_step(&r, 1, 2, 0);
    expect("dc a", rig_model(&r)[0], -0.1 * (2 - 3 / sqrt(ms + 1e-7) * 4), 1e-15);
    rig_free(&r);
}

/* ---- weight decay: added first, with the master's weights ---- */

static void weight_decay_comes_first(void **state) {
    (void)state;
    struct rig r = rig_plan(2, "clip:c=1", "sgd", 0.5);
    r.conf.weight_decay = 1;
    rig_open(&r, 3, 4);
    rig_step(&r, 0, 0, 0); /* (3, 4) has length 5 */
    expect_model("clip", rig_model(&r), 3 - 0.5 * 0.6, 4 - 0.5 * 0.8, 1e-15);
    rig_free(&r);

    r = rig_plan(2, "dc:lambda=1", "sgd", 0.5);
    r.conf.weight_decay = 0.5;
    rig_open(&r, 2, 0);
    rig_step(&r, 0, -1, 2); /* g = (-1 + 1, 2) = (0, 2): to (2, -1) */
    expect_model("first", rig_model(&r), 2, -1, 1e-15);
    /* worker 1 read (2, 0), the master is at (2, -1): g = (1 + 1, 3 - 0.5) = (2, 2.5) and the
     * correction 2.5^2 * (-1 - 0) = -6.25 on top of it */
    rig_step(&r, 1, 1, 3);
    expect_model("dc", rig_model(&r), 2 - 1, -1 - 0.5 * (2.5 - 6.25), 1e-15);
    rig_free(&r);

    /* with a look-ahead the master's weights are the model, not what was handed out */
    r = rig_plan(1, "none", "nesterov:beta=0.5", 0.5);
    r.conf.weight_decay = 1;
    rig_open(&r, 2, 0);
    rig_step(&r, 0, 2, 0); /* g = 4; v = 4; w = 0; handed -1 */
    expect("handed", pl_store_newest(r.store)->lookahead[0], -1, 1e-15);
    rig_step(&r, 0, 1, 0); /* g = 1 + 0; v = 3; w = -1.5 */
    expect("nesterov", rig_model(&r)[0], -1.5, 1e-15);
    rig_free(&r);
}

/* ---- optimizers, by hand ---- */

static void adam_by_hand(void **state) {
    (void)state;
    struct rig r = rig_plan(1, "none", "adam", 0.1);
    rig_open(&r, 1, 1);
    rig_step(&r, 0, 1, -3); /* m^ = g, v^ = g^2: a step of the rate, whatever the gradient */
    expect_model("first", rig_model(&r), 1 - 0.1 / (1 + 1e-8), 1 + 0.1 * 3 / (3 + 1e-8), 1e-14);
    rig_step(&r, 0, 2, 0);
    double m = (0.9 * 0.1 + 0.1 * 2) / 0.19;
    double v = (0.999 * 0.001 + 0.001 * 4) / 0.001999;
    double n = 0.9 * 0.1 * -3 / 0.19, u = 0.999 * 0.001 * 9 / 0.001999;
    expect_model("second", rig_model(&r), 1 - 0.1 / (1 + 1e-8) - 0.1 * m / (sqrt(v) + 1e-8),
                 1 + 0.1 * 3 / (3 + 1e-8) - 0.1 * n / (sqrt(u) + 1e-8), 1e-14);
    rig_free(&r);
}

/* Adam keeps no velocity; Gap-Aware gets the direction of the last step instead. */
static void gap_on_adam_uses_the_direction(void **state) {
    (void)state;
    struct rig r = rig_plan(2, "gap:decay=0,eps=0", "adam:eps=0", 0.1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 5, 5); /* direction (1, 1), moves by 0.1: one mean update */
    rig_step(&r, 1, 8, 8); /* gap 2: as if it were 4 */
    struct rig plain = rig_plan(2, "none", "adam:eps=0", 0.1);
    rig_open(&plain, 0, 0);
    rig_step(&plain, 0, 5, 5);
    rig_step(&plain, 1, 4, 4);
    expect_model("adam", rig_model(&r), rig_model(&plain)[0], rig_model(&plain)[1], 1e-14);
    rig_free(&r);
    rig_free(&plain);
}

/* ---- groups: weights and factors ---- */

static void group_weights(void **state) {
    (void)state;
    static const struct {
        const char *reduce;
        bool by_k;
        uint32_t samples[3];
        double factor[3];
        double commit, wanted;
    } row[] = {
        {"mean", false, {1, 2, 5}, {1, 1, 1}, 1, (1 + 10 + 100) / 3.0},
        {"mean:by=samples", false, {1, 2, 5}, {1, 1, 1}, 1, (1 + 20 + 500) / 8.0},
        {"mean:by=samples", false, {0, 0, 0}, {1, 1, 1}, 1, (1 + 10 + 100) / 3.0},
        {"mean", true, {1, 2, 5}, {1, 1, 1}, 1, 1 + 10 + 100},
        {"mean", false, {1, 1, 1}, {1, 0, 0.5}, 1, (1 + 50) / 3.0},
        {"mean", false, {1, 1, 1}, {1, 1, 1}, 0.25, (1 + 10 + 100) / 12.0},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct rig r = rig_plan(3, "none", "sgd", 1);
        pl_chain_free(&r.conf.reduce);
        r.conf.reduce = (struct pl_chain){{choose(&pl_reduce_family, row[i].reduce, 1)}, 1};
        r.conf.rate.by_k = row[i].by_k;
        r.conf.rate.epoch_samples = 4;
        rig_open(&r, 0, 0);
        double x = 1, samples = 0;
        for (int w = 0; w < 3; w++, x *= 10) {
            rig_take(&r, w, x, 0, row[i].samples[w], row[i].factor[w]);
            samples += row[i].samples[w];
        }
        assert_int_equal(pl_store_commit(r.store, row[i].commit, NULL), 0);
        expect(row[i].reduce, -rig_model(&r)[0], row[i].wanted, 1e-13);
        expect("epochs", pl_progress_epochs(pl_store_progress(r.store)), samples / 4, 0);
        rig_free(&r);
    }
}

/* ---- schedules ---- */

static double factor_at(const char *spec, double progress, int n_workers) {
    struct pl_choice c = choose(&pl_schedule_family, spec, 1);
    const struct pl_schedule *s = (const struct pl_schedule *)c.entry;
    double f = s->factor ? s->factor(c.conf, progress, n_workers) : 1;
    free(c.conf);
    return f;
}

static void schedule_closed_forms(void **state) {
    (void)state;
    for (double p = 0; p < 300; p += 7.25) expect("constant", factor_at("constant", p, 4), 1, 0);
    expect("warmup at 0", factor_at("warmup:over=5", 0, 8), 0.125, 0);
    expect("warmup half way", factor_at("warmup:over=5", 2.5, 8), 0.5625, 1e-15);
    expect("warmup at its end", factor_at("warmup:over=5", 5, 8), 1, 0);
    expect("warmup later", factor_at("warmup:over=5", 50, 8), 1, 0);
    expect("warmup from", factor_at("warmup:over=4,from=0.2", 1, 8), 0.4, 1e-15);
    expect("step before", factor_at("step:at=80,120", 79.999, 1), 1, 0);
    expect("step at", factor_at("step:at=80,120", 80, 1), 0.1, 1e-16);
    expect("step twice", factor_at("step:at=80,120", 120, 1), 0.01, 1e-16);
    expect("step by", factor_at("step:at=10,20,30,by=0.5", 25, 1), 0.25, 0);
    expect("cosine at 0", factor_at("cosine:over=10", 0, 1), 1, 0);
    expect("cosine third", factor_at("cosine:over=9", 3, 1), 0.75, 1e-15);
    expect("cosine half way", factor_at("cosine:over=10", 5, 1), 0.5, 1e-15);
    expect("cosine at its end", factor_at("cosine:over=10", 10, 1), 0, 1e-16);
    expect("cosine later", factor_at("cosine:over=10,to=0.2", 99, 1), 0.2, 1e-15);
}

/* Two schedules, one by epochs and one by updates: their factors multiply, commit by commit. */
static void schedules_chain(void **state) {
    (void)state;
    struct rig r = rig_plan(4, "none", "sgd", 0.8);
    r.conf.rate.schedule.link[0] = choose(&pl_schedule_family, "warmup:over=2,unit=epochs", 1);
    r.conf.rate.schedule.link[1] = choose(&pl_schedule_family, "step:at=4,by=0.5,unit=updates", 1);
    r.conf.rate.schedule.n = 2;
    r.conf.rate.epoch_samples = 12;
    rig_open(&r, 0, 0);
    double x = 0;
    for (int k = 0; k < 8; k++) {
        double epochs = k * 6 / 12.0, lr = 0.8 * (k >= 4 ? 0.5 : 1);
        lr *= epochs < 2 ? 0.25 + 0.75 * epochs / 2 : 1;
        expect("the rate of the version", pl_store_newest(r.store)->lr, lr, 1e-15);
        rig_take(&r, 0, 1, 0, 6, 1);
        rig_commit(&r);
        x -= lr;
        expect("chained", rig_model(&r)[0], x, 1e-14);
    }
    rig_free(&r);
}

int main(void) {
    test_seed = seed_of_test(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_table),
        cmocka_unit_test(dc_without_lambda_is_async),
        cmocka_unit_test(delay_adaptive_leaves_usual_lags_alone),
        cmocka_unit_test(ormo_in_rounds_is_heavy_ball),
        cmocka_unit_test(ormo_follows_its_steps),
        cmocka_unit_test(ormo_without_beta_is_async),
        cmocka_unit_test(dana_alone_is_nesterov),
        cmocka_unit_test(dana_ahead_is_slim),
        cmocka_unit_test(distance_closed_form),
        cmocka_unit_test(lag_closed_forms),
        cmocka_unit_test(clip_closed_form),
        cmocka_unit_test(gap_by_hand),
        cmocka_unit_test(gap_uses_the_largest_rate),
        cmocka_unit_test(dc_by_hand),
        cmocka_unit_test(weight_decay_comes_first),
        cmocka_unit_test(adam_by_hand),
        cmocka_unit_test(gap_on_adam_uses_the_direction),
        cmocka_unit_test(group_weights),
        cmocka_unit_test(schedule_closed_forms),
        cmocka_unit_test(schedules_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
