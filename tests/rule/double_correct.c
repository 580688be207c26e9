/* Corrections and weight decay in double precision, by hand, as in double_rule.c. */
#include "rig.h"

/* ---- corrections, by hand ---- */

/* 1.5: rate min{c/d^2, eta_max}. Worker 1 keeps version 0 while worker 0 moves the model. */
TEST(distance_closed_form) {
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
    return factor;
}

TEST(lag_closed_forms) {
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

TEST(clip_closed_form) {
    struct rig r = rig_plan(1, "clip:c=2", "sgd", 1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 3, -4); /* length 5, shortened to 2 */
    expect_model("clipped", rig_model(&r), -1.2, 1.6, 1e-15);
    rig_step(&r, 0, 0.6, 0.8); /* short enough */
    expect_model("not clipped", rig_model(&r), -1.8, 0.8, 1e-15);
    rig_step(&r, 0, 0, 0); /* no length at all */
    expect_model("nothing", rig_model(&r), -1.8, 0.8, 1e-15);
}

/* Lengths, means of them, and the lowest mean, which bounds the lengths. */
TEST(brake_by_hand) {
    static const struct {
        double length, moved;
    } row[] = {
        {0, 0},      /* no length: nothing is known yet */
        {4, 4},      /* mean 4, the lowest */
        {8, 4},      /* mean 6: the lowest stays, and bounds */
        {2, 2},      /* mean 4 */
        {1, 1},      /* mean 2.5, the lowest */
        {5.5, 2.5},  /* mean 4 */
        {3, 2.5},    /* mean 3.5 */
        {196.5, 10}, /* mean 100: a tenth of it */
        {1, 1},      /* mean 50.5 */
        {1, 1},      /* mean 25.75 */
        {24.25, 10}, /* mean 25 */
    };
    struct rig r = rig_plan(1, "brake:b=1,decay=0.5,rise=0", "sgd", 1);
    rig_open(&r, 0, 0);
    double at = 0;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        rig_step(&r, 0, -0.6 * row[i].length, 0.8 * row[i].length);
        at += row[i].moved;
        expect_model("brake", rig_model(&r), 0.6 * at, -0.8 * at, 1e-12);
    }
    r = rig_plan(1, "brake:b=2,decay=0,rise=0.5", "sgd", 1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 0, -1);
    rig_step(&r, 0, 0, -10); /* the lowest rises to 1.5, and then to 2.25 */
    expect("rises", rig_model(&r)[1], 1 + 3, 1e-15);
    rig_step(&r, 0, 0, -10);
    expect("rises again", rig_model(&r)[1], 1 + 3 + 4.5, 1e-15);
}

/* 11.2 with decay 0 and eps 0, so that C = eta_max |v| with v the last update direction. */
TEST(gap_by_hand) {
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

    r = rig_plan(2, "gap:decay=0,eps=0", "momentum:beta=0.5", 0.1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 3, 0); /* moves x1 alone */
    /* x1: |0.3| / (0.1 * 3) + 1 = 2; x2 did not move: no penalty, although C = 0 */
    rig_step(&r, 1, 4, 8); /* v = (1.5 + 2, 8) */
    expect_model("per parameter", rig_model(&r), -0.3 - 0.35, -0.8, 1e-15);

    /* bias correction and eps, without momentum: R from g^2, first and second gradient */
    double decay = 0.75, eps = 0.5, g1 = 2, g2 = 6;
    r = rig_plan(2, "gap:decay=0.75,eps=0.5", "sgd", 0.1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, g1, 0);
    double r2 = (decay * (1 - decay) * g1 * g1 + (1 - decay) * g2 * g2) / (1 - decay * decay);
    double gap = 1 + 0.1 * g1 / (0.1 * (sqrt(r2) + eps));
    rig_step(&r, 1, g2, 0);
    expect("bias corrected", rig_model(&r)[0], -0.1 * g1 - 0.1 * g2 / gap, 1e-15);
}

/* Divisors that are zero or infinite: a gap of 1, and a step of 0 for a gradient of 0. */
TEST(divisors_stay_finite) {
    static const struct {
        const char *correct, *optim;
        double g, moved;
    } row[] = {
        {"gap:decay=0,eps=0", "sgd", 0, 0},
        {"gap:decay=0,eps=0", "sgd", 1e200, 1e199},
        {"none", "adagrad:eps=0", 0, 0},
        {"none", "adagrad:eps=0", 5, 0.1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct rig r = rig_plan(1, row[i].correct, row[i].optim, 0.1);
        rig_open(&r, 0, 0);
        rig_step(&r, 0, row[i].g, 3);
        expect(row[i].optim, -rig_model(&r)[0], row[i].moved, 1e-12 * row[i].moved);
    }
}

/* eta_max is the largest rate so far, not the current one: the penalty shrinks after a decay. */
TEST(gap_uses_the_largest_rate) {
    struct rig r = rig_plan(2, "gap:decay=0,eps=0", "momentum:beta=0", 0.1);
    r.conf.rate.schedule.link[0] = choose(&pl_schedule_family, "step:at=1,by=0.1,unit=updates", 1);
    r.conf.rate.schedule.n = 1;
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 3, 0);
    rig_step(&r, 1, 4, 0); /* rate 0.01, C = 0.1 * 3, gap 2 */
    expect("after the decay", rig_model(&r)[0], -0.3 - 0.01 * 2, 1e-15);
}

TEST(dc_by_hand) {
    struct rig r = rig_plan(2, "dc:lambda=0.5", "sgd", 0.1);
    rig_open(&r, 1, 2);
    rig_step(&r, 0, 10, -10); /* to (0, 3) */
    rig_step(&r, 1, 2, 4);    /* (2, 4) + 0.5 (4, 16) (-1, 1) = (0, 12) */
    expect_model("dc", rig_model(&r), 0, 3 - 1.2, 1e-15);

    r = rig_plan(2, "dc:form=a,lambda=3,decay=0.5", "sgd", 0.1);
    rig_open(&r, 1, 2);
    rig_step(&r, 0, 10, -10);
    double ms = 0.5 * (0.5 * 100) + 0.5 * 4;
    rig_step(&r, 1, 2, 0);
    expect("dc a", rig_model(&r)[0], -0.1 * (2 - 3 / sqrt(ms + 1e-7) * 4), 1e-15);
}

/* ---- weight decay: added first, with the master's weights ---- */

TEST(weight_decay_comes_first) {
    struct rig r = rig_plan(2, "clip:c=1", "sgd", 0.5);
    r.conf.weight_decay = 1;
    rig_open(&r, 3, 4);
    rig_step(&r, 0, 0, 0); /* (3, 4) has length 5 */
    expect_model("clip", rig_model(&r), 3 - 0.5 * 0.6, 4 - 0.5 * 0.8, 1e-15);

    r = rig_plan(2, "dc:lambda=1", "sgd", 0.5);
    r.conf.weight_decay = 0.5;
    rig_open(&r, 2, 0);
    rig_step(&r, 0, -1, 2); /* g = (-1 + 1, 2) = (0, 2): to (2, -1) */
    expect_model("first", rig_model(&r), 2, -1, 1e-15);
    /* worker 1 read (2, 0), the master is at (2, -1): g = (1 + 1, 3 - 0.5) = (2, 2.5) and the
     * correction 2.5^2 * (-1 - 0) = -6.25 on top of it */
    rig_step(&r, 1, 1, 3);
    expect_model("dc", rig_model(&r), 2 - 1, -1 - 0.5 * (2.5 - 6.25), 1e-15);

    /* with a look-ahead the master's weights are the model, not what was handed out */
    r = rig_plan(1, "none", "nesterov:beta=0.5", 0.5);
    r.conf.weight_decay = 1;
    rig_open(&r, 2, 0);
    rig_step(&r, 0, 2, 0); /* g = 4; v = 4; w = 0; handed -1 */
    expect("handed", pl_store_newest(r.store)->lookahead[0], -1, 1e-15);
    rig_step(&r, 0, 1, 0); /* g = 1 + 0; v = 3; w = -1.5 */
    expect("nesterov", rig_model(&r)[0], -1.5, 1e-15);
}

/* ---- optimizers, by hand ---- */

/* Adam keeps no velocity; Gap-Aware gets the direction of the last step instead. */
TEST(gap_on_adam_uses_the_direction) {
    struct rig r = rig_plan(2, "gap:decay=0,eps=0", "adam:eps=0", 0.1);
    rig_open(&r, 0, 0);
    rig_step(&r, 0, 5, 5); /* direction (1, 1), moves by 0.1: one mean update */
    rig_step(&r, 1, 8, 8); /* gap 2: as if it were 4 */
    struct rig plain = rig_plan(2, "none", "adam:eps=0", 0.1);
    rig_open(&plain, 0, 0);
    rig_step(&plain, 0, 5, 5);
    rig_step(&plain, 1, 4, 4);
    expect_model("adam", rig_model(&r), rig_model(&plain)[0], rig_model(&plain)[1], 1e-14);
}
