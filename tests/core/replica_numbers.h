/* Replicas whose vectors are numbers. */
#ifndef PL_TESTS_REPLICA_NUMBERS_H
#define PL_TESTS_REPLICA_NUMBERS_H

#include "core/control.h"
#include "core/replicas.h"
#include "learn/replica_mean.h"
#include "test.h"

/* What every snapshot is, as the one coordinate of a model. */
struct numbers {
    struct pl_replicas *replicas;
    double value[1 << 14];
    int n_freed;
};

static inline void freed(void *ctx, int id, int writer, pl_real *v) {
    struct numbers *x = ctx;
    x->value[id] = NAN; /* nobody may read it any more */
    x->n_freed++;
}

static inline double sum(const struct numbers *x, const struct pl_combination *row) {
    double s = 0;
    for (int i = 0; i < row->n; i++) s += row->term[i].c * x->value[row->term[i].vector];
    return s;
}

static inline double model(const struct numbers *x, int worker) {
    struct pl_combination row;
    pl_replicas_model(x->replicas, worker, &row);
    return sum(x, &row);
}

static inline struct numbers *numbers_of(struct pl_replicas *replicas) {
    struct numbers *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->replicas = replicas;
    pl_vectors_memory(pl_replicas_vectors(replicas), 0,
                      &(struct pl_vector_memory){.put = freed, .ctx = x});
    return x;
}

/* The worker makes its base and brings it plus `step`; control has not heard of it. */
static inline void bring(struct numbers *x, int worker, double step) {
    struct pl_replica_task t = pl_replica_task(x->replicas, worker);
    double base = t.base_pending ? sum(x, t.input) : x->value[t.base];
    if (isnan(base)) fail_msg("worker %d reads what is not there", worker);
    if (t.base_pending) x->value[t.base] = base;
    x->value[t.answer] = base + step;
}

/* It has made its base, and says so. */
static inline void make(struct numbers *x, int worker) {
    struct pl_replica_task t = pl_replica_task(x->replicas, worker);
    if (t.base_pending) x->value[t.base] = sum(x, t.input);
}

#endif
