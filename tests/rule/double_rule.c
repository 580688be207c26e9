/* The rules in double precision: golden values printed to eight digits, algorithms that reduce to
 * one another, and closed forms small enough to compute by hand. Everything goes through the store,
 * as it does in a run. Sections are those of the algorithms page. */
#include "base/rng.h"
#include "rig.h"

static struct rig rig_new(int n_workers, const char *correct, const char *optim, double lr) {
    struct rig r = rig_plan(n_workers, correct, optim, lr);
    rig_open(&r, 1, 1);
    return r;
}

/* One asynchronous update on f(x) = (x1^2 + 10 x2^2)/2, exact gradient where it was handed. */
static void rig_descend(struct rig *r, int worker) {
    const double *at = r->held[worker]->lookahead;
    rig_step(r, worker, at[0], 10 * at[1]);
}

/* ---- 11.7: the golden table ---- */

TEST(golden_table) {
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
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct rig r = rig_new(3, row[i].correct, row[i].optim, 0.01);
        for (int k = 0; k < 12; k++) rig_descend(&r, k % 3);
        expect_model(row[i].name, rig_model(&r), row[i].x, row[i].y, digits);
        if (row[i].ahead_x != 0)
            expect_model("DANA look-ahead", pl_store_newest(r.store)->lookahead, row[i].ahead_x,
                         row[i].ahead_y, digits);
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
}

TEST(dc_without_lambda_is_async) {
    for (int adaptive = 0; adaptive < 2; adaptive++) {
        struct rig a = rig_new(4, "none", "sgd", 0.01);
        struct rig b = rig_new(4, adaptive ? "dc:form=a,lambda=0" : "dc:lambda=0", "sgd", 0.01);
        same_run(&a, &b, 200, 0);
    }
}

/* 4.3: n equal workers have lags of n-1, and neither rule changes anything */
TEST(delay_adaptive_leaves_usual_lags_alone) {
    for (int rule = 0; rule < 2; rule++) {
        struct rig a = rig_new(5, "none", "sgd", 0.01);
        struct rig b = rig_new(
            5, rule ? "delay-adaptive:rule=threshold" : "delay-adaptive:rule=inverse", "sgd", 0.01);
        for (int k = 0; k < 100; k++) {
            rig_descend(&a, k % 5);
            rig_descend(&b, k % 5);
            assert_memory_equal(rig_model(&a), rig_model(&b), DIM * sizeof(double));
        }
    }
}

/* 5.1: all K gradients of a round on one model: after each round heavy ball with their sum */
TEST(ormo_in_rounds_is_heavy_ball) {
    const double eta = 0.007, beta = 0.9;
    double x[DIM] = {1, 1}, u[DIM] = {0, 0};
    struct rig r = rig_new(4, "none", "ormo:beta=0.9", eta);
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
}

/* 5.1, the steps as they are written, any order of arrivals */
TEST(ormo_follows_its_steps) {
    enum { K = 4 };
    const double eta = 0.01, beta = 0.8;
    double w[DIM] = {1, 1}, u[DIM] = {0, 0}, bucket = 0;
    struct rig r = rig_new(K, "none", "ormo:beta=0.8", eta);
    struct pl_rng rng;
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
}

TEST(ormo_without_beta_is_async) {
    struct rig a = rig_new(4, "none", "sgd", 0.01), b = rig_new(4, "none", "ormo:beta=0", 0.01);
    same_run(&a, &b, 100, 1e-15);
}

TEST(dana_alone_is_nesterov) {
    const double eta = 0.01, gamma = 0.9;
    double x[DIM] = {1, 1}, v[DIM] = {0, 0}, y[DIM] = {1, 1};
    struct rig a = rig_new(1, "none", "nesterov:beta=0.9", eta);
    struct rig b = rig_new(1, "none", "dana:beta=0.9", eta);
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
}

TEST(dana_ahead_is_slim) {
    struct rig zero = rig_new(5, "none", "dana:beta=0.9", 0.01);
    struct rig slim = rig_new(5, "none", "dana:beta=0.9,form=slim", 0.01);
    struct pl_rng rng;
    pl_rng_init(&rng, test_seed, PL_STREAM_TEST, 2, 0);
    for (int k = 0; k < 300; k++) {
        int worker = (int)pl_rng_below(&rng, 5);
        rig_descend(&zero, worker);
        rig_descend(&slim, worker);
        const double *ahead = pl_store_newest(zero.store)->lookahead;
        expect_model("slim", rig_model(&slim), ahead[0], ahead[1], 1e-12);
    }
}

/* ---- optimizers, by hand ---- */

TEST(adam_by_hand) {
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
}

/* ---- groups: weights and factors ---- */

TEST(group_weights) {
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
        r.conf.reduce = choose_chain(&pl_reduce_family, row[i].reduce, 1);
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
    }
}

/* ---- schedules ---- */

static double factor_at(const char *spec, double progress, int n_workers) {
    struct pl_choice c = choose(&pl_schedule_family, spec, 1);
    const struct pl_schedule *s = (const struct pl_schedule *)c.entry;
    double f = s->factor ? s->factor(c.conf, progress, n_workers) : 1;
    return f;
}

TEST(schedule_closed_forms) {
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
TEST(schedules_chain) {
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
}
