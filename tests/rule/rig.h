/* A store in double precision with two parameters, for rules. */
#ifndef PL_TESTS_RIG_H
#define PL_TESTS_RIG_H

#include "choices.h"

#define DIM 2
#define MAX_WORKERS 8

/* A store with the contributions of its workers: worker i computed on held[i]. */
struct rig {
    struct pl_store_conf conf;
    struct pl_store *store;
    struct pl_version *held[MAX_WORKERS];
    double vector[MAX_WORKERS][DIM];
    int n_taken;
};

/* Options that a test may set before rig_open. */
static inline struct rig rig_plan(int n_workers, const char *correct, const char *optim,
                                  double lr) {
    return (struct rig){.conf = rules_of(DIM, n_workers, correct, "mean", optim, lr)};
}

static inline void rig_open(struct rig *r, double x, double y) {
    const double w0[DIM] = {x, y};
    r->store = store_of(&r->conf, w0);
    for (int i = 0; i < r->conf.n_workers; i++) {
        r->held[i] = pl_store_newest(r->store);
        pl_store_hold(r->store, r->held[i]);
    }
}

static inline const double *rig_model(const struct rig *r) {
    return pl_store_newest(r->store)->model;
}

/* The contribution (x, y) of a worker, computed on what it holds, into the open group. */
static inline void rig_take(struct rig *r, int worker, double x, double y, uint32_t samples,
                            double factor) {
    struct pl_version *base = r->held[worker];
    struct pl_member m = {.worker = worker,
                          .base = base->id,
                          .lag = pl_store_newest(r->store)->id - base->id,
                          .samples = samples,
                          .factor = factor};
    r->vector[r->n_taken][0] = x;
    r->vector[r->n_taken][1] = y;
    assert_int_equal(pl_store_take(r->store, &m, base, r->vector[r->n_taken], PL_FINITE_UNKNOWN),
                     0);
    r->n_taken++;
}

static inline void rig_commit(struct rig *r) {
    assert_int_equal(pl_store_commit(r->store, 1, NULL), 0);
    r->n_taken = 0;
}

static inline void rig_fetch(struct rig *r, int worker) {
    pl_store_release(r->store, r->held[worker]);
    r->held[worker] = pl_store_newest(r->store);
    pl_store_hold(r->store, r->held[worker]);
}

/* One asynchronous update with a given vector; the worker then has the new version. */
static inline void rig_step(struct rig *r, int worker, double x, double y) {
    rig_take(r, worker, x, y, 1, 1);
    rig_commit(r);
    rig_fetch(r, worker);
}

static inline void expect(const char *what, double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance))
        fail_msg("%s is %.17g, not %.17g (off by %g)", what, got, wanted, got - wanted);
}

static inline void expect_model(const char *what, const double *got, double x, double y,
                                double tolerance) {
    char name[128];
    snprintf(name, sizeof name, "%s, x1", what);
    expect(name, got[0], x, tolerance);
    snprintf(name, sizeof name, "%s, x2", what);
    expect(name, got[1], y, tolerance);
}

#endif
