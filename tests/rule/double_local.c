/* Local rules in double precision: the golden traces of no-delay averaging and elastic averaging,
 * where they are stable and where not, and rules that reduce to one another. Contributions go
 * through the store, as they do in a run. */
#include "choices.h"
#include "core/local.h"

#define WORKERS 2

/* f = 0.5 (x - c)^2 of one number; a worker's own c. */
struct worker {
    double c;
    double kept[PL_LOCAL_VECTORS], keep[PL_LOCAL_VECTORS];
    double sent, loss;
    struct pl_local_state state;
};

struct rig {
    struct pl_choice local;
    struct pl_store_conf conf;
    struct pl_store *store;
    struct worker w[WORKERS];
    double lr;
    bool moved; /* an optimizer outside of the rule takes the steps */
};

static const struct pl_local *rule(const struct rig *r) {
    return (const struct pl_local *)r->local.entry;
}

static struct rig rig_new(const char *local, const char *optim, double lr, double model) {
    struct rig r = {.local = choose(&pl_local_family, local, WORKERS), .lr = lr};
    r.conf = rules_of(1, WORKERS, "none", "mean", optim, lr);
    r.conf.sends = rule(&r)->sends;
    r.conf.outer = rule(&r)->outer ? rule(&r)->outer(r.local.conf, WORKERS) : 1;
    r.conf.sum_members = rule(&r)->sum_members;
    r.store = store_of(&r.conf, &model);
    return r;
}

static double model(const struct rig *r) {
    return pl_store_newest(r->store)->model[0];
}

/* One task on the version `w`. */
static void compute(struct rig *r, int i, double w, uint64_t version, bool merged) {
    struct worker *me = &r->w[i];
    struct pl_local_state *kept = &me->state;
    double scratch[2];
    struct pl_local_task t = {.dim = 1,
                              .w = &w,
                              .lr = r->lr,
                              .n_workers = WORKERS,
                              .model = &scratch[0],
                              .g = &scratch[1],
                              .out = &me->sent,
                              .moved = r->moved};
    struct pl_local_steps s;
    double loss;
    kept->applied = merged ? UINT64_MAX : 0;
    for (int v = 0; v < PL_LOCAL_VECTORS; v++) {
        kept->prev[v] = &me->kept[v];
        kept->next[v] = &me->keep[v];
    }
    pl_local_begin(&r->local, &t, kept, 1, version, &s);
    do {
        loss = 0;
        for (uint32_t step = 0; step < s.wanted; step++) {
            double g = (r->moved ? s.task.x : s.task.at)[0] - me->c;
            if (r->moved)
                s.task.x[0] -= s.task.lr * g;
            else
                s.task.g[0] = g;
            loss += 0.5 * g * g / s.wanted;
        }
    } while (pl_local_next(&s, loss));
    me->loss = s.loss;
    memcpy(me->kept, me->keep, sizeof me->kept);
    pl_local_state_acked(kept);
}

static void give(struct rig *r, int i) {
    struct pl_member m = {.worker = i, .samples = 1, .factor = 1};
    assert_int_equal(
        pl_store_take(r->store, &m, pl_store_newest(r->store), &r->w[i].sent, PL_FINITE_UNKNOWN),
        0);
}

static void commit(struct rig *r) {
    assert_int_equal(pl_store_commit(r->store, 1, NULL), 0);
}

static void near(double got, double want, double digits) {
    if (fabs(got - want) > digits) fail_msg("%.9g is not %.9g", got, want);
}

/* 12.4: two workers, c = (0, 2), the model 5, rate 0.1, two steps a round. Row k: what is received,
 * and the models after it is put below what was moved since. */
TEST(no_delay_golden) {
    static const double want[][3] = {{5, 5, 5},
                                     {5, 4.05, 4.43},
                                     {4.24, 3.4705, 3.7783},
                                     {3.6244, 2.965005, 3.286523},
                                     {3.125764, 2.562413, 2.881325},
                                     {2.721869, 2.23501, 2.554417},
                                     {2.394714, 1.970062, 2.289374}};
    struct rig r = rig_new("overlap:u=2", "sgd", 0.1, 5);
    r.w[1].c = 2;
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        uint64_t version = pl_store_newest(r.store)->id;
        double received = model(&r);
        near(received, want[k][0], 5e-7);
        /* what was brought is given, everybody goes on with what is there, and it is merged */
        for (int i = 0; k > 0 && i < WORKERS; i++) give(&r, i);
        double moved[WORKERS] = {r.w[0].sent, r.w[1].sent};
        for (int i = 0; i < WORKERS; i++) {
            near(received - (k > 0 ? moved[i] : 0), want[k][1 + i], 5e-7);
            /* version 0 is handed twice: before anything was merged, nothing new came */
            compute(&r, i, received, version, false);
            near(r.w[i].kept[1], want[k][1 + i], 5e-7);
        }
        double next[WORKERS] = {r.w[0].sent, r.w[1].sent};
        for (int i = 0; i < WORKERS; i++) r.w[i].sent = moved[i];
        if (k > 0) commit(&r);
        for (int i = 0; i < WORKERS; i++) r.w[i].sent = next[i];
    }
}

/* What the workers have together is what the next version is: the mean of models one round before.
 * 12.3, for random rounds. */
TEST(no_delay_keeps_the_mean) {
    struct rig r = rig_new("overlap:u=3", "sgd", 0.07, 1);
    r.w[0].c = -3;
    r.w[1].c = 11;
    for (int i = 0; i < WORKERS; i++) compute(&r, i, model(&r), 0, false);
    for (int k = 0; k < 40; k++) {
        double was = model(&r), sent[WORKERS], mean = 0;
        uint64_t version = pl_store_newest(r.store)->id;
        for (int i = 0; i < WORKERS; i++) {
            give(&r, i);
            sent[i] = r.w[i].sent;
            mean += (was - sent[i]) / WORKERS; /* its model when it gave */
        }
        double next[WORKERS];
        for (int i = 0; i < WORKERS; i++) {
            compute(&r, i, was, version, false);
            next[i] = r.w[i].sent;
            r.w[i].sent = sent[i];
        }
        commit(&r);
        near(model(&r), mean, 1e-12);
        for (int i = 0; i < WORKERS; i++) r.w[i].sent = next[i];
    }
}

/* Served alternately: each gives where it is, is handed what that is applied to, and steps. */
static void elastic_serve(struct rig *r, int n_workers, int n) {
    for (int k = 0; k < n; k++) {
        int i = k % n_workers;
        uint64_t version = pl_store_newest(r->store)->id;
        double centre = model(r);
        r->w[i].sent = r->w[i].kept[0];
        give(r, i);
        commit(r);
        compute(r, i, centre, version, false);
    }
}

static struct rig elastic_rig(const char *spec, double eta) {
    struct rig r = rig_new(spec, "sgd", eta, 1);
    r.w[0].kept[0] = 1;
    r.w[1].kept[0] = -1;
    r.w[0].state.any = r.w[1].state.any = true;
    return r;
}

/* 13.1: f = 0.5 x^2, c = 1, x = (1, -1), eta = 0.1, alpha = 0.45, tau = 1, three steps each. */
TEST(elastic_golden) {
    struct rig r = elastic_rig("elastic:u=1,alpha=0.45", 0.1);
    elastic_serve(&r, WORKERS, 6);
    near(r.w[0].kept[0], 0.31635, 5e-6);
    near(r.w[1].kept[0], 0.246893, 5e-7);
    near(model(&r), 0.281058, 5e-7);
    r = elastic_rig("elastic:u=1,alpha=0.45,delta=0.9", 0.1);
    elastic_serve(&r, WORKERS, 6);
    near(r.w[0].kept[0], 0.14139, 5e-6);
    near(r.w[1].kept[0], 0.33255, 5e-6);
    near(model(&r), 0.29746, 5e-6);
}

/* 13.1: served in turn on a quadratic of unit curvature it is stable for 0 <= eta <= 2 and
 * 0 <= alpha <= (4 - 2 eta) / (4 - eta). That edge is sharp for one worker; with two, some more is
 * stable, up to 7 % of alpha, as computed apart from this. */
TEST(elastic_stability) {
    for (int n = 1; n <= WORKERS; n++)
        for (double eta = 0.1; eta < 1.9; eta += 0.19)
            for (int outside = 0; outside < 2; outside++) {
                double edge = (4 - 2 * eta) / (4 - eta), beyond = n == 1 ? 1.02 : 1.1;
                char spec[64];
                snprintf(spec, sizeof spec, "elastic:u=1,alpha=%.17g",
                         edge * (outside ? beyond : 0.98));
                struct rig r = elastic_rig(spec, eta);
                elastic_serve(&r, n, 6000);
                double far = fmax(fabs(model(&r)), fabs(r.w[0].kept[0]));
                if (outside ? !(far > 1e3) : !(far < 1))
                    fail_msg("%d workers, eta %.2f, '%s', %s the region: %g", n, eta, spec,
                             outside ? "outside" : "inside", far);
            }
}

/* 13.1, synchronous: x_i -= eta g_i + alpha (x_i - c), c = (1 - beta) c + beta mean(x_i), with old
 * values on the right and beta = 2 alpha. */
TEST(elastic_synchronous) {
    struct rig r = elastic_rig("elastic:u=1,alpha=0.3", 0.2);
    double x[WORKERS] = {1, -1}, c = 1;
    r.w[1].c = 4;
    for (int k = 0; k < 30; k++) {
        uint64_t version = pl_store_newest(r.store)->id;
        double centre = model(&r), mean = (x[0] + x[1]) / 2;
        for (int i = 0; i < WORKERS; i++) {
            r.w[i].sent = r.w[i].kept[0];
            give(&r, i);
        }
        commit(&r);
        for (int i = 0; i < WORKERS; i++) {
            compute(&r, i, centre, version, false);
            x[i] -= 0.2 * (x[i] - r.w[i].c) + 0.3 * (x[i] - c);
            near(r.w[i].kept[0], x[i], 1e-12);
        }
        c = 0.4 * c + 0.6 * mean;
        near(model(&r), c, 1e-12);
    }
}

/* 12.5, Overlap-Local-SGD as it is printed, with an anchor and a momentum at every worker. */
TEST(anchor_as_printed) {
    const double a = 0.6, gmf = 0.7, eta = 0.1;
    struct rig r = rig_new("overlap-local:u=2", "momentum:beta=0.7", eta, 5);
    double x[WORKERS] = {5, 5}, z[WORKERS], b[WORKERS] = {0}, anchor = 5;
    r.w[1].c = 2;
    for (int i = 0; i < WORKERS; i++) {
        compute(&r, i, model(&r), 0, false);
        for (int u = 0; u < 2; u++) x[i] -= eta * (x[i] - r.w[i].c);
    }
    for (int k = 0; k < 30; k++) {
        uint64_t version = pl_store_newest(r.store)->id;
        double handed = model(&r), sent[WORKERS];
        near(handed, anchor, 1e-10);
        for (int i = 0; i < WORKERS; i++) {
            give(&r, i);
            sent[i] = r.w[i].sent;
        }
        double next[WORKERS];
        for (int i = 0; i < WORKERS; i++) {
            compute(&r, i, handed, version, false);
            next[i] = r.w[i].sent;
            r.w[i].sent = sent[i];
            x[i] = (1 - a) * x[i] + a * anchor;
            b[i] = gmf * b[i] - (x[i] - anchor) / eta;
            z[i] = anchor - eta * b[i];
            for (int u = 0; u < 2; u++) x[i] -= eta * (x[i] - r.w[i].c);
            near(next[i], x[i], 1e-10);
        }
        commit(&r);
        for (int i = 0; i < WORKERS; i++) r.w[i].sent = next[i];
        anchor = (z[0] + z[1]) / 2;
    }
}

/* 13.2 as it is printed, with a push every three steps and a fetch every second push. */
TEST(downpour_as_printed) {
    struct rig r = rig_new("downpour:push=3", "sgd", 0.05, 4);
    double c = 4, x = 4, acc = 0, handed = 4;
    uint64_t version = 0;
    r.w[0].c = 1;
    for (int t = 1; t <= 60; t++) {
        double g = x - 1;
        acc += -0.05 * g;
        x += -0.05 * g;
        if (t % 3) continue;
        compute(&r, 0, handed, version, true);
        give(&r, 0);
        commit(&r);
        c += acc;
        acc = 0;
        near(model(&r), c, 1e-12);
        if (t % 6) continue;
        x = c;
        handed = model(&r);
        version = pl_store_newest(r.store)->id;
    }
}

/* With one push per fetch and one step per push it is asynchronous SGD; one local step at an outer
 * rate of 1 is a gradient; nothing in flight makes overlap the same as local SGD. */
TEST(rules_meet) {
    static const char *const same[][2] = {
        {"downpour:push=1", "gradient"}, {"steps:u=1", "gradient"}, {"overlap:u=4", "steps:u=4"}};
    for (size_t s = 0; s < sizeof same / sizeof *same; s++) {
        struct rig a = rig_new(same[s][0], "momentum", 0.05, 3);
        struct rig b = rig_new(same[s][1], "momentum", 0.05, 3);
        /* momentum sees lr times as much where moves are sent; so it does at rate 1 */
        for (int k = 0; k < 20; k++) {
            compute(&a, 0, model(&a), (uint64_t)k, true);
            compute(&b, 0, model(&b), (uint64_t)k, true);
            give(&a, 0);
            give(&b, 0);
            commit(&a);
            commit(&b);
            near(model(&a), model(&b), 1e-12);
        }
    }
}

/* Whoever takes the steps of plain SGD, the rule or an optimizer outside of it, the models, the
 * results and the losses are the same. */
TEST(any_optimizer_takes_the_steps) {
    static const char *const specs[] = {
        "steps:u=3",   "steps:u=3,lr=0.02", "overlap:u=2", "overlap-local:u=4",
        "elastic:u=1", "elastic:u=5",       "own:u=2"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct rig a = rig_new(specs[s], "sgd", 0.05, 3), b = rig_new(specs[s], "sgd", 0.05, 3);
        assert_true(rule(&a)->plain(a.local.conf));
        b.moved = true;
        for (int k = 0; k < 20; k++) {
            compute(&a, 0, model(&a), (uint64_t)k, k % 3 == 0);
            compute(&b, 0, model(&b), (uint64_t)k, k % 3 == 0);
            near(a.w[0].loss, b.w[0].loss, 1e-12);
            give(&a, 0);
            give(&b, 0);
            commit(&a);
            commit(&b);
            near(model(&a), model(&b), 1e-12);
        }
        if (fabs(model(&a)) > 2.5) fail_msg("'%s' does not move: %g", specs[s], model(&a));
    }
}

/* DiLoCo's outer step: Nesterov as it is usually coded, on the mean of the moves, at rate 0.7. What
 * workers are handed is that iterate. */
TEST(outer_nesterov) {
    struct rig r = rig_new("steps:u=5,outer=0.7", "nesterov:beta=0.9", 0.1, 3);
    double theta = 3, buffer = 0;
    r.w[1].c = 1;
    for (int k = 0; k < 25; k++) {
        double handed = pl_store_newest(r.store)->lookahead[0], delta = 0;
        near(handed, theta, 1e-10);
        for (int i = 0; i < WORKERS; i++) {
            compute(&r, i, handed, (uint64_t)k, true);
            give(&r, i);
            double x = theta;
            for (int u = 0; u < 5; u++) x -= 0.1 * (x - r.w[i].c);
            delta += (theta - x) / WORKERS;
        }
        commit(&r);
        buffer = 0.9 * buffer + delta;
        theta -= 0.7 * (delta + 0.9 * buffer);
    }
}
